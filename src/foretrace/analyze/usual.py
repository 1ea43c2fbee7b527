"""How long work usually takes: the same place of a step on other ranks and in other steps.

A call site is a call with its operator and the calls before and after it on its thread; its place
is the how-manieth of its kind in the step. Alike programs have alike places, so a duration is held
against the same place elsewhere, or, where there are too few, against the same call site, or call.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.batches import alike_steps
from foretrace.base import Float64s, Int64s, begins_run, lower_medians, numbered_rows
from foretrace.graph import ExecutionGraph, NodeKind

MIN_ALIKE = 5  # fewer durations have no middle that a single long one leaves where it is
_MAX_SPREAD = 0.35  # of ln: half of a group are within 42 % of its middle, or it is no one thing


@dataclass(frozen=True)
class Middle:
    """The middle of groups of durations, told for each of them."""

    count: Int64s  # int64[rows], of its group, itself among them
    usual_ns: Int64s  # int64[rows], lower median of the group
    spread: Float64s  # float64[rows], median of |ln(duration / usual)| of the group


@dataclass(frozen=True)
class NodesByLane:
    """Nodes by thread or stream, in the order in which each ran them."""

    node: Int64s  # int64[rows]
    call: Int64s  # int64[rows], kind, name and operator
    site: Int64s  # int64[rows], the call with the calls before and after it
    place: Int64s  # int64[rows], the site and how often its rank met it in the step before

    def middle(self, took_ns: Int64s) -> Middle:
        """Each row's usual duration: of the narrowest group that is large and of one thing."""
        found = middle_of(self.place, took_ns)
        for group in (self.site, self.call):
            is_vague = (found.count < MIN_ALIKE) | (found.spread > _MAX_SPREAD)
            rows = np.flatnonzero(is_vague)
            if not len(rows):
                break
            asked = np.flatnonzero(np.isin(group, group[rows]))
            wider = middle_of(group[asked], took_ns[asked])
            at = np.searchsorted(asked, rows)
            is_better = (found.count[rows] < MIN_ALIKE) | (wider.spread[at] <= _MAX_SPREAD)
            rows, at = rows[is_better], at[is_better]
            found.count[rows] = wider.count[at]
            found.usual_ns[rows] = wider.usual_ns[at]
            found.spread[rows] = wider.spread[at]
        return found


def places_of(graph: ExecutionGraph, nodes: Int64s, *, by_shape: bool = False) -> NodesByLane:
    """The places of some nodes; a call of a step is another one in steps of unlike batches.

    Args:
        graph: of many ranks and steps, or of one.
        nodes: rising.
        by_shape: operators that run on a host are the same call with the same shapes alone.
    """
    node = graph.in_lanes(nodes)
    is_told = by_shape & (graph.kind[node] == NodeKind.OPERATOR)
    shape = np.where(is_told, graph.operator_signature[node], -1)
    batch = alike_steps(graph.step_names)[graph.step[node]]
    call = numbered_rows((graph.kind[node], graph.name[node], graph.operator[node], shape, batch))
    is_joined = np.diff(graph.lane[node]) == 0
    before = np.append(np.int64(-1), np.where(is_joined, call[:-1], -1))[: len(node)]
    after = np.append(np.where(is_joined, call[1:], -1), np.int64(-1))[: len(node)]
    site = numbered_rows((before, call, after))
    place = numbered_rows((site, times_met(graph, node, site)))
    return NodesByLane(node, call, site, place)


def times_met(graph: ExecutionGraph, node: Int64s, site: Int64s) -> Int64s:
    """How often each node's rank had met its site in the step before; int64[rows]."""
    cell = numbered_rows((graph.rank[node], graph.step[node], site))
    order = np.argsort(cell, kind="stable")
    is_new = begins_run(cell[order])
    rows = np.arange(len(cell))
    met = np.empty(len(cell), np.int64)
    met[order] = rows - np.maximum.accumulate(np.where(is_new, rows, 0))
    return met


def middle_of(group: Int64s, took_ns: Int64s) -> Middle:
    """The middle of every group, told for each of its rows."""
    count = np.bincount(group)[group] if len(group) else np.zeros(0, np.int64)
    usual_ns = lower_medians(group, took_ns)
    apart = np.abs(np.log(np.maximum(took_ns, 1) / np.maximum(usual_ns, 1)))
    return Middle(count, usual_ns, lower_medians(group, apart))
