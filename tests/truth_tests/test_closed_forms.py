"""The generator's engine against answers that can be written down by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import strategies
from tests.truth import Job, JobConfig, Link, make_job, quiet
from tests.truth.engine import contended, longest_path
from tests.truth.job import drawn_ns
from tests.truth.small import (
    Depend,
    Exchange,
    Instruction,
    Launch,
    LaunchGraph,
    Reduce,
    SwitchThread,
    Synchronize,
    Think,
    small_job,
)

QUIET = quiet(JobConfig(num_steps=1, noise=False))


def job_of(*programs: tuple[Instruction, ...], config: JobConfig = QUIET) -> Job:
    return small_job(programs, replace(config, tp=len(programs)))


@given(strategies.chains())
@settings(max_examples=30, deadline=None)
def test_chain_takes_the_sum(case: tuple[tuple[int, ...], Job]) -> None:
    durations, job = case

    assert job.step_ns.tolist() == [[sum(durations)]]


@given(strategies.forks())
@settings(max_examples=30, deadline=None)
def test_fork_and_join_take_the_longest_branch(
    case: tuple[int, tuple[int, ...], int, Job],
) -> None:
    first, branches, last, job = case

    assert job.step_ns.tolist() == [[first + max(branches) + last]]


def test_members_of_a_collective_leave_together_and_wait_for_the_last() -> None:
    config = replace(QUIET, tp_link=Link(latency_ns=70, bytes_per_ns=float("inf")))

    job = job_of((Launch(100), Reduce()), (Launch(300), Reduce()), config=config)

    members = job.collectives[0].members
    assert [member.arrival_ns for member in members] == [100, 300]
    assert [member.wait_ns for member in members] == [200, 0]
    assert [member.transfer_ns for member in members] == [70, 70]
    assert job.step_ns.tolist() == [[370], [370]]


def test_an_exchange_waits_for_its_neighbours_only() -> None:
    programs = tuple((Launch(each), Exchange()) for each in (100, 200, 300, 400, 900))

    job = job_of(*programs)

    ends = [member.arrival_ns + member.wait_ns for member in job.collectives[0].members]
    assert ends == [900, 300, 400, 900, 900]


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 1), (2, 4), (4, 8), (4, 2), (8, 16)])
def test_equal_stages_take_the_pipeline_formula(
    schedule: str, stages: int, microbatches: int
) -> None:
    config = strategies.pipeline_config(
        stages=stages,
        microbatches=microbatches,
        forward_ns=1_000,
        backward_ns=1_700,
        schedule=schedule,
    )

    job = make_job(config)

    expected = (microbatches + stages - 1) * (1_000 + 1_700)
    assert job.step_ns[0].tolist() == [expected]
    assert int(job.times.end_ns.max()) == expected


def test_a_launch_blocks_while_the_queue_is_full() -> None:
    program = tuple(Launch(1_000) for _ in range(10))

    job = job_of(program, config=replace(QUIET, queue_depth=3))

    launches = [call for call in job.calls(0) if call.name == "cudaLaunchKernel"]
    assert [call.end_ns for call in launches] == [0, 0, 0, *range(1_000, 8_000, 1_000)]
    assert sum(call.waited_ns for call in launches) == 7_000
    assert job.step_ns.tolist() == [[10_000]]


def test_synchronisation_makes_the_host_wait_for_the_stream_it_names() -> None:
    job = job_of((Launch(500), Launch(90, 9), Synchronize(9), Think(20), Synchronize()))

    synchronised = [call.end_ns for call in job.calls(0) if call.name.endswith("Synchronize")]
    assert synchronised == [90, 500, 500]  # the last is the profiler's own


def test_the_other_thread_wakes_late_and_the_main_thread_waits() -> None:
    costs = replace(QUIET.overheads, thread_wake_ns=5)

    job = job_of(
        (Think(10), SwitchThread(), Think(30), Synchronize(), SwitchThread(), Synchronize()),
        config=replace(QUIET, overheads=costs),
    )

    assert [call.start_ns for call in job.calls(0)][:2] == [45, 50]
    assert len({call.thread for call in job.calls(0)}) == 2


def test_one_graph_launch_owns_many_kernels() -> None:
    job = job_of((LaunchGraph((1, 2, 3)),))

    operations = list(job.operations(0))
    assert len({each.correlation for each in operations}) == 1
    assert [each.end_ns for each in operations] == [1, 3, 6]


def test_compute_is_slower_only_while_communication_runs() -> None:
    link = Link(latency_ns=400, bytes_per_ns=float("inf"))
    config = replace(QUIET, tp_link=link, contention=2.0)
    program = (Reduce(is_awaited=False), Launch(1_000))

    job = job_of(program, program, config=config)

    kernel = list(job.operations(0))[1]
    assert kernel.end_ns == 400 + (1_000 - 400 // 2)


def test_an_event_stands_for_what_was_launched_before_it_was_recorded() -> None:
    job = job_of((Launch(100), Depend(7, 9), Launch(700), Launch(10, 9)))

    assert [each.end_ns for each in job.operations(0)] == [100, 800, 110]


def test_waits_pass_through_a_stream_without_operations() -> None:
    job = job_of((Launch(100), Depend(7, 9), Depend(9, 13), Launch(10, 13)))

    assert [each.end_ns for each in job.operations(0)] == [100, 110]


def test_programs_that_do_not_meet_are_refused() -> None:
    with pytest.raises(ValueError, match="lacks ranks"):
        job_of((Reduce(),), (Launch(1),))


@given(strategies.small_jobs())
@settings(max_examples=30, deadline=None)
def test_both_engines_agree_without_contention(job: Job) -> None:
    duration_ns, delay_ns = drawn_ns(job.config, job.structure)

    plain = longest_path(job.structure, duration_ns, delay_ns)
    event_driven = contended(job.structure, duration_ns, delay_ns, 1.0)

    np.testing.assert_array_equal(plain.start_ns, event_driven.start_ns)
    np.testing.assert_array_equal(plain.end_ns, event_driven.end_ns)


@given(strategies.job_configs(), st.integers(0, 3))
@settings(max_examples=15, deadline=None)
def test_every_edge_is_kept(config: JobConfig, salt: int) -> None:
    job = make_job(replace(config, seed=config.seed + salt))

    structure, times = job.structure, job.times
    for node in range(structure.num_nodes):
        edges = slice(structure.first_edge[node], structure.first_edge[node + 1])
        ready = times.end_ns[structure.predecessor[edges]] + structure.lag_ns[edges]
        assert times.start_ns[node] >= ready.max(initial=0)
        assert times.end_ns[node] >= times.start_ns[node]
