"""`Collectives`: what many collectives share is kept once, and each is what it was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.graph import Collective, Collectives

SUM = Collective("allreduce", "tp", (0, 1), (0, 1), 0, 64, "bf16", is_transfer_estimated=False)
GATHER = replace(SUM, name="allgather", ranks=(0, 2), recorded_ranks=(0,))
MANY = Collectives((SUM, GATHER), np.array([0, 1, 0], np.int32), np.array([0, 0, 1], np.int32))


def test_each_has_its_own_position() -> None:
    assert list(MANY) == [SUM, GATHER, replace(SUM, position=1)]
    assert MANY[2] == replace(SUM, position=1)
    assert len(MANY) == 3


def test_collectives_made_one_by_one_are_equal() -> None:
    assert Collectives.of(list(MANY)) == MANY
    assert Collectives.of(MANY) is MANY
    assert hash(Collectives.of(list(MANY))) == hash(MANY)
    assert Collectives.of([SUM]) != MANY


def test_some_are_taken_by_slice_mask_and_place() -> None:
    assert MANY[1:] == [GATHER, replace(SUM, position=1)]
    assert MANY[np.array([True, False, True])] == [SUM, replace(SUM, position=1)]
    assert MANY[np.array([2, 0])] == [replace(SUM, position=1), SUM]


def test_what_is_read_of_a_make_is_read_once() -> None:
    asked = []

    def read(one: Collective) -> str:
        asked.append(one.name)
        return one.name

    assert MANY.each(read) == ["allreduce", "allgather", "allreduce"]
    assert asked == ["allreduce", "allgather"]


def test_what_no_collective_is_made_of_is_not_read() -> None:
    assert MANY[2:].each(lambda one: one.name) == ["allreduce"]
    turned = Collectives((SUM, GATHER), np.array([1, 0], np.int32), np.array([0, 0], np.int32))
    order: dict[str, int] = {}
    turned.each(lambda one: order.setdefault(one.name, len(order)))
    assert order == {"allgather": 0, "allreduce": 1}
