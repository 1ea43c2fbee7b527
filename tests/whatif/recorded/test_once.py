from __future__ import annotations

import pickle
from dataclasses import replace

from foretrace.whatif import Program, program_of
from tests.whatif.made import recording_of_layers


class Made:
    """Something made of a program."""

    def __init__(self, program: Program) -> None:
        self.num_layers = sum(map(len, program.layers_of_stage))


def test_what_is_made_of_a_program_is_made_once() -> None:
    program = program_of(recording_of_layers(2))

    first, second = program.once(Made), program.once(Made)

    assert first is second
    assert first.num_layers == 2


def test_another_program_keeps_nothing_of_the_first() -> None:
    program = program_of(recording_of_layers(2))
    first = program.once(Made)

    other = replace(program, layers_of_stage=((0,),))

    assert other.once(Made).num_layers == 1
    assert program.once(Made) is first


def test_what_was_made_stays_behind_when_a_program_goes_to_another_process() -> None:
    program = program_of(recording_of_layers(2))
    before = len(pickle.dumps(program))
    program.once(Made)

    sent = pickle.dumps(program)

    assert len(sent) == before
    assert pickle.loads(sent).once(Made).num_layers == 2  # noqa: S301  our own bytes
