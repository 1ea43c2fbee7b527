"""Communication that no table of names knows, told by how its kernels behave."""

from __future__ import annotations

from foretrace.graph import NodeKind, Recording
from tests.graph.recorded import (
    Event,
    file_text,
    kernel,
    launch,
    nodes_of,
    recording_of_files,
    step,
)

_CALLS = 10
COMPUTE, SIDE = 7, 9


def ran(name: str, *spans: tuple[int, int], stream: int, first: int) -> list[Event]:
    """Launches before all, then kernels of one name from begin to end, in us."""
    events = []
    for at, (begin, end) in enumerate(spans):
        events.append(launch(10 + first + at, 1, correlation=first + at))
        events.append(kernel(name, begin, end - begin, correlation=first + at, stream=stream))
    return events


def compute(*spans: tuple[int, int], stream: int = COMPUTE) -> list[Event]:
    return ran("ampere_sgemm_128x64_tn", *spans, stream=stream, first=1)


def recorded(*ranks: list[Event]) -> Recording:
    texts = (
        file_text([step(1, 0, 20_000), *each], rank=at, world_size=len(ranks))
        for at, each in enumerate(ranks)
    )
    return recording_of_files(tuple(texts))


def told(recording: Recording) -> str:
    return " ".join(one.text for one in recording.findings if one.topic == "behaviour")


def test_kernels_that_end_together_on_ranks_that_began_apart_communicate() -> None:
    def rank(late_us: int) -> list[Event]:
        spans = [(1_000 * at + late_us, 1_000 * at + 700) for at in range(1, _CALLS + 1)]
        return ran("mine", *spans, stream=COMPUTE, first=100)

    recording = recorded(rank(0), rank(400))

    assert "1 kernel that no table knows, as 'mine'" in told(recording)
    assert len(nodes_of(recording.graph, NodeKind.HUB)) == _CALLS


def test_kernels_that_begin_together_do_not_show_who_waited() -> None:
    spans = [(1_000 * at, 1_000 * at + 700) for at in range(1, _CALLS + 1)]
    rank = ran("mine", *spans, stream=COMPUTE, first=100)

    assert not told(recorded(rank, rank))


def beside(*took_us: int, stream: int = SIDE) -> list[Event]:
    """Kernels of one name while another stream computes."""
    spans = [(1_000 * at, 1_000 * at + took) for at, took in enumerate(took_us, start=1)]
    return compute((900, 15_000)) + ran("mine", *spans, stream=stream, first=100)


def test_kernels_of_uneven_length_beside_compute_wait_for_other_ranks() -> None:
    assert "'mine'" in told(recorded(beside(*(100, 500) * 5)))


def test_kernels_of_even_length_beside_compute_may_compute() -> None:
    assert not told(recorded(beside(*(100,) * _CALLS)))


def test_unknown_kernels_on_a_stream_of_communication_are_of_it() -> None:
    nccl = ran("ncclDevKernel_AllReduce", (16_000, 17_000), stream=SIDE, first=300)

    assert "'mine'" in told(recorded(beside(*(100,) * _CALLS) + nccl))


def test_unknown_kernels_among_compute_are_not_told() -> None:
    uneven = [(1_000 * at, 1_000 * at + took) for at, took in enumerate((100, 500) * 5, start=1)]

    among = compute((600, 950), (14_000, 15_000), stream=SIDE)
    events = among + ran("mine", *uneven, stream=SIDE, first=100)

    assert not told(recorded(events))
