"""Backward work takes the label of the forward operator it undoes.

Autograd gives a forward operator and its backward evaluation the same sequence number; where a
file has no numbers it may still have arrows between the two. What evaluates no operator of its
own (accumulating a gradient, a copy into a bucket) belongs to the evaluation before it.
"""

from __future__ import annotations

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, UInt8s
from foretrace.graph.blocks.facts import ScopeFacts
from foretrace.graph.blocks.layers import LabelStretches
from foretrace.graph.blocks.passes import NO_PASS
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.nodes import Phase
from foretrace.graph.operations import Operations
from foretrace.graph.operations.scopes import NO_SCOPE, Scopes, first_lane_of_ranks
from foretrace.trace import NO_ID

NO_POINT = -1
MIN_KNOWN = 0.2  # of the points; gradients' accumulation, which has no number, may be many


def undone_points(
    operations: Operations,
    points: WorkPoints,
    facts: ScopeFacts,
    scopes: Scopes,
    *,
    found: LabelStretches,
    backward: Int64s,
) -> tuple[Int64s, str]:
    """For each backward point, a forward point with its label, and what joined them.

    Args:
        operations: whose traces hold the arrows.
        points: of work.
        facts: of scopes.
        scopes: of all ranks.
        found: from when on which label holds in the forward passes.
        backward: backward pass of each point.

    Returns:
        int64[points], NO_POINT where unknown; "sequence numbers", "arrows" or "".
    """
    inside = np.flatnonzero(backward != NO_PASS)
    root = facts.root[points.scope[inside]]
    roots = np.unique(root[root != NO_SCOPE])
    source = "sequence numbers"
    forward_scope, has_number = _forward_scopes(facts, scopes, roots)
    forward_scope_ns = scopes.start_ns[forward_scope]
    # One evaluation may undo a whole compiled graph: then its number tells no layer.
    last_ns = scopes.end_ns[forward_scope] - 1
    begins = found.point_at(scopes.rank[roots], forward_scope_ns)
    ends = found.point_at(scopes.rank[roots], np.maximum(last_ns, forward_scope_ns))
    has_number &= begins == ends
    if not _is_enough(root, roots, has_number):
        source = "arrows"
        forward_scope_ns, has_number = _arrow_moments(operations, scopes, roots)
    if not _is_enough(root, roots, has_number):
        return np.full(len(points), NO_POINT, np.int64), ""
    of_root = np.full(len(scopes) + 1, NO_POINT, np.int64)
    known = roots[has_number]
    of_root[known] = found.point_at(scopes.rank[known], forward_scope_ns[has_number])
    undone = np.full(len(points), NO_POINT, np.int64)
    undone[inside] = _spread(of_root[root], backward[inside])
    return undone, source


def _is_enough(root: Int32s, roots: Int32s, is_known: Bools) -> bool:
    """Whether the evaluations that are known hold enough of the points to tell the rest's."""
    if not len(roots):
        return False
    place = np.minimum(np.searchsorted(roots, root), len(roots) - 1)
    is_held = (root != NO_SCOPE) & is_known[place]
    return bool(is_held.sum() >= MIN_KNOWN * len(root))


def _forward_scopes(facts: ScopeFacts, scopes: Scopes, roots: Int32s) -> tuple[Int64s, Bools]:
    """The forward operator of each evaluation, and for which one is known."""
    number = facts.own_sequence[:-1]
    forward = np.flatnonzero((number != NO_ID) & scopes.is_operator & (facts.root[:-1] == NO_SCOPE))
    span = int(number.max(initial=0)) + 1
    key = scopes.rank[forward].astype(np.int64) * span + number[forward]
    order = np.lexsort((scopes.start_ns[forward], key))
    forward, key = forward[order], key[order]
    wanted = scopes.rank[roots].astype(np.int64) * span + number[roots]
    # The last operator with a number made its node; those before had only looked at the counter.
    place = np.searchsorted(key, wanted, side="right") - 1
    if not len(key):
        return np.zeros(len(roots), np.int64), np.zeros(len(roots), np.bool_)
    has_number = (number[roots] != NO_ID) & (place >= 0) & (key[place] == wanted)
    return forward[np.maximum(place, 0)], has_number


