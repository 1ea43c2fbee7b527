"""`changed`: a graph and its durations after changes of durations and dependencies.

Changes are made in this order, whatever the order in which they were given: attention kernels,
stated lengths, factors (which multiply), delays (which add up), fusions, graphs, waits, data
loading. So changes commute, but for two that state the same: there the one given last wins.
Durations are rounded once, after the last change.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from foretrace.base import ScenarioError
from foretrace.cost import CostModel, Costs
from foretrace.graph import ExecutionGraph
from foretrace.whatif.arrange.arranged import Arranged
from foretrace.whatif.changes.attention import attention_replaced
from foretrace.whatif.changes.change import (
    AttentionKernel,
    Delayed,
    DurationChange,
    Fused,
    Graphed,
    Loading,
    SlowerNetwork,
    Takes,
    Times,
    Unsynchronised,
)
from foretrace.whatif.changes.durations import delayed, loaded, loading_nodes, multiplied, taken
from foretrace.whatif.changes.fusing import check_fusible, fused
from foretrace.whatif.changes.graphs import check_graphable, graphed
from foretrace.whatif.changes.matching import selected
from foretrace.whatif.changes.synchronisation import check_calls, unsynchronised
from foretrace.whatif.changes.transfers import transfers_of
from foretrace.whatif.changes.working import Working
from foretrace.whatif.recorded.program import Program

_Kind = TypeVar("_Kind")


def changed(
    arranged: Arranged,
    costs: Costs,
    changes: Sequence[DurationChange],
    *,
    program: Program | None = None,
    model: CostModel | None = None,
) -> tuple[Arranged, Costs]:
    """The job and its costs with all changes made.

    Args:
        arranged: the job.
        costs: of its nodes.
        changes: in any order.
        program: says which transfers belong to a group of the plan; without it, names of
            process groups alone do.
        model: costs attention kernels of the other kind.

    Raises:
        ScenarioError: if a change names nothing in this job, or needs what is not stated.
    """
    for change in changes:
        _check(arranged, change, program)
    effective = [change for change in changes if not _is_nothing(change)]
    if not effective:
        return arranged, costs
    working = Working.of(arranged, costs)
    for replacement in _of(effective, AttentionKernel):
        working = attention_replaced(working, replacement, model)
    for stated in _of(effective, Takes):
        working = taken(working, stated)
    networks = _sorted(_of(effective, SlowerNetwork))
    working = multiplied(working, [*_sorted(_of(effective, Times)), *networks], program)
    working = delayed(working, [*_sorted(_of(effective, Delayed)), *networks], program)
    for fusion in _sorted(_of(effective, Fused)):
        working = fused(working, fusion)
    for graph in _sorted(_of(effective, Graphed)):
        working = graphed(working, graph)
    for wait in _sorted(_of(effective, Unsynchronised)):
        working = unsynchronised(working, wait)
    loadings = _of(effective, Loading)
    lengths = [one for one in loadings if one.duration_ns is not None]
    factors = _sorted([one for one in loadings if one.duration_ns is None])
    working = loaded(working, [*lengths, *factors])
    return working.arranged, working.costs()


def _of(changes: Sequence[DurationChange], kind: type[_Kind]) -> list[_Kind]:
    return [change for change in changes if isinstance(change, kind)]


def _sorted(changes: Sequence[_Kind]) -> list[_Kind]:
    """In an order that does not depend on the one given: products of floats depend on it."""
    return sorted(changes, key=repr)


def _is_nothing(change: DurationChange) -> bool:
    """Whether a change states that nothing changes."""
    match change:
        case Times():
            return change.factor == 1
        case Delayed():
            return change.extra_ns == 0
        case SlowerNetwork():
            return change.factor == 1 and change.extra_ns == 0
        case Loading():
            return change.duration_ns is None and change.factor == 1
        case _:
            return False


def _check(arranged: Arranged, change: DurationChange, program: Program | None) -> None:
    """Refuse what names nothing in the job, or what no duration can be."""
    graph = arranged.graph
    _check_numbers(change)
    match change:
        case SlowerNetwork():
            transfers_of(arranged, change.groups, program)
        case Loading():
            loading_nodes(graph, change.ranks)
        case Unsynchronised():
            check_calls(graph, change)
        case Fused():
            _check_device(graph, change)
            selected(graph, change.selection)
            check_fusible(graph, change)
        case Graphed():
            _check_device(graph, change)
            selected(graph, change.selection)
            check_graphable(graph, change)
        case AttentionKernel():
            pass  # finds its own kernels, and says what it found
        case _:
            selected(graph, change.selection)


def _check_device(graph: ExecutionGraph, change: Fused | Graphed) -> None:
    if not graph.has_device:
        what = "fused" if isinstance(change, Fused) else "launched as graphs"
        raise ScenarioError(
            f"no kernels can be {what} where the host computes: this recording has no device. "
            "State how much faster its operators become, as in Speed(1.2, Selection(...))."
        )


def _check_numbers(change: DurationChange) -> None:
    match change:
        case Times() | Fused() | SlowerNetwork() | Loading():
            if not 0 <= change.factor < float("inf"):
                raise ScenarioError(f"a factor must be 0 or more, got {change.factor}")
        case Takes():
            if change.duration_ns < 0:
                raise ScenarioError(f"a duration must be 0 or more, got {change.duration_ns} ns")
        case Unsynchronised():
            if change.steps < 0:
                raise ScenarioError(f"steps must be 0 or more, got {change.steps}")
        case _:
            pass
    if isinstance(change, Loading) and (change.duration_ns or 0) < 0:
        raise ScenarioError(f"a duration must be 0 or more, got {change.duration_ns} ns")
