"""Layers in forward passes: which points belong to which, and the times where each begins.

In: the points of every forward pass. Out: `LabelStretches`, times from which on a rank's forward
work belongs to a part and layer, by which autograd's numbers carry labels over to the
backward pass.

Where every pipeline stage has one layer alone, nothing repeats in a rank: the layer is then the
longest sequence of tokens that stands in passes of all stages, from its first normalisation on.
Where no number joins a backward pass to the forward pass, its layers are told by order: read
backwards it runs through them as the forward pass does, so as many units must repeat in it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from foretrace.base import Bools, Int32s, Int64s, UInt8s
from foretrace.graph.blocks.marks import LayerMarks, span_of_points
from foretrace.graph.blocks.passes import NO_PASS, PassTable
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.blocks.repetition import (
    ATTENTION,
    NORMALISATION,
    RepeatedUnit,
    repeating_units,
)
from foretrace.graph.nodes import NO_LAYER, Part
from foretrace.graph.operations.scopes import Scopes

# What stands for the layers of a pass must do this share of its work, or it is a detail in it.
MIN_SHARE = 0.25

_MAX_TOKENS = 20_000  # of a pass: the search takes time in its square
_NOTHING = np.zeros(0, np.int32)


@dataclass(frozen=True)
class ForwardLayers:
    """Part and layer of every forward point, and how the layers were found."""

    part: UInt8s  # uint8[points], Part; of other points UNKNOWN
    layer: Int64s  # int64[points], in its rank; NO_LAYER
    source: str  # "rules", "modules", "annotations", "repetition"; "" none found
    kind: str  # what the layers are called; ""
    num_layers: Int64s  # int64[ranks], most layers in one of the rank's passes


def forward_layers(
    points: WorkPoints,
    forward: Int64s,
    marks: LayerMarks | None,
    is_left_out: Bools,
    *,
    known_part: UInt8s,
    names: Sequence[str],
    stage: Int64s,
) -> ForwardLayers:
    """Layers of every forward pass.

    Args:
        points: of work.
        forward: forward pass of each point; NO_PASS.
        marks: named layers; None: look for repetition.
        is_left_out: points that are no part of the model (transfers, gradients' communication).
        known_part: what scopes say of each point.
        names: of tokens.
        stage: pipeline stage of each rank, int64[ranks].
    """
    part = np.zeros(len(points), np.uint8)
    layer = np.full(len(points), NO_LAYER, np.int64)
    num_layers = np.zeros(len(stage), np.int64)
    passes = _rows_of_passes(forward)
    found = (
        _repeated_layers(points, passes, is_left_out, names=names, stage=stage)
        if marks is None
        else _named_layers(points, passes, marks)
    )
    for rows, own in zip(passes, found, strict=True):
        layer[rows] = own
        if (own != NO_LAYER).any():
            part[rows] = _parts(own, known_part[rows])
            rank = int(points.rank[rows[0]])
            num_layers[rank] = max(num_layers[rank], int(own.max()) + 1)
    source = "" if not num_layers.any() else marks.source if marks is not None else "repetition"
    return ForwardLayers(part, layer, source, marks.kind if marks else "", num_layers)


def _named_layers(
    points: WorkPoints, passes: Sequence[Int64s], marks: LayerMarks
) -> Iterator[Int64s]:
    """Layer of every point of each pass, by the marks around it."""
    span = span_of_points(marks.rank, marks.start_ns, marks.end_ns, points)
    for rows in passes:
        inside = _until_next(span[rows]) if marks.only_begins else span[rows]
        numbers = np.unique(inside[inside >= 0])
        yield np.where(inside >= 0, np.searchsorted(numbers, inside), NO_LAYER)


def _repeated_layers(
    points: WorkPoints,
    passes: Sequence[Int64s],
    is_left_out: Bools,
    *,
    names: Sequence[str],
    stage: Int64s,
) -> Iterator[Int64s]:
    """Layer of every point of each pass, by repetition; passes alike are searched once.

    What a token takes is the median over passes alike: one late token does not hide the rest.
    Where nothing repeats in any pass, what those of all pipeline stages share is the one layer
    of each.
    """
    inside = [rows[~is_left_out[rows]] for rows in passes]
    first = [first_of_tokens(points, rows) for rows in inside]
    tokens = [points.token[rows[at]] for rows, at in zip(inside, first, strict=True)]
    alike: dict[bytes, list[int]] = {}
    for index, own in enumerate(tokens):
        alike.setdefault(own.tobytes(), []).append(index)
    units: dict[bytes, tuple[RepeatedUnit, ...]] = {}
    weights: dict[bytes, Int64s] = {}
    for key, members in alike.items():
        own = tokens[members[0]].astype(np.int32)
        if len(own):
            times = [
                np.add.reduceat(points.work_ns[inside[index]] + 1, first[index])
                for index in members
            ]
            weights[key] = np.median(times, axis=0).astype(np.int64)
            units[key] = repeating_units(own, weights[key], names)
    units = _that_matter(units, weights, {key: tokens[own[0]] for key, own in alike.items()})
    units = of_usual_passes(units, alike, [int(points.rank[rows[0]]) for rows in passes])
    if not any(units.values()):
        stages = [int(stage[points.rank[rows[0]]]) for rows in passes]
        layer_tokens = common_layer([own.astype(np.int32) for own in tokens], stages, names)
        for key, weight in weights.items():
            own = np.frombuffer(key, tokens[alike[key][0]].dtype).astype(np.int32)
            units[key] = _enough(place_of(layer_tokens, own), weight)
    for rows, own_rows, at, own in zip(passes, inside, first, tokens, strict=True):
        layer = np.full(len(own_rows), NO_LAYER, np.int64)
        ends = np.append(at[1:], len(own_rows))
        for number, unit in enumerate(units.get(own.tobytes(), ())):
            layer[at[unit.first] : ends[unit.last]] = number
        spread = np.full(len(rows), NO_LAYER, np.int64)
        spread[~is_left_out[rows]] = layer
        yield _bridged(spread)


def _that_matter(
    units: Mapping[bytes, tuple[RepeatedUnit, ...]],
    weights: Mapping[bytes, Int64s],
    tokens: Mapping[bytes, Int32s],
) -> dict[bytes, tuple[RepeatedUnit, ...]]:
    """Units of passes that they make up enough of, and the same ones beside a heavy head."""
    found = {key: _enough(own, weights[key]) for key, own in units.items()}
    layers = {
        tokens[key][unit.first : unit.last + 1].tobytes()
        for key, own in found.items()
        for unit in own
    }
    return found | {
        key: own
        for key, own in units.items()
        if any(tokens[key][unit.first : unit.last + 1].tobytes() in layers for unit in own)
    }


def of_usual_passes(
    units: Mapping[bytes, tuple[RepeatedUnit, ...]],
    alike: Mapping[bytes, Sequence[int]],
    rank_of_pass: Sequence[int],
) -> dict[bytes, tuple[RepeatedUnit, ...]]:
    """Units that half the passes of a rank show; in one odd pass, a stall makes a detail heavy.

    Passes of less than half the length of the rank's longest are bits of one, and do not count.
    """
    length = {index: len(key) for key, members in alike.items() for index in members}
    longest: dict[int, int] = {}
    for index, own in length.items():
        longest[rank_of_pass[index]] = max(own, longest.get(rank_of_pass[index], 0))
    whole = {index for index, own in length.items() if 2 * own >= longest[rank_of_pass[index]]}
    of_rank = Counter(rank_of_pass[index] for index in whole)
    shown = Counter(
        rank_of_pass[index]
        for key, members in alike.items()
        for index in members
        if units.get(key) and index in whole
    )
    usual = {rank for rank, count in shown.items() if 2 * count >= of_rank[rank]}
    return {
        key: own if any(rank_of_pass[index] in usual for index in alike[key]) else ()
        for key, own in units.items()
    }


def _enough(units: tuple[RepeatedUnit, ...], weight: Int64s) -> tuple[RepeatedUnit, ...]:
    """The units, if they hold enough of the time."""
    held = sum(int(weight[unit.first : unit.last + 1].sum()) for unit in units)
    return units if held >= MIN_SHARE * int(weight.sum()) else ()


def _until_next(span: Int64s) -> Int64s:
    """Spans of one pass's points, each going on until the next; the last as long as the longest.

    What follows the last layer is not told apart from it by where layers begin.
    """
    first = np.flatnonzero((span >= 0) & (np.append(-1, span[:-1]) != span))
    first = first[np.unique(span[first], return_index=True)[1]]
    if not len(first):
        return span
    filled = np.full(len(span), -1, np.int64)
    lengths = np.diff(first)
    last = first[-1] + (int(lengths.max()) if len(lengths) else len(span))
    for begin, end in zip(first, np.append(first[1:], last), strict=True):
        filled[begin:end] = span[begin]
    return filled


def _rows_of_passes(number: Int64s) -> list[Int64s]:
    """The points of every pass, in order."""
    rows = np.flatnonzero(number != NO_PASS)
    order = np.argsort(number[rows], kind="stable")
    rows = rows[order]
    cuts = np.flatnonzero(number[rows][1:] != number[rows][:-1]) + 1
    return [part for part in np.split(rows, cuts) if len(part)]


def first_of_tokens(points: WorkPoints, rows: Int64s) -> Int64s:
    """Where tokens begin: launches of one operator's call are one token."""
    token, scope = points.token[rows], points.call[rows]
    is_same = (token[1:] == token[:-1]) & (scope[1:] == scope[:-1]) & (scope[1:] >= 0)
    return np.flatnonzero(np.append(True, ~is_same)[: len(rows)])


def _bridged(layer: Int64s) -> Int64s:
    """Points left out of the search take the layer around them, if both sides agree."""
    rows = np.arange(len(layer))
    is_known = layer != NO_LAYER
    if not is_known.any():
        return layer
    before = np.maximum.accumulate(np.where(is_known, rows, -1))
    after = np.minimum.accumulate(np.where(is_known, rows, len(rows))[::-1])[::-1]
    padded = np.append(layer, NO_LAYER)
    safe_after = np.where(after < len(rows), after, -1)
    agree = padded[before] == padded[safe_after]
    return np.where(is_known, layer, np.where(agree, padded[before], NO_LAYER))


def _parts(layer: Int64s, known: UInt8s) -> UInt8s:
    """Parts of one pass's points: before the layers, in them, after them."""
    part = np.zeros(len(layer), np.uint8)
    inside = np.flatnonzero(layer != NO_LAYER)
    part[inside] = Part.LAYER
    first, last = inside[0], inside[-1]
    rows = np.arange(len(layer))
    if (known[:first] == Part.EMBEDDING).any():
        part[:first] = Part.EMBEDDING
    part[last + 1 :] = Part.HEAD
    losses = np.flatnonzero((known == Part.LOSS) & (rows > last))
    if len(losses):
        part[losses[0] :] = Part.LOSS
    between = (layer == NO_LAYER) & (rows > first) & (rows < last)
    part[between] = np.where(known[between] == Part.EMBEDDING, Part.EMBEDDING, Part.UNKNOWN)
    return part


@dataclass(frozen=True)
class LabelStretches:
    """From when on a rank's forward work has a label, sorted by rank, then time."""

    rank: Int32s  # int32[stretches]
    start_ns: Int64s  # int64[stretches], raw
    point: Int64s  # int64[stretches], a point with the label

    def point_at(self, rank: Int32s, at_ns: Int64s) -> Int64s:
        """A point with the label that holds at moments of ranks; -1: none yet."""
        found = np.full(len(rank), -1, np.int64)
        if not len(self.point):
            return found
        for one in np.unique(rank).tolist():
            low, high = np.searchsorted(self.rank, [one, one + 1])
            rows = np.flatnonzero(rank == one)
            place = low + np.searchsorted(self.start_ns[low:high], at_ns[rows], side="right") - 1
            found[rows] = np.where(place >= low, self.point[np.maximum(place, 0)], -1)
        return found


def stretches(points: WorkPoints, scopes: Scopes, forward: Int64s, label: Int64s) -> LabelStretches:
    """Where the label of forward points changes.

    A label begins with the outermost operator around its first point that began after the point
    before: what an operator computes before its first launch is its own.

    Args:
        points: of work.
        scopes: of all ranks.
        forward: forward pass of each point; NO_PASS.
        label: a number for part, layer and pass together, int64[points].
    """
    rows = np.flatnonzero(forward != NO_PASS)
    changes = np.append(
        True,
        (label[rows][1:] != label[rows][:-1]) | (points.rank[rows][1:] != points.rank[rows][:-1]),
    )[: len(rows)]
    begins = np.flatnonzero(changes)
    start_ns = np.empty(len(begins), np.int64)
    for index, begin in enumerate(begins.tolist()):
        row = int(rows[begin])
        is_first = begin == 0 or points.rank[rows[begin - 1]] != points.rank[row]
        before_ns = None if is_first else int(points.at_ns[rows[begin - 1]])
        start_ns[index] = _start_ns(points, scopes, row, before_ns)
    return LabelStretches(points.rank[rows[begins]], start_ns, rows[begins])


def _start_ns(points: WorkPoints, scopes: Scopes, row: int, before_ns: int | None) -> int:
    start_ns = int(points.at_ns[row])
    scope = int(points.scope[row])
    while scope >= 0:
        began_ns = int(scopes.start_ns[scope])
        if before_ns is not None and began_ns <= before_ns:
            break
        start_ns = began_ns
        scope = int(scopes.parent[scope])
    return start_ns


def common_layer(
    tokens: Sequence[Int32s], stage_of_pass: Sequence[int], names: Sequence[str]
) -> Int32s:
    """The tokens of the layer that passes of all stages share; empty where they share none.

    Args:
        tokens: of every pass.
        stage_of_pass: pipeline stage that each pass ran on.
        names: what tokens are called; a layer normalises and attends.
    """
    usual: list[Int32s] = []
    for stage in sorted(set(stage_of_pass)):
        own = [each for each, at in zip(tokens, stage_of_pass, strict=True) if at == stage]
        text = Counter(each.tobytes() for each in own).most_common(1)[0][0]
        usual.append(np.frombuffer(text, np.int32))
    if len(usual) <= 1 or max(map(len, usual)) > _MAX_TOKENS:
        return _NOTHING
    shared = reduce(_longest_common, usual)
    called = [names[token] for token in shared.tolist()]
    begins = [at for at, name in enumerate(called) if NORMALISATION.search(name)]
    if not begins or not any(ATTENTION.search(name) for name in called[begins[0] :]):
        return _NOTHING
    return shared[begins[0] :]


def place_of(layer: Int32s, tokens: Int32s) -> tuple[RepeatedUnit, ...]:
    """Where a pass runs the layer first; empty if it does not."""
    if not 0 < len(layer) <= len(tokens):
        return ()
    windows = np.lib.stride_tricks.sliding_window_view(tokens, len(layer))
    found = np.flatnonzero((windows == layer).all(axis=1))[:1].tolist()
    return tuple(RepeatedUnit(at, at + len(layer) - 1, 0) for at in found)


def _longest_common(one: Int32s, other: Int32s) -> Int32s:
    """The longest run of tokens that stands in both; the first of several."""
    lengths: Int64s = np.zeros(len(other) + 1, np.int64)
    longest, end = 0, 0
    for at, token in enumerate(one.tolist()):
        lengths[1:] = np.where(other == token, lengths[:-1] + 1, 0)
        best = int(lengths.max())
        if best > longest:
            longest, end = best, at + 1
    return one[end - longest : end]


@dataclass(frozen=True)
class ReversedLayers:
    """Part and layer of backward points."""

    part: UInt8s  # uint8[points]
    layer: Int64s  # int64[points], NO_LAYER where unknown


def layers_by_reversal(
    points: WorkPoints,
    passes: PassTable,
    layers: ForwardLayers,
    is_left_out: Bools,
    names: Sequence[str],
) -> ReversedLayers:
    """Layers of all backward passes whose units are as many as their rank's layers."""
    part = np.zeros(len(points), np.uint8)
    layer = np.full(len(points), NO_LAYER, np.int64)
    backward = passes.backward
    for number in range(passes.num_backward):
        rows = np.flatnonzero((backward == number) & (backward != NO_PASS) & ~is_left_out)
        if not len(rows):
            continue
        first = first_of_tokens(points, rows)
        weight = np.add.reduceat(points.work_ns[rows] + 1, first)[::-1]
        tokens = points.token[rows[first]][::-1].astype(np.int32)
        units = repeating_units(tokens, weight, names)
        if len(units) != layers.num_layers[points.rank[rows[0]]]:
            continue
        ends = np.append(first[1:], len(rows))
        last = len(first) - 1
        for index, unit in enumerate(units):
            inside = rows[first[last - unit.last] : ends[last - unit.first]]
            layer[inside], part[inside] = index, Part.LAYER
        every = np.flatnonzero(backward == number)
        layer[every] = _continued(layer[every])
    return ReversedLayers(part, layer)


def _continued(layer: Int64s) -> Int64s:
    """Layers where what is unknown after a layer goes on with it: its gradients' buckets."""
    rows = np.arange(len(layer))
    before = np.maximum.accumulate(np.where(layer != NO_LAYER, rows, -1))
    return np.where(before >= 0, layer[before], NO_LAYER)
