"""Changes keep every draw and change what they name, and nothing else."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from tests.truth import (
    AllKernels,
    Dependency,
    Job,
    JobConfig,
    KernelFamily,
    LateLoader,
    LongerSegment,
    MergedBuckets,
    SlowFamily,
    SlowLink,
    SlowRank,
    acceptance_config,
    make_job,
)

CONFIG = JobConfig(tp=2, dp=2, num_layers=3, num_steps=2, num_microbatches=2, seed=7)


@pytest.fixture(scope="module")
def job() -> Job:
    return make_job(CONFIG)


def durations(job: Job, rank: int) -> dict[int, int]:
    return {
        each.correlation: each.end_ns - each.start_ns
        for each in job.operations(rank)
        if each.collective < 0
    }


def test_the_same_config_gives_the_same_job(job: Job) -> None:
    again = make_job(CONFIG)

    np.testing.assert_array_equal(again.times.start_ns, job.times.start_ns)
    assert again.clocks == job.clocks


def test_another_seed_gives_another_job(job: Job) -> None:
    other = make_job(replace(CONFIG, seed=8))

    assert (other.step_ns != job.step_ns).all()
    assert other.clocks != job.clocks


def test_work_varies_by_the_jitter_that_was_asked_for(job: Job) -> None:
    still = make_job(replace(CONFIG, jitter_ns=0))

    moved = [
        durations(job, rank)[correlation] - duration
        for rank in range(job.num_ranks)
        for correlation, duration in durations(still, rank).items()
        if duration > 50_000
    ]
    assert np.std(moved) == pytest.approx(CONFIG.jitter_ns, rel=0.1)
    assert abs(np.mean(moved)) < CONFIG.jitter_ns / 5


def test_every_kernel_of_every_rank_draws_for_itself(job: Job) -> None:
    drawn = Counter(
        (each.name, each.end_ns - each.start_ns)
        for rank in range(job.num_ranks)
        for each in job.operations(rank)
        if each.family == "gemm"
    )

    # Few hundred draws of a kernel among tens of thousands of ns: two rarely fall together.
    assert sum(drawn.values()) > 500
    assert len(drawn) > 0.97 * sum(drawn.values())


def test_a_family_changes_alone(job: Job) -> None:
    faster = job.after(KernelFamily("gemm", 0.7))

    for rank in range(job.num_ranks):
        after = durations(faster, rank)
        for each in job.operations(rank):
            if each.collective < 0:
                factor = 0.7 if each.family == "gemm" else 1.0
                expected = (each.end_ns - each.start_ns) * factor
                assert abs(after[each.correlation] - expected) <= 0.5
    assert (faster.step_ns < job.step_ns).all()


def test_one_slow_rank_slows_its_partners(job: Job) -> None:
    slower = job.after(SlowRank(1, 1.1))

    assert durations(slower, 0) == durations(job, 0)
    assert durations(slower, 1) != durations(job, 1)
    assert (slower.step_ns[:, 1] > job.step_ns[:, 1] * 1.05).all()


def test_a_family_of_one_rank_slows_and_no_other(job: Job) -> None:
    slow = job.after(SlowFamily(1, "norm", 3.0))

    for rank in range(job.num_ranks):
        before, after = durations(job, rank), durations(slow, rank)
        family = {each.correlation: each.family for each in job.operations(rank)}
        changed = {family[each] for each in before if after[each] != before[each]}
        assert changed == ({"norm"} if rank == 1 else set())


def test_a_late_loader_delays_its_rank_in_every_step(job: Job) -> None:
    late = job.after(LateLoader(2, 50_000_000))

    longer_ns = late.host_step_ns[2] - job.host_step_ns[2]
    assert (longer_ns > 40_000_000).all()
    assert durations(late, 0) == durations(job, 0)
    with pytest.raises(ValueError, match="loads no data"):
        make_job(replace(CONFIG, data_loading_ns=0)).after(LateLoader(2, 1))


def test_a_slow_rank_can_be_there_from_the_start(job: Job) -> None:
    built_in = make_job(replace(CONFIG, slow_ranks=((1, 1.1),)))

    np.testing.assert_array_equal(built_in.step_ns, job.after(SlowRank(1, 1.1)).step_ns)


def test_a_slow_link_lengthens_its_transfers(job: Job) -> None:
    slower = job.after(SlowLink("dp", 2.0))

    jitter_ns = 12 * CONFIG.overheads.end_jitter_ns
    for before, after in zip(job.collectives, slower.collectives, strict=True):
        factor = 2.0 if before.link == "dp" else 1.0
        for member, later in zip(before.members, after.members, strict=True):
            assert abs(later.transfer_ns - factor * member.transfer_ns) <= jitter_ns


def test_all_kernels_faster_leaves_copies_alone(job: Job) -> None:
    faster = job.after(AllKernels(0.8))

    copies = [each for each in job.operations(0) if each.category != "kernel"]
    after = durations(faster, 0)
    assert copies
    assert all(after[each.correlation] == each.end_ns - each.start_ns for each in copies)


def test_merging_buckets_changes_only_the_buckets(job: Job) -> None:
    merged = job.after(MergedBuckets(0, 1))

    def reductions(of: Job) -> int:
        return sum(each.link == "dp" for each in of.collectives)

    assert reductions(job) - reductions(merged) == 2 * CONFIG.num_steps  # two dp groups
    for rank in range(job.num_ranks):
        kernels = [
            Counter(
                each.end_ns - each.start_ns for each in of.operations(rank) if each.family == "gemm"
            )
            for of in (job, merged)
        ]
        assert kernels[0] == kernels[1]
    largest = max(each.num_bytes for each in merged.collectives if each.link == "dp")
    assert largest == 2 * CONFIG.layer_parameter_bytes


def test_changes_add_up(job: Job) -> None:
    both = job.after(SlowLink("dp", 2.0), KernelFamily("gemm", 0.7))

    np.testing.assert_array_equal(
        both.step_ns, job.after(SlowLink("dp", 2.0)).after(KernelFamily("gemm", 0.7)).step_ns
    )


def test_a_longer_segment_before_the_first_launch_delays_every_rank() -> None:
    job = make_job(replace(CONFIG, start_skew_ns=0, num_steps=1, jitter_ns=0))
    first = next(call for call in job.calls(2) if call.name == "cudaLaunchKernel")

    later = job.after(LongerSegment(2, first.correlation, 5_000_000))

    # Rank 2 waits for nobody before that launch, so all others wait for rank 2 from its first
    # all-reduce on: by 5 ms less the lateness that it had already gained on its partner, none.
    slipped = later.step_ns - job.step_ns
    assert slipped.min() > 4_900_000
    assert slipped.max() < 5_100_000


def test_delays_of_edges_are_what_is_lost_without_them(job: Job) -> None:
    edges = [edge for edge in job.edges(0) if edge.kind == Dependency.INTER_STREAM]
    starts = {each.correlation: each.start_ns for each in job.operations(0)}
    ends = {each.correlation: each.end_ns for each in job.operations(0)}

    handover_ns, slack_ns = CONFIG.overheads.handover_ns, 6 * CONFIG.overheads.lag_jitter_ns
    delaying = [edge for edge in edges if edge.delay_ns > 0]
    assert len(delaying) > len(edges) // 4
    for edge in edges:
        gap = starts[edge.target[1]] - ends[edge.source[1]] - handover_ns
        assert gap >= 0
        if edge.delay_ns > 0:
            assert gap <= slack_ns


@pytest.mark.slow
def test_each_intervention_matters_on_the_acceptance_job() -> None:
    job = make_job(acceptance_config(8))

    # A prediction within 0.5% says something only where the change is well above that.
    for change in (
        KernelFamily("gemm", 1 / 1.3),
        SlowRank(1, 1.1),
        SlowLink("dp", 2.0),
        SlowLink("tp", 2.0),
        SlowLink("pp", 2.0),
        SlowLink("ring", 2.0),
        MergedBuckets(0, 1),
        MergedBuckets(1, 2),
    ):
        ratio = job.after(change).step_ns / job.step_ns
        assert abs(ratio.mean() - 1.0) > 0.01, change


def test_other_numbers_of_ranks_are_refused() -> None:
    with pytest.raises(ValueError, match="one of"):
        acceptance_config(7)


def test_host_order_and_hand_overs_join_all_calls(job: Job) -> None:
    edges = job.edges(3, (Dependency.HOST, Dependency.THREAD))

    calls = list(job.calls(3))
    assert [edge.target[1] for edge in edges] == [call.correlation for call in calls[1:]]
    crossing = [edge for edge in edges if edge.kind == Dependency.THREAD]
    assert len(crossing) == 2 * CONFIG.num_microbatches * CONFIG.num_steps
    assert min(edge.delay_ns for edge in crossing) >= CONFIG.overheads.thread_wake_ns
