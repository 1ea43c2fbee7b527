"""What was done to a generated job is what the diagnosis of its files names first."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from foretrace.analyze import (
    ALL_RANKS,
    IdleCause,
    Stillness,
    breakdown,
    diagnosis,
    hang,
    idle,
    stragglers,
)
from foretrace.graph import Recording, Timeline, build_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from tests.acceptance.recovery import recording_of_job
from tests.truth import (
    Change,
    Job,
    JobConfig,
    LateLoader,
    LongerSegment,
    SlowFamily,
    SlowRank,
    make_job,
    mutate,
    text,
    write,
)

CONFIG = JobConfig(tp=2, dp=2, num_layers=2, num_steps=3, data_loading_ns=200_000)


@cache
def job_of(config: JobConfig = CONFIG) -> Job:
    return make_job(config)


def launch_of(job: Job, rank: int, family: str) -> int:
    """Correlation of a forward launch in the middle step."""
    forward = [each for each in job.operations(rank) if f"{family}_fwd" in each.name]
    return forward[len(forward) // 2].correlation


@cache
def recorded(*changes: Change) -> Recording:
    return recording_of_job(job_of().after(*changes))


@pytest.fixture(params=["measured", "simulated"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def timeline_of(recording: Recording, kind: str) -> Timeline:
    return recording.measured if kind == "measured" else simulate(recording.graph)


STALL = LongerSegment(1, launch_of(job_of(), 1, "flash"), 30_000_000)
PLANTED = {
    "slow rank": (SlowRank(3, 1.3), 3, IdleCause.COMPUTE, "slow chip"),
    "slow matrix products": (SlowFamily(1, "gemm", 1.4), 1, IdleCause.COMPUTE, "cutlass::Kernel2"),
    "slow normalisation": (SlowFamily(2, "norm", 4.0), 2, IdleCause.COMPUTE, "cuCompute"),
    "late loader": (LateLoader(2, 20_000_000), 2, IdleCause.DATA, "enumerate(DataLoader)"),
    "host stall": (STALL, 1, IdleCause.STALL, "host stalls, cause not recorded"),
}


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_comes_first(name: str, kind: str) -> None:
    change, rank, cause, named = PLANTED[name]

    first = diagnosis(timeline_of(recorded(change), kind)).causes[0]

    assert (first.topic, first.rank, first.cause) == ("straggler", rank, cause)
    assert f"rank {rank}'s {first.what}" in first.sentence
    assert named in first.sentence


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_rank_has_most_blame(name: str, kind: str) -> None:
    change, rank, cause, _ = PLANTED[name]

    found = stragglers(timeline_of(recorded(change), kind))

    assert found.ranks[0].rank == rank
    assert found.ranks[0].causes[0].cause == cause
    assert found.ranks[0].blame_ns > 3 * found.ranks[1].blame_ns


def test_a_rank_that_is_always_slow_is_late_systematically_and_a_single_stall_is_not() -> None:
    slow = stragglers(recorded(SlowRank(3, 1.3)).measured).ranks[0]
    stalled = stragglers(recorded(STALL).measured).ranks[0]

    assert slow.is_systematic
    assert "systematically" in slow.sentence
    assert not stalled.is_systematic


def test_in_an_even_job_no_rank_is_blamed_for_more_than_the_jitter() -> None:
    found = diagnosis(recorded()).causes

    assert (found[0].rank, found[0].cause) == (ALL_RANKS, IdleCause.DATA)
    blamed = [one for one in found if one.topic == "straggler"]
    # 5 us of jitter per kernel, and 42 collectives per step and rank at which it may count
    assert all(one.lost_ns < 200_000 * one.num_ranks for one in blamed)
    assert not any(rank.is_systematic for rank in stragglers(recorded().measured).ranks)


def test_what_a_planted_delay_costs_is_found_again(kind: str) -> None:
    late = timeline_of(recorded(LateLoader(2, 20_000_000)), kind)
    found = idle(late)

    # in each step three ranks wait for 20 ms, and the late one is idle meanwhile
    lost_ns = sum(row.lost_ns for row in found.rows() if row.cause == IdleCause.DATA)
    assert lost_ns == pytest.approx(3 * 4 * 20_000_000, rel=0.1)


@pytest.mark.parametrize("name", PLANTED)
def test_causes_sum_to_the_idle_time_of_the_breakdown(name: str, kind: str) -> None:
    timeline = timeline_of(recorded(PLANTED[name][0]), kind)
    found = idle(timeline)

    for row in breakdown(timeline).rows:
        chosen = (found.rank == row.rank) & (found.step == row.step)
        is_idle = chosen & (found.kind == Stillness.IDLE)
        assert int(found.duration_ns[is_idle].sum()) == row.parts.idle_ns
        waiting_ns = int(found.duration_ns[chosen & ~is_idle].sum())
        assert waiting_ns <= row.parts.exposed_communication_ns


def test_nothing_is_unexplained_in_a_simulated_timeline() -> None:
    found = idle(simulate(recorded(STALL).graph))

    assert IdleCause.UNEXPLAINED not in found.by_cause()


# -- hangs -----------------------------------------------------------------------------------------


@cache
def parsed(config: JobConfig) -> dict[int, dict[str, Any]]:
    job = job_of(config)
    ranks = range(job.num_ranks)
    return {rank: json.loads(text(job, rank), parse_float=Decimal) for rank in ranks}


HANGING = replace(CONFIG, num_steps=2)
PIPELINE = JobConfig(tp=2, pp=2, num_layers=2, num_steps=2, num_microbatches=2)


def recording_of_hang(config: JobConfig, at: int, folder: Path) -> tuple[Recording, int]:
    """A job whose highest rank of one collective never issued it, and that rank."""
    job = job_of(config)
    collectives = [{each.rank: each.correlation for each in one.members} for one in job.collectives]
    missing = max(collectives[at])
    traces = mutate.hung(parsed(config), collectives, missing=missing, at=at)
    paths = [mutate.save(trace, folder / f"rank{rank}.json") for rank, trace in traces.items()]
    return build_recording(load_traces(paths)), missing


def places(config: JobConfig) -> list[int]:
    """A collective in the middle of each group that is no pair of neighbours."""
    job = job_of(config)
    by_group: dict[str, list[int]] = {}
    for index, one in enumerate(job.collectives):
        if one.link != "pp":
            by_group.setdefault(one.group, []).append(index)
    return [indices[len(indices) // 2] for indices in by_group.values()]


@pytest.mark.parametrize(
    ("config", "at"),
    [(config, at) for config in (HANGING, PIPELINE) for at in places(config)],
)
def test_a_missing_collective_is_named_with_its_rank_group_and_position(
    config: JobConfig, at: int, tmp_path: Path
) -> None:
    recording, missing = recording_of_hang(config, at, tmp_path)
    true = job_of(config).collectives[at]

    first = diagnosis(recording).causes[0]
    found = hang(recording)

    assert found.is_hung
    assert (first.topic, first.rank) == ("hang", missing)
    root = found.stuck[0]
    assert (root.group, root.position) == (true.group, true.position)
    assert root.missing_ranks == (missing,)
    assert set(root.waiting_ranks) == {each.rank for each in true.members} - {missing}
    assert [each.rank for each in found.culprits] == [missing]
    assert found.deadlock == ()
    assert f"which rank {missing} never began" in found.sentence


def test_a_hang_says_what_the_missing_rank_did_last(tmp_path: Path) -> None:
    job = job_of(HANGING)
    at = next(
        index for index, one in enumerate(job.collectives) if one.link == "tp" and one.position == 3
    )

    recording, missing = recording_of_hang(HANGING, at, tmp_path)

    found = hang(recording)
    assert found.is_hung
    last = found.culprits[0]
    assert last.rank == missing
    assert last.last_collective == "allreduce number 2"
    assert last.operator.startswith("aten::")


def test_a_job_that_ran_on_does_not_hang() -> None:
    assert recorded().unmatched == ()
    assert not hang(recorded()).is_hung


def test_a_file_that_was_cut_off_is_no_hang_and_is_said_to_be_none(tmp_path: Path) -> None:
    paths = write(job_of(HANGING), tmp_path, compress=False)
    content = paths[3].read_bytes()
    paths[3].write_bytes(mutate.truncate_bytes(content, len(content) // 5))

    recording = build_recording(load_traces(paths))

    assert recording.endings[3].is_cut_off
    assert any(3 in one.missing_ranks for one in recording.unmatched)
    assert not hang(recording).is_hung
    texts = [finding.text for finding in recording.findings if finding.topic == "hang"]
    assert len(texts) == 1
    assert "rank 3's file stops in the middle" in texts[0]
    assert "no sign of a hang" in texts[0]


def tensor_collectives(job: Job) -> list[dict[int, int]]:
    """Rank to correlation of each collective of ranks 0 and 1 over their tensor group."""
    return [
        {each.rank: each.correlation for each in one.members}
        for one in job.collectives
        if one.link == "tp" and one.members[0].rank == 0
    ]


def recording_of_traces(traces: dict[int, dict[str, Any]], folder: Path) -> Recording:
    paths = [mutate.save(trace, folder / f"rank{rank}.json") for rank, trace in traces.items()]
    return build_recording(load_traces(paths))


def test_a_collective_lost_in_the_middle_is_unmatched_and_no_hang(tmp_path: Path) -> None:
    traces = dict(parsed(HANGING))
    lost = tensor_collectives(job_of(HANGING))[3]
    traces[1] = mutate.drop_collective(traces[1], lost[1])

    recording = recording_of_traces(traces, tmp_path)

    (place,) = recording.unmatched
    assert (place.position, place.ranks, place.missing_ranks) == (3, (0,), (1,))
    assert place.ended_ranks == ()
    assert not hang(recording).is_hung


def test_ranks_that_began_different_collectives_are_named_with_both(tmp_path: Path) -> None:
    pair = JobConfig(tp=2, num_layers=2, num_steps=2)
    traces = dict(parsed(pair))
    for rank, correlation in tensor_collectives(job_of(pair))[3].items():
        traces[rank] = stopped_in(traces[rank], correlation)
    traces[1] = mutate.renamed_last(traces[1], "allreduce", "broadcast")

    found = hang(recording_of_traces(traces, tmp_path))

    assert found.is_hung
    assert "differ at number 3: rank 0 began allreduce" in found.sentence
    assert "rank 1 began broadcast" in found.sentence


def stopped_in(trace: dict[str, Any], correlation: int) -> dict[str, Any]:
    """A rank that launched a communication and got no further."""
    begins = {
        event["cat"]: mutate.nanoseconds(event["ts"])
        for event in trace["traceEvents"]
        if event.get("cat") in {"kernel", "cuda_runtime"}
        and event["args"].get("correlation") == correlation
    }
    return mutate.stopped(
        trace,
        host_ns=begins["cuda_runtime"] + 1,
        device_ns=begins["kernel"],
        until_ns=begins["kernel"] + 5_000_000_000,
        never_ended=(correlation,),
    )
