"""What a synchronising call waits for, where the trace does not say."""

from __future__ import annotations

from functools import partial

import pytest

from foretrace.graph import EdgeKind
from tests.graph.recorded import (
    Event,
    call,
    file_text,
    kernel,
    launch,
    named_edges,
    recording_of_files,
    step,
)
from tests.growth import grows_in_proportion

# Two streams: "short" on 9 ends at 200, "long" on 7 at 900.
WORK: list[Event] = [
    *(step(1, 0, 3_000), launch(10, 5, correlation=1), launch(20, 5, correlation=2)),
    kernel("long", 18, 882, correlation=1),
    kernel("short", 28, 172, correlation=2, stream=9),
]


def waited_for(*calls: Event) -> set[tuple[str, str]]:
    return named_edges(recording_of_files([file_text([*WORK, *calls])]).graph, EdgeKind.WAKE)


def test_a_device_synchronisation_waits_for_every_stream() -> None:
    name = "cudaDeviceSynchronize"

    assert waited_for(call(name, 40, 865, correlation=3)) == {("long", name), ("short", name)}


@pytest.mark.parametrize(("returns", "waited"), [(204, "short"), (905, "long")])
def test_a_stream_synchronisation_waits_for_the_stream_whose_end_explains_its_return(
    returns: int, waited: str
) -> None:
    name = "cudaStreamSynchronize"

    assert waited_for(call(name, 40, returns - 40, correlation=3)) == {(waited, name)}


def test_a_stream_synchronisation_that_did_not_wait_is_of_the_stream_launched_on_last() -> None:
    name = "cudaStreamSynchronize"

    assert waited_for(call(name, 300, 3, correlation=3)) == {("short", name)}


@pytest.mark.parametrize(("returns", "waited"), [(204, "short"), (905, "long")])
def test_an_event_synchronisation_waits_for_the_operation_whose_end_explains_its_return(
    returns: int, waited: str
) -> None:
    name = "cudaEventSynchronize"

    assert waited_for(call(name, 40, returns - 40, correlation=3)) == {(waited, name)}


def test_an_event_synchronisation_that_nothing_explains_waits_for_nothing() -> None:
    assert waited_for(call("cudaEventSynchronize", 1_500, 3, correlation=3)) == set()


def test_an_event_query_waits_for_nothing() -> None:
    assert waited_for(call("cudaEventQuery", 40, 865, correlation=3)) == set()


@pytest.mark.parametrize(
    "name", ["cudaDeviceSynchronize", "cudaEventSynchronize", "cudaStreamSynchronize"]
)
def test_many_synchronisations_cost_in_proportion(name: str) -> None:
    texts = [
        file_text(
            [*WORK, *(call(name, 1_000 + 4 * at, 2, correlation=3 + at) for at in range(num))]
        )
        for num in (50, 100, 200)
    ]

    assert grows_in_proportion([partial(recording_of_files, [text]) for text in texts])
