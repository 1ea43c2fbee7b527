"""Passes: one microbatch once forward or once backward through a rank's share of the model.

Autograd numbers forward operators one after the other, and every backward pass begins at the
newest operator of its microbatch. So the highest number that a backward pass evaluates ends its
microbatch's forward pass: that holds for accumulated gradients, for all-forward-then-all-backward
and for interleaved schedules alike. Without numbers a pass ends where the phase changes, and the
k-th backward pass belongs to the k-th forward pass.

Generated tokens and accumulated batches follow each other with nothing between. Each begins by
embedding its inputs: work between two embeddings is a pass if what follows the next one is the
same work again; an encoder and a decoder, which embed too, do different work.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, UInt8s, begins_run, numbered_rows
from foretrace.graph.blocks.facts import ScopeFacts
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.nodes import NO_MICROBATCH, Part, Phase
from foretrace.trace import NO_ID

NO_PASS = -1
_AFTER_ALL = np.iinfo(np.int64).max  # newer than all that is evaluated
_BETWEEN = 3  # what passes data between stages stands between two passes
_BACKWARDS = (Phase.BACKWARD, Phase.RECOMPUTE)

MIN_ALIKE = 0.8  # of the operators of the longer of two passes are in the other too
_FAR = 0.5  # of the longest way between two embeddings: nearer ones embed the same inputs


@dataclass(frozen=True)
class PassTable:
    """Passes of all ranks; points of one pass follow each other among the points of its kind."""

    forward: Int64s  # int64[points], forward pass of each point; NO_PASS
    backward: Int64s  # int64[points], backward pass of each point; NO_PASS
    num_forward: int
    num_backward: int
    forward_microbatch: Int64s  # int64[forward passes], in its rank and step
    backward_microbatch: Int64s  # int64[backward passes]; NO_MICROBATCH

    def microbatch_of_points(self) -> Int64s:
        """int64[points], NO_MICROBATCH outside passes."""
        found = np.append(self.forward_microbatch, NO_MICROBATCH)[self.forward]
        backward = np.append(self.backward_microbatch, NO_MICROBATCH)[self.backward]
        return np.where(self.backward != NO_PASS, backward, found)


def passes_of(
    points: WorkPoints, phase: UInt8s, facts: ScopeFacts, is_transfer: Bools
) -> PassTable:
    """Forward and backward passes of all ranks.

    Args:
        points: of work.
        phase: of each point.
        facts: of scopes.
        is_transfer: points that pass activations between pipeline stages.
    """
    is_forward = phase == Phase.FORWARD
    is_backward = np.isin(phase, _BACKWARDS)
    newest = _newest_evaluated(points, facts, is_backward)
    group = _groups(points, phase, is_transfer)
    is_embedding = facts.part[points.scope] == Part.EMBEDDING
    group += np.cumsum(pass_begins(points.token, is_embedding, group, is_forward))
    has_number = is_backward & (facts.own_sequence[facts.root[points.scope]] != NO_ID)
    looks_back = np.ones(len(points), np.bool_)
    evaluated = _filled(is_backward, group, np.where(has_number, newest, NO_ID), looks_back)
    backward = _numbered(points, is_backward, group, evaluated)
    # A communication follows what it communicates; other work without a number leads to the next.
    interval = _sequence_interval(points, facts, newest, is_forward)
    interval = _with_stragglers(points, is_forward, group, interval)
    interval[interval == _AFTER_ALL] = NO_ID  # no backward pass tells these apart
    interval = _filled(is_forward, group, interval, points.is_communication)
    forward = _numbered(points, is_forward, group, interval)
    num_forward = int(forward.max(initial=-1)) + 1
    num_backward = int(backward.max(initial=-1)) + 1
    forward_microbatch = _ordinals(points, forward, num_forward)
    joined = _joined(points, forward, backward, interval, evaluated)
    backward_microbatch = _ordinals(points, backward, num_backward)
    is_joined = joined != NO_PASS
    backward_microbatch[is_joined] = forward_microbatch[joined[is_joined]]
    return PassTable(
        forward, backward, num_forward, num_backward, forward_microbatch, backward_microbatch
    )


def _newest_evaluated(points: WorkPoints, facts: ScopeFacts, is_backward: Bools) -> Int64s:
    """Highest number that a rank's backward points evaluated up to each point; NO_ID: none yet."""
    root = facts.root[points.scope]
    number = np.where(is_backward, facts.own_sequence[root], NO_ID)
    # Ranks begin anew: lift each above the one before, accumulate, lower again.
    span = int(number.max(initial=0)) + 2
    lifted = np.maximum.accumulate(number + points.rank.astype(np.int64) * span)
    return np.maximum(lifted - points.rank.astype(np.int64) * span, NO_ID)


