"""Which operators do the work of a thread."""

from __future__ import annotations

import pytest

from foretrace.graph import NodeKind
from tests.graph.recorded import PROCESS, Event, file_text, recording_of_files


def operator(name: str, at: int, takes: int, shape: str = "[[8, 8]]") -> Event:
    args = {"Input Dims": shape, "Input type": ["float"]}
    event = {"ph": "X", "cat": "cpu_op", "name": name, "pid": PROCESS, "tid": PROCESS}
    return {**event, "ts": at, "dur": takes, "args": args}


def product(at: int, copy_takes: int) -> list[Event]:
    """A product of 100 us that copies its bias first."""
    outer = operator("aten::addmm", at, 100 + copy_takes)
    return [outer, operator("aten::copy_", at + 5, copy_takes)]


@pytest.mark.parametrize("held_up", [0, 1, 2, 3, 4])
def test_a_call_in_which_a_small_part_was_held_up_is_work_like_its_equals(held_up: int) -> None:
    copies = [10] * 5
    copies[held_up] = 900
    events = [event for at, took in enumerate(copies) for event in product(at * 2000, took)]

    graph = recording_of_files([file_text(events)]).graph

    names = [graph.names[name] for name in graph.name[graph.kind == NodeKind.OPERATOR]]
    assert names == ["aten::addmm"] * 5


def test_calls_of_other_shapes_are_told_apart() -> None:
    small = [operator("aten::addmm", 0, 50, "[[2, 2]]"), operator("aten::copy_", 5, 40, "[[2]]")]
    events = [*small, *product(1000, 10), *product(2000, 10)]

    graph = recording_of_files([file_text(events)]).graph

    names = [graph.names[name] for name in graph.name[graph.kind == NodeKind.OPERATOR]]
    assert names == ["aten::copy_", "aten::addmm", "aten::addmm"]
