"""Hypothesis strategies: small generated jobs, and small programs written as instructions."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.truth import FileStyle, Job, JobConfig, quiet, single_kernel_layer
from tests.truth.small import (
    COMPUTE_STREAM,
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

STREAMS = (COMPUTE_STREAM, 9, 13)

file_styles = st.builds(
    FileStyle,
    sync_events=st.booleans(),
    collective_arguments=st.booleans(),
    sequence_numbers=st.booleans(),
    whole_microseconds=st.booleans(),
    external_is_correlation=st.booleans(),
    device_annotations=st.booleans(),
    flows=st.booleans(),
)


@st.composite
def job_configs(draw: st.DrawFn, *, max_ranks: int = 4) -> JobConfig:
    """Small training jobs with every feature on or off; at most `max_ranks` ranks."""
    sizes = [
        (tp, dp, pp)
        for tp in (1, 2, 3)
        for dp in (1, 2, 3)
        for pp in (1, 2)
        if tp * dp * pp <= max_ranks
    ]
    tp, dp, pp = draw(st.sampled_from(sizes))
    num_layers = draw(st.integers(1, 3))
    return JobConfig(
        seed=draw(st.integers(0, 2**31)),
        tp=tp,
        dp=dp,
        pp=pp,
        num_steps=draw(st.integers(1, 2)),
        num_layers=num_layers,
        layers_per_bucket=draw(st.integers(1, num_layers)),
        num_microbatches=draw(st.integers(1, 3)),
        schedule=draw(st.sampled_from(("1f1b", "gpipe"))),
        has_backward=draw(st.booleans()),
        has_ends=draw(st.booleans()),
        loss_item=draw(st.booleans()),
        copy_stream=draw(st.booleans()),
        cuda_graph=draw(st.booleans()),
        ring_exchange=draw(st.booleans()),
        queue_depth=draw(st.sampled_from((4, 16, 1024))),
        contention=draw(st.sampled_from((1.0, 1.25, 2.0))),
        jitter_ns=draw(st.sampled_from((0, 5_000))),
        noise=draw(st.booleans()),
        style=draw(file_styles),
    )


_streams = st.sampled_from(STREAMS)
_durations = st.integers(0, 2_000_000)
_local: st.SearchStrategy[Instruction] = st.one_of(
    st.builds(Launch, _durations, _streams),
    st.builds(Depend, _streams, _streams),
    st.builds(Synchronize, st.none() | _streams),
    st.builds(Think, _durations),
    st.builds(SwitchThread),
    st.builds(LaunchGraph, st.lists(_durations, min_size=1, max_size=4).map(tuple)),
)
_joint: st.SearchStrategy[Instruction] = st.one_of(
    st.builds(Reduce, st.integers(0, 1_000_000), st.booleans()),
    st.builds(Exchange, st.integers(0, 1_000_000)),
)


@st.composite
def small_programs(draw: st.DrawFn, *, max_ranks: int = 3) -> tuple[tuple[Instruction, ...], ...]:
    """One program per rank: each its own work between the communications that all share."""
    num_ranks = draw(st.integers(1, max_ranks))
    meetings = draw(st.lists(_joint, max_size=3)) if num_ranks > 1 else []
    programs = []
    for _ in range(num_ranks):
        program = list(draw(st.lists(_local, min_size=1, max_size=8)))
        for meeting in meetings:
            program += [meeting, *draw(st.lists(_local, max_size=4))]
        programs.append(tuple(program))
    return tuple(programs)


@st.composite
def small_jobs(draw: st.DrawFn, *, max_ranks: int = 3, is_quiet: bool = False) -> Job:
    """A run of small programs; quiet ones have no overhead, jitter or transfer time."""
    programs = draw(small_programs(max_ranks=max_ranks))
    config = JobConfig(
        seed=draw(st.integers(0, 2**31)),
        tp=len(programs),
        num_steps=draw(st.integers(1, 2)),
        queue_depth=draw(st.sampled_from((2, 1024))),
        noise=draw(st.booleans()),
        style=draw(file_styles),
    )
    return small_job(programs, quiet(config) if is_quiet else config)


@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[int, ...], Job]:
    """Kernel durations on one stream, and their job without overheads."""
    durations = tuple(draw(st.lists(st.integers(1, 1_000_000), min_size=1, max_size=20)))
    program = tuple(Launch(each) for each in durations)
    return durations, small_job((program,), quiet(JobConfig(num_steps=1, noise=False)))


@st.composite
def forks(draw: st.DrawFn) -> tuple[int, tuple[int, ...], int, Job]:
    """First kernel, parallel branches on streams of their own, last kernel, and their job."""
    duration = st.integers(1, 1_000_000)
    first, last = draw(duration), draw(duration)
    branches = tuple(draw(st.lists(duration, min_size=1, max_size=6)))
    program: list[Instruction] = [Launch(first)]
    for index, each in enumerate(branches):
        program += [Depend(COMPUTE_STREAM, 50 + index), Launch(each, 50 + index)]
    program += [Depend(50 + index, COMPUTE_STREAM) for index in range(len(branches))]
    program.append(Launch(last))
    job = small_job((tuple(program),), quiet(JobConfig(num_steps=1, noise=False)))
    return first, branches, last, job


def pipeline_config(
    *, stages: int, microbatches: int, forward_ns: int, backward_ns: int, schedule: str
) -> JobConfig:
    """A pipeline of equal stages with no other cost: its step has a closed form."""
    return quiet(
        JobConfig(
            pp=stages,
            num_microbatches=microbatches,
            schedule="1f1b" if schedule == "1f1b" else "gpipe",
            num_layers=1,
            layer=single_kernel_layer(forward_ns, backward_ns),
            has_ends=False,
            num_optimizer_kernels=0,
            loss_item=False,
            noise=False,
            num_steps=1,
        )
    )