def _groups(points: WorkPoints, phase: UInt8s, is_transfer: Bools) -> Int64s:
    """A number for every stretch of a rank's points between changes of phase, int64[points]."""
    code = np.full(len(Phase), -1, np.int64)
    code[[Phase.FORWARD, Phase.BACKWARD, Phase.RECOMPUTE, Phase.OPTIMIZER]] = (0, 1, 1, 2)
    kind = code[phase]
    kind[is_transfer] = _BETWEEN
    known = np.flatnonzero(kind >= 0)
    changes = np.zeros(len(points), np.int64)
    is_change = (
        (kind[known][1:] != kind[known][:-1])
        | (points.rank[known][1:] != points.rank[known][:-1])
        | (points.step[known][1:] != points.step[known][:-1])
    )
    changes[known[1:][is_change]] = 1
    changes[np.flatnonzero(points.rank[1:] != points.rank[:-1]) + 1] = 1
    return np.cumsum(changes)


def _sequence_interval(
    points: WorkPoints, facts: ScopeFacts, newest: Int64s, is_forward: Bools
) -> Int64s:
    """For forward points with a number: which backward pass reaches them, by what it ends at.

    Returns:
        The end of the interval, int64[points]: equal for points of one microbatch; NO_ID unknown.
    """
    found = np.full(len(points), NO_ID, np.int64)
    number = facts.sequence[points.scope]
    bounds = np.searchsorted(points.rank, np.arange(int(points.rank.max(initial=-1)) + 2)).tolist()
    for low, high in pairwise(bounds):
        ends = np.unique(newest[low:high])
        ends = ends[ends != NO_ID]
        rows = low + np.flatnonzero(is_forward[low:high] & (number[low:high] != NO_ID))
        place = np.searchsorted(ends, number[rows])
        found[rows] = np.append(ends, _AFTER_ALL)[place]
    return found


def _with_stragglers(
    points: WorkPoints, is_forward: Bools, group: Int64s, interval: Int64s
) -> Int64s:
    """What a pass computes after its newest evaluated operator (metrics) stays with the pass.

    By its number it would belong to the next pass, whose other work stands in a later group.
    """
    rows = np.flatnonzero(is_forward & (interval != NO_ID))
    if not len(rows):
        return interval
    key = numbered_rows((points.rank[rows], interval[rows]))  # ranks count alike
    pairs, count = np.unique(np.stack([key, group[rows]]), axis=1, return_counts=True)
    order = np.lexsort((count, pairs[0]))
    home = np.empty(int(key.max()) + 1, np.int64)
    home[pairs[0][order]] = pairs[1][order]  # the last written is the most frequent
    is_away = (group[rows] != home[key]) | (interval[rows] == _AFTER_ALL)
    before = np.maximum.accumulate(np.where(~is_away, np.arange(len(rows)), -1))
    moves = is_away & (before >= 0) & (group[rows][before] == group[rows])
    found = interval.copy()
    found[rows[moves]] = interval[rows[before[moves]]]
    return found


def _filled(is_inside: Bools, group: Int64s, value: Int64s, looks_back: Bools) -> Int64s:
    """Values of the rows inside, unknown ones taken from a neighbour in their group.

    From the one before that is known where `looks_back`, else from the next; if there is none,
    the other way round.
    """
    rows = np.flatnonzero(is_inside)
    known, inside = value[rows], group[rows]
    size, index = len(rows), np.arange(len(rows))
    is_known = known != NO_ID
    before = np.maximum.accumulate(np.where(is_known, index, -1))
    after = np.minimum.accumulate(np.where(is_known, index, size)[::-1])[::-1]
    safe_after = np.minimum(after, size - 1)
    has_after = (after < size) & (inside[safe_after] == inside)
    has_before = (before >= 0) & (inside[before] == inside)
    earlier = np.where(has_before, known[before], NO_ID)
    later = np.where(has_after, known[safe_after], NO_ID)
    is_back = looks_back[rows]
    first, second = np.where(is_back, (earlier, later), (later, earlier))
    filled = value.copy()
    filled[rows] = np.where(is_known, known, np.where(first != NO_ID, first, second))
    return filled


