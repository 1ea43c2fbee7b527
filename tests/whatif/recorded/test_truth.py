"""The plan of generated jobs, read off their files."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import cache
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from foretrace.graph import Collectives, Part, Phase, Recording, build_recording
from foretrace.trace import load_traces
from foretrace.whatif import Program, program_of
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP, Coordinates
from foretrace.workload import Axis, Group, Recompute, Sharding
from tests.truth import Job, JobConfig, acceptance_config, make_job, write
from tests.whatif.recorded.recordings import recording_of

GROUP_OF_LINK = {
    "tp": Group.TENSOR,
    "dp": Group.DATA,
    "pp": Group.PIPELINE,
    "world": Group.ALL,
    "ring": Group.DATA,
}
EIGHT = replace(acceptance_config(8), num_steps=1)
SMALL = JobConfig(num_layers=2, num_steps=1)
CONFIGS = [
    replace(SMALL, tp=2, dp=2, pp=2, num_microbatches=2),
    replace(SMALL, tp=4, pp=2, num_microbatches=2, schedule="gpipe"),
    replace(SMALL, dp=4),
    replace(SMALL, dp=4, num_microbatches=4),
    replace(SMALL, pp=4),
    replace(SMALL, pp=4, num_microbatches=2),
    replace(SMALL, pp=4, num_microbatches=4),
    replace(SMALL, pp=4, num_microbatches=4, schedule="gpipe"),
    replace(SMALL, tp=2, pp=2, num_microbatches=2, recompute="reentrant"),
    replace(SMALL, tp=2, dp=2, num_microbatches=2, recompute="hooks"),
    replace(SMALL, tp=2, dp=2, num_microbatches=2, layer_marks="annotations"),
    replace(SMALL, tp=2, dp=2, num_microbatches=2, ring_exchange=True, layers_per_bucket=2),
    replace(SMALL, tp=2, has_backward=False),
    EIGHT,
]


@cache
def job_of(config: JobConfig) -> Job:
    """The job, made once."""
    return make_job(config)


def name_of(config: JobConfig) -> str:
    """`2x2x2 m4 gpipe`."""
    words = [f"{config.tp}x{config.dp}x{config.pp} m{config.num_microbatches}", config.schedule]
    marks = "" if config.has_backward else "forward"
    return " ".join(filter(None, [*words, config.recompute, config.layer_marks, marks]))


@pytest.fixture(params=CONFIGS, ids=name_of)
def config(request: pytest.FixtureRequest) -> JobConfig:
    """A generated job."""
    made: JobConfig = request.param
    return made


@pytest.fixture
def program(config: JobConfig) -> Program:
    """Its program."""
    return program_of(recording_of(config))


def test_degrees_batch_and_schedule_are_those_of_the_job(
    config: JobConfig, program: Program
) -> None:
    plan = program.plan

    assert (plan.tensor, plan.data, plan.pipeline) == (config.tp, config.dp, config.pp)
    assert (plan.context, plan.expert, plan.num_chunks) == (1, 1, 1)
    assert plan.num_microbatches == config.num_microbatches
    assert plan.schedule == config.schedule
    assert plan.sharding is Sharding.NONE
    assert plan.recompute is (Recompute.FULL if config.recompute else Recompute.NONE)
    assert program.doubts == ()


def test_ranks_stand_where_the_job_put_them(config: JobConfig, program: Program) -> None:
    expected = {}
    for rank in range(config.num_ranks):
        rest, tensor = divmod(rank, config.tp)
        pipeline, data = divmod(rest, config.dp)
        expected[rank] = Coordinates(tensor=tensor, data=data, pipeline=pipeline)

    assert program.coordinates_by_rank == expected


def test_each_stage_runs_its_own_layers(config: JobConfig, program: Program) -> None:
    layers = range(config.num_layers * config.pp)

    assert tuple(chain(*program.layers_of_stage)) == tuple(layers)
    assert {len(own) for own in program.layers_of_stage} == {config.num_layers}


def test_each_collective_is_of_the_group_that_ran_it(config: JobConfig, program: Program) -> None:
    job = job_of(config)
    expected = Counter(
        (GROUP_OF_LINK[each.link], frozenset(member.rank for member in each.members))
        for each in job.collectives
    )
    if config.tp == config.pp == 1:  # then all ranks are those of dp, whatever is said
        expected = Counter((Group.DATA, ranks) for _, ranks in expected.elements())

    found = Counter(
        (GROUPS[group], frozenset(each.ranks))
        for each, group in zip(
            program.graph.collectives, program.group_of_collective.tolist(), strict=True
        )
    )

    if config.tp == config.pp == 1:
        found = Counter((Group.DATA, ranks) for _, ranks in found.elements())
    assert NO_GROUP not in program.group_of_collective.tolist()
    assert found == expected


@pytest.mark.parametrize(
    "config", [each for each in CONFIGS if each.dp > 1 and each.has_backward], ids=name_of
)
def test_buckets_are_read_off_the_reductions(config: JobConfig) -> None:
    largest = max(each.num_bytes for each in job_of(config).collectives if each.link == "dp")

    plan = program_of(recording_of(config)).plan

    assert plan.bucket_bytes == largest
    assert plan.overlap.gradients
    assert plan.precision.reduced == "fp32"


def test_one_bucket_behind_everything_is_no_overlap() -> None:
    config = replace(SMALL, dp=2, layers_per_bucket=2, has_ends=False)

    plan = program_of(recording_of(config)).plan

    assert not plan.overlap.gradients


def test_ranks_without_gradients_are_copies_and_that_is_said() -> None:
    program = program_of(recording_of(replace(SMALL, dp=2, has_backward=False)))

    assert program.plan.data == 2
    assert any("data-parallel copies" in note for note in program.notes)
    assert "forward passes only" in program.notes


def test_one_rank_alone_shows_the_groups_it_is_in(tmp_path: Path) -> None:
    job = make_job(replace(SMALL, tp=2, dp=2))
    paths = write(job, tmp_path, ranks=(2,))

    program = program_of(build_recording(load_traces(paths)))

    assert (program.plan.tensor, program.plan.data) == (2, 2)
    assert program.coordinates_by_rank == {2: Coordinates(tensor=0, data=1)}


def test_other_orders_of_axes_are_recognised() -> None:
    recording = recording_of(replace(SMALL, tp=2, dp=2))
    swapped = {0: 0, 1: 2, 2: 1, 3: 3}
    graph = recording.graph
    renamed = replace(
        graph,
        rank=np.where(graph.rank < 0, graph.rank, np.array([0, 2, 1, 3], np.int32)[graph.rank]),
        lanes=tuple(replace(lane, rank=swapped[lane.rank]) for lane in graph.lanes),
        collectives=Collectives.of(
            [
                replace(
                    each,
                    ranks=tuple(sorted(swapped[rank] for rank in each.ranks)),
                    recorded_ranks=tuple(sorted(swapped[rank] for rank in each.recorded_ranks)),
                )
                for each in graph.collectives
            ]
        ),
    )

    program = program_of(replace(recording, graph=renamed))

    assert program.plan.order.index(Axis.DATA) < program.plan.order.index(Axis.TENSOR)
    assert {rank: each.data for rank, each in program.coordinates_by_rank.items()} == {
        0: 0,
        1: 1,
        2: 0,
        3: 1,
    }
    assert program.doubts == ()


def with_norms_as(recording: Recording, part: Part, phase: Phase) -> Recording:
    """The small all-reduces of all ranks, taken for part of something else."""
    graph = recording.graph
    small = [place for place, each in enumerate(graph.collectives) if each.num_bytes == 4]
    is_small = np.isin(graph.collective, small)
    return replace(
        recording,
        graph=replace(
            graph,
            part=np.where(is_small, part, graph.part).astype(np.uint8),
            phase=np.where(is_small, phase, graph.phase).astype(np.uint8),
        ),
    )


def test_statistics_of_a_batch_inside_layers_are_no_tensor_parallelism() -> None:
    recording = recording_of(replace(SMALL, dp=2))

    program = program_of(with_norms_as(recording, Part.LAYER, Phase.FORWARD))

    assert (program.plan.tensor, program.plan.data) == (1, 2)


def test_gradients_of_what_tensor_ranks_share_are_no_data_parallelism() -> None:
    recording = recording_of(replace(SMALL, tp=2))

    program = program_of(with_norms_as(recording, Part.BUCKET, Phase.BACKWARD))

    assert (program.plan.tensor, program.plan.data) == (2, 1)
    assert program.plan.bucket_bytes is None
