"""Recorded pieces as steps of units."""

from __future__ import annotations

import numpy as np

from foretrace.whatif.rearrange.recorded_units import PieceRole, RankRun, RecordedUnit, parsed
from foretrace.whatif.rearrange.unit_index import UnitIndex
from tests.truth import JobConfig
from tests.whatif.rearrange.jobs import program_under

CONFIG = JobConfig(dp=2, pp=2, num_layers=2, num_microbatches=3)


def run_of(rank: int) -> RankRun:
    """What one rank ran."""
    return parsed(program_under(CONFIG))[rank]


def words(unit: RecordedUnit) -> str:
    """A unit in words: its roles before, its layers, its roles behind them."""
    before = [entry.role.value for entry in unit.before]
    layers = [
        f"{slot.layer}{'+' * sum(each.role is PieceRole.BUCKET for each in slot.entries)}"
        for slot in unit.slots
    ]
    after = [entry.role.value for entry in unit.after]
    letter = "F" if unit.is_forward else "B"
    return f"{letter}{unit.microbatch}: {' '.join((*before, *layers, *after))}"


def test_units_of_the_first_stage_stand_in_their_schedule() -> None:
    units = run_of(0).steps[1].units

    assert [words(unit) for unit in units] == [
        "F0: end 0 1 send",
        "F1: end 0 1 send",
        "B0: receive begin 1 0 end return",
        "F2: end 0 1 send",
        "B1: receive begin 1 0 end return",
        "B2: receive begin 1+ 0+ reduced end return",
    ]


def test_units_of_the_last_stage_stand_in_their_schedule() -> None:
    units = run_of(2).steps[0].units

    assert [words(unit) for unit in units] == [
        "F0: receive 2 3 end",
        "B0: begin 3 2 return send",
        "F1: receive 2 3 end",
        "B1: begin 3 2 return send",
        "F2: receive 2 3 end",
        "B2: begin 3+ 2+ reduced return send",
    ]


def test_every_node_of_every_piece_is_somewhere_once() -> None:
    program = program_under(CONFIG)

    for rank, run in parsed(program).items():
        found = [piece.nodes for piece in (*run.opening, *run.closing)]
        for step in run.steps:
            found += [piece.nodes for piece in (*step.prologue, *step.epilogue)]
            found += [entry.piece.nodes for unit in step.units for entry in unit.entries]
        recorded = np.concatenate([piece.nodes for piece in program.pieces_by_rank[rank]])
        assert np.concatenate(found).tolist() != []
        assert sorted(np.concatenate(found).tolist()) == sorted(recorded.tolist())


def test_the_order_of_a_rank_is_its_order_of_issue() -> None:
    program = program_under(CONFIG)
    run = parsed(program)[0]

    found = [piece.nodes for piece in run.opening]
    for step in run.steps:
        found += [piece.nodes for piece in step.prologue]
        found += [entry.piece.nodes for unit in step.units for entry in unit.entries]
        found += [piece.nodes for piece in step.epilogue]
    found += [piece.nodes for piece in run.closing]

    recorded = np.concatenate([piece.nodes for piece in program.pieces_by_rank[0]])
    assert np.concatenate(found).tolist() == recorded.tolist()


def test_recomputed_layers_belong_to_their_backward_pass() -> None:
    config = JobConfig(num_layers=2, num_microbatches=1, recompute="hooks")

    (forward, backward) = parsed(program_under(config))[0].steps[0].units

    assert words(forward) == "F0: end 0 1 end"
    assert words(backward) == "B0: begin 1 0 end return"
    phases = {entry.piece.phase.name for entry in backward.slots[0].entries}
    assert phases == {"RECOMPUTE", "BACKWARD"}


def test_forward_passes_alone_are_units() -> None:
    config = JobConfig(num_layers=2, num_microbatches=2, has_backward=False)

    unit_index = UnitIndex(program_under(config))

    assert not unit_index.has_backward
    units = unit_index.runs[0].steps[0].units
    assert [(unit.is_forward, unit.microbatch) for unit in units] == [(True, 0), (True, 1)]