def _numbered(points: WorkPoints, is_inside: Bools, group: Int64s, key: Int64s) -> Int64s:
    """Passes numbered in order: by rank, step and key, or by group where no key is known."""
    found = np.full(len(points), NO_PASS, np.int64)
    rows = np.flatnonzero(is_inside)
    if len(rows):
        is_known = key[rows] != NO_ID
        dense = numbered_rows((key[rows],))
        which = np.where(is_known, dense, len(dense) + group[rows])
        number = numbered_rows((points.rank[rows], points.step[rows], which))
        _, first, place = np.unique(number, return_index=True, return_inverse=True)
        found[rows] = np.argsort(np.argsort(first))[place]
    return found


def _ordinals(points: WorkPoints, number: Int64s, num_passes: int) -> Int64s:
    """Place of each pass among those of its rank and step."""
    first = np.full(num_passes, 0, np.int64)
    rows = np.flatnonzero(number != NO_PASS)[::-1]
    first[number[rows]] = rows
    rank, step = points.rank[first], points.step[first]
    is_new = begins_run(rank, step)
    begin = np.maximum.accumulate(np.where(is_new, np.arange(num_passes), 0))
    ordinal: Int64s = np.arange(num_passes) - begin
    return ordinal


def _joined(
    points: WorkPoints, forward: Int64s, backward: Int64s, interval: Int64s, evaluated: Int64s
) -> Int64s:
    """The forward pass that each backward pass undoes, by numbers; NO_PASS where unknown."""
    joined = np.full(int(backward.max(initial=-1)) + 1, NO_PASS, np.int64)
    rows = np.flatnonzero((forward != NO_PASS) & (interval != NO_ID))
    back = np.flatnonzero((backward != NO_PASS) & (evaluated != NO_ID))
    if not len(rows) or not len(back):
        return joined
    both = np.concatenate([rows, back])
    number = np.concatenate([interval[rows], evaluated[back]])
    key = numbered_rows((points.rank[both], number))
    forward_of = np.full(int(key.max()) + 1, NO_PASS, np.int64)
    forward_of[key[: len(rows)]] = forward[rows]
    joined[backward[back]] = forward_of[key[len(rows) :]]
    return joined


def pass_begins(token: Int32s, is_embedding: Bools, group: Int64s, is_forward: Bools) -> Bools:
    """Points at which the same forward work begins again within a group.

    Args:
        token: what each point does.
        is_embedding: points that embed.
        group: of each point; groups follow each other.
        is_forward: points of forward work.
    """
    begins = np.zeros(len(token), np.bool_)
    rows = np.flatnonzero(is_forward)
    embeds = np.flatnonzero(is_embedding & is_forward)
    if not len(embeds):
        return begins
    groups, count = np.unique(group[embeds], return_counts=True)
    low = np.searchsorted(group[rows], groups, side="left")
    high = np.searchsorted(group[rows], groups, side="right")
    for first, last, number in zip(low.tolist(), high.tolist(), count.tolist(), strict=True):
        if number > 1:
            inside = rows[first:last]
            starts = _starts(np.flatnonzero(is_embedding[inside]))
            if _are_alike(token[inside], starts):
                begins[inside[starts[1:]]] = True
    return begins


def _starts(places: Int64s) -> Int64s:
    """The first of embeddings that stand together."""
    ways = np.diff(places)
    is_far = ways > _FAR * ways.max()
    starts: Int64s = places[np.append(True, is_far)]
    return starts


def _are_alike(token: Int32s, starts: Int64s) -> bool:
    """Whether what follows each start, up to the next, is the same work."""
    pieces = [Counter(piece.tolist()) for piece in np.split(token, starts)[1:]]
    if len(pieces) == 1:
        return False
    return all(
        (one & other).total() >= MIN_ALIKE * max(one.total(), other.total())
        for one, other in pairwise(pieces)
    )
