"""Causes planted in real recordings are found: `examples/planted`, made by the example's script."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.analyze import IdleCause, breakdown, compare, diagnosis
from foretrace.graph import Recording, Timeline, build_recording, verify
from foretrace.simulate import simulate
from foretrace.trace import load_traces

SLEEP_NS = 150_000_000
# One bucket is all gradients of a rank's share of the model; it was three.
BUCKET = "allreduce 7.15 MB"


@pytest.fixture(scope="module")
def recordings(repository: Path) -> dict[str, Recording]:
    """Each recording by what was planted in it."""
    folder = repository / "examples" / "planted"
    found = {}
    for name in ("nothing", "slow-forward", "slow-loader", "large-bucket"):
        found[name] = build_recording(load_traces(folder / name))
        verify(found[name].graph)
    return found


def both(recording: Recording) -> tuple[Timeline, Timeline]:
    """The measured and the replayed timeline."""
    return recording.measured, simulate(recording.graph)


def test_a_sleep_in_one_ranks_forward_is_named_first(recordings: dict[str, Recording]) -> None:
    for timeline in both(recordings["slow-forward"]):
        first, second, *_ = diagnosis(timeline).causes

        assert (first.topic, first.rank, first.cause) == ("straggler", 3, IdleCause.HOST)
        assert first.subject == "DistributedDataParallel.forward"
        assert first.lost_ns == pytest.approx(SLEEP_NS, rel=0.15)
        assert second.lost_ns < first.lost_ns / 5


def test_a_slow_data_set_of_one_rank_is_named_first(recordings: dict[str, Recording]) -> None:
    for timeline in both(recordings["slow-loader"]):
        first, second, *_ = diagnosis(timeline).causes

        assert (first.topic, first.rank, first.cause) == ("straggler", 2, IdleCause.DATA)
        assert first.subject.startswith("enumerate(DataLoader)")
        assert first.lost_ns == pytest.approx(SLEEP_NS, rel=0.15)
        assert second.lost_ns < first.lost_ns / 5


def test_without_a_plant_neither_is_named(recordings: dict[str, Recording]) -> None:
    causes = diagnosis(recordings["nothing"]).causes

    data_ns = [cause.lost_ns for cause in causes if cause.cause == IdleCause.DATA]
    assert max(data_ns, default=0) < SLEEP_NS / 100
    stalls_ns = [cause.lost_ns for cause in causes if cause.cause == IdleCause.STALL]
    other_ns = [cause.lost_ns for cause in causes if cause.cause != IdleCause.STALL]
    assert max(other_ns) < SLEEP_NS / 5
    assert max(stalls_ns, default=0) < SLEEP_NS / 4  # 31 ms: the host was busy, and they are told


def test_a_bucket_for_all_gradients_is_named_first(recordings: dict[str, Recording]) -> None:
    first, *_ = compare(recordings["nothing"].measured, recordings["large-bucket"].measured).reasons

    assert first.label == "transfer of allreduce"
    assert first.difference_ns > 0
    assert BUCKET in first.sentence
    assert "is new" in first.sentence


def test_a_bucket_for_all_gradients_takes_the_place_of_three(
    recordings: dict[str, Recording],
) -> None:
    sizes = {
        name: sorted(
            one.num_bytes
            for one in recordings[name].graph.collectives
            if len(one.ranks) == 2 and one.num_bytes > 1_000_000 and 0 in one.ranks
        )
        for name in ("nothing", "large-bucket")
    }

    assert len(sizes["nothing"]) == 3 * len(sizes["large-bucket"])
    assert sum(sizes["nothing"]) == sum(sizes["large-bucket"])


def test_a_bucket_for_all_gradients_hides_behind_nothing(recordings: dict[str, Recording]) -> None:
    overlapped_ns = {
        name: sum(row.parts.overlapped_ns for row in breakdown(recordings[name].measured).rows)
        for name in ("nothing", "large-bucket")
    }

    assert overlapped_ns["large-bucket"] < overlapped_ns["nothing"] / 20


@pytest.mark.parametrize(("plant", "rank"), [("slow-forward", 3), ("slow-loader", 2)])
def test_compare_names_the_rank_that_something_was_planted_in(
    recordings: dict[str, Recording], plant: str, rank: int
) -> None:
    first, *_ = compare(recordings["nothing"].measured, recordings[plant].measured).reasons

    assert first.label == f"rank {rank}"