def _arrow_moments(operations: Operations, scopes: Scopes, roots: Int32s) -> tuple[Int64s, Bools]:
    """The same by arrows, which end where an evaluation begins."""
    from_ns = np.zeros(len(roots), np.int64)
    is_known = np.zeros(len(roots), np.bool_)
    for position, (trace, first_lane) in enumerate(
        zip(operations.traces, first_lane_of_ranks(operations), strict=True)
    ):
        flows = trace.flows
        rows = np.flatnonzero(scopes.rank[roots] == position)
        if not len(flows.from_ns) or not len(rows):
            continue
        order = np.lexsort((flows.to_ns, flows.to_lane))
        ends = list(
            zip(
                (flows.to_lane[order] + first_lane).tolist(),
                flows.to_ns[order].tolist(),
                strict=True,
            )
        )
        moment = dict(zip(ends, flows.from_ns[order].tolist(), strict=True))
        begins = zip(
            scopes.lane[roots[rows]].tolist(), scopes.start_ns[roots[rows]].tolist(), strict=True
        )
        for row, begin in zip(rows.tolist(), begins, strict=True):
            if begin in moment:
                from_ns[row], is_known[row] = moment[begin], True
    return from_ns, is_known


def _spread(label: Int64s, number: Int64s) -> Int64s:
    """Unknown labels from the one before in the same pass, at its begin from the one after."""
    order = np.argsort(number, kind="stable")
    value, inside = label[order], number[order]
    size, index = len(value), np.arange(len(value))
    is_known = value != NO_POINT
    before = np.maximum.accumulate(np.where(is_known, index, -1))
    after = np.minimum.accumulate(np.where(is_known, index, size)[::-1])[::-1]
    safe_after = np.minimum(after, size - 1)
    has_before = (before >= 0) & (inside[before] == inside)
    has_after = (after < size) & (inside[safe_after] == inside)
    spread = np.empty(size, np.int64)
    spread[order] = np.where(
        has_before, value[before], np.where(has_after, value[safe_after], NO_POINT)
    )
    return spread


def with_late_recompute(points: WorkPoints, phase: UInt8s, facts: ScopeFacts) -> UInt8s:
    """Phases where what stands between recomputed operators of one evaluation is recompute too.

    Kernels without an operator of their own, and the communications that follow recomputed
    operators, carry no number by which they could be told.
    """
    rows = np.flatnonzero(np.isin(phase, (Phase.BACKWARD, Phase.RECOMPUTE)))
    if not (phase == Phase.RECOMPUTE).any():
        return phase
    root = facts.root[points.scope[rows]]
    is_again = phase[rows] == Phase.RECOMPUTE
    index = np.arange(len(rows))
    size = len(rows)
    before = np.maximum.accumulate(np.where(is_again, index, -1))
    after = np.minimum.accumulate(np.where(is_again, index, size)[::-1])[::-1]
    safe_after = np.minimum(after, size - 1)
    scope = points.scope[rows]
    # Inside a nested evaluation the work is backward work whatever stands around it.
    is_direct = facts.own_sequence[scope] == NO_ID
    is_between = (before >= 0) & (after < size) & (root != NO_SCOPE)
    is_between &= (root[before] == root) & (root[safe_after] == root)
    is_other = ~is_again & is_direct & ~_is_evaluating(facts, scope, root)
    is_comm = points.is_communication[rows]
    previous = np.append(False, is_again[:-1])
    follows = is_comm & previous & (np.append(NO_SCOPE, root[:-1]) == root) & (root != NO_SCOPE)
    phase = phase.copy()
    phase[rows[(is_between & is_other) | (follows & is_other)]] = Phase.RECOMPUTE
    return phase


def _is_evaluating(facts: ScopeFacts, scope: Int32s, root: Int32s) -> Bools:
    """Points inside an evaluation nested in another: their innermost number is not the root's."""
    inner, outer = facts.sequence[scope], facts.sequence[root]
    is_nested: Bools = (inner != outer) & (facts.phase[scope] == Phase.BACKWARD)
    return is_nested
