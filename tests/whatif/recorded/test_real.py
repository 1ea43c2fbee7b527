"""Programs of real recordings."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from foretrace.graph import Part, Recording, build_recording
from foretrace.trace import load_traces
from foretrace.whatif import Program, program_of
from foretrace.whatif.recorded.program import GROUPS
from foretrace.workload import Group
from tests.whatif.recorded.recordings import check_pieces


@dataclass(frozen=True)
class Expected:
    """What is known of a recording."""

    folder: str
    degrees: tuple[int, int, int]  # tp, dp, pp
    num_layers: int
    group: Group | None  # of all its collectives
    notes: tuple[str, ...] = ()
    pattern: str = "*.json.gz"


PUBLIC = {
    "megatron-tp8": Expected(
        "megatron-tp8", (8, 1, 1), 40, Group.TENSOR, ("forward passes only",), "kineto*"
    ),
    "resnet": Expected("a100-resnet-ddp2-rank0", (1, 2, 1), 16, Group.DATA),
    "dlrm": Expected(
        "a100-dlrm-rank3-of-8",
        (1, 8, 1),
        24,
        Group.DATA,
        ("sizes of gradient buckets are not recorded",),
    ),
    "v100-ddp2": Expected(
        "v100-ddp2-rank1",
        (1, 2, 1),
        4,
        Group.DATA,
        ("sizes of gradient buckets are not recorded",),
    ),
    "sync events": Expected(
        "cuda-sync-events/cuda_event_sync_multi_stream",
        (1, 1, 1),
        3,
        None,
        ("forward passes only",),
    ),
}


@cache
def recording_in(folder: Path, pattern: str) -> Recording:
    """What the files in a folder give."""
    return build_recording(load_traces(sorted(folder.glob(pattern))))


@pytest.fixture(params=list(PUBLIC.values()), ids=list(PUBLIC))
def expected(request: pytest.FixtureRequest) -> Expected:
    """A public recording."""
    found: Expected = request.param
    return found


@pytest.fixture
def recording(data_dir: Path, expected: Expected) -> Recording:
    """The same, loaded."""
    return recording_in(data_dir / "traces" / expected.folder, expected.pattern)


def test_pieces_hold_every_node_in_order(recording: Recording) -> None:
    check_pieces(recording)


def test_plans_are_those_of_the_public_recordings(recording: Recording, expected: Expected) -> None:
    program = program_of(recording)

    plan = program.plan
    assert (plan.tensor, plan.data, plan.pipeline) == expected.degrees
    assert plan.num_microbatches == 1
    assert [len(own) for own in program.layers_of_stage] == [expected.num_layers]
    assert groups_in(program) == ({expected.group} - {None})
    assert set(expected.notes) <= set(program.notes)
    assert program.doubts == ()


def groups_in(program: Program) -> set[Group | None]:
    """Groups of its collectives."""
    return {GROUPS[each] for each in program.group_of_collective.tolist()}


def test_a_small_llama_on_processors_is_divided_as_its_program_says(repository: Path) -> None:
    recording = recording_in(repository / "examples/cpu-llama-tp2-dp2/traces", "*kineto*")

    program = program_of(recording)

    check_pieces(recording)
    assert (program.plan.tensor, program.plan.data) == (2, 2)
    assert program.layers_of_stage == ((0, 1, 2),)
    assert program.plan.overlap.gradients
    found = Counter(GROUPS[each] for each in program.group_of_collective.tolist())
    # Two all-reduces forward and two backward, of 3 layers, 2 groups and 4 steps; three buckets
    # and a loss of each of 2 groups and 4 steps.
    assert found == {Group.TENSOR: 4 * 3 * 2 * 4, Group.DATA: 4 * 2 * 4}


def test_bucket_pieces_between_those_of_a_layer_stay_pieces_of_their_own(
    repository: Path,
) -> None:
    recording = recording_in(repository / "examples/cpu-llama-tp2-dp2/traces", "*kineto*")

    pieces = program_of(recording).pieces_by_rank[0]

    buckets = [place for place, piece in enumerate(pieces) if piece.part == Part.BUCKET]
    assert any(
        pieces[place - 1].part == pieces[place + 1].part == Part.LAYER
        and pieces[place - 1].layer == pieces[place + 1].layer
        for place in buckets
    )
