"""What users say of work: their rules, an `nn.Module` in the Python stack, annotations.

Names that end in a number ("nn.Module: TransformerLayer_3", "layer 3") are instances of one
kind. The kind that covers most of the forward work stands for layers; among kinds that cover
almost the same, one that is called layer or block, then the one with more instances. Rules say
part and phase by operators, annotations, modules and kernels around a point.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from foretrace.base import Int64s, UInt8s, used_positions
from foretrace.graph.blocks.corrections import Corrections
from foretrace.graph.blocks.facts import by_name, inherited
from foretrace.graph.blocks.points import WorkPoints
from foretrace.graph.nodes import NO_LAYER, Part
from foretrace.graph.operations import Operations
from foretrace.graph.operations.scopes import Scopes
from foretrace.trace import Category, Trace

MODULE = "nn.Module: "
# Of a name read from its end, so that the longest one is read once.
_NUMBER_LAST = re.compile(r"[\])\s#]*\d+[\s_#:.\[(-]*")
_LAYER_WORD = re.compile(r"layer(?!norm)|block|bottleneck|decoder|encoder|stage", re.IGNORECASE)
_NO_LAYERS = re.compile(
    r"ProfilerStep|iteration|step|microbatch|micro_batch|batch|epoch", re.IGNORECASE
)
_ALMOST = 0.95  # of the best cover
_MIN_COVER = 0.3  # of a rank's forward work, or a kind names no layers
_MAX_KINDS = 32  # that are looked at; layers are among the longest
_MIN_COUNT = 2  # instances; a name that stands once is no kind
_SUBJECTS = (
    (Category.OPERATOR, "operator"),
    (Category.ANNOTATION, "annotation"),
    (Category.PYTHON, "module"),
)
_CATEGORY = {"module": Category.PYTHON, "annotation": Category.ANNOTATION}

_Says: TypeAlias = Callable[[str, str], int]  # subject and name to a part or phase; 0: nothing


@dataclass(frozen=True)
class LayerMarks:
    """Spans on host threads that are layers, by rank and start."""

    rank: Int64s  # int64[marks], position among the traces
    start_ns: Int64s  # int64[marks], raw
    end_ns: Int64s  # int64[marks]
    source: str  # "rules", "modules", "annotations"
    kind: str  # what the instances are called; "" several
    only_begins: bool = False  # a mark begins a layer, which goes on until the next

    def __len__(self) -> int:
        """Number of marks."""
        return len(self.rank)


@dataclass(frozen=True)
class Spans:
    """Spans of host threads, some of one kind."""

    rank: Int64s
    start_ns: Int64s
    end_ns: Int64s
    kind: Int64s
    kinds: tuple[str, ...]


def layer_marks(
    operations: Operations, points: WorkPoints, corrections: Corrections
) -> LayerMarks | None:
    """The layers that are named, by the best source that names any; None: none does.

    Args:
        operations: whose traces hold the names.
        points: forward points only.
        corrections: the user's rules come first.
    """
    for begins in (False, True):
        ruled = _ruled_spans(operations, corrections, begins=begins)
        if len(ruled.rank):
            return replace(_as_marks(outermost(ruled), "rules", ""), only_begins=begins)
    for subject, source in (("module", "modules"), ("annotation", "annotations")):
        spans = _numbered_spans(operations, subject)
        kind = _layer_kind(spans, points)
        if kind is not None:
            chosen = outermost(of_kind(spans, kind))
            return _as_marks(chosen, source, spans.kinds[kind])
    return None


def _as_marks(spans: Spans, source: str, kind: str) -> LayerMarks:
    order = np.lexsort((spans.start_ns, spans.rank))
    return LayerMarks(spans.rank[order], spans.start_ns[order], spans.end_ns[order], source, kind)


def spans_of(operations: Operations, category: Category, kind_of: Callable[[str], int]) -> Spans:
    """Spans of a category on host threads whose name `kind_of` gives a kind; -1 is left out."""
    rows = []
    for position, trace in enumerate(operations.traces):
        names = trace.name[trace.category == category]
        table = [-1] * len(trace.strings)
        for index in used_positions(names, len(trace.strings)).tolist():
            table[index] = kind_of(trace.strings[index])
        rows.append(_chosen(trace, position, category, table))
    return _joined(rows, ("",))


def _ruled_spans(operations: Operations, corrections: Corrections, *, begins: bool) -> Spans:
    """Spans that rules call layers, or beginnings of layers."""
    found = []
    for category, subject in _SUBJECTS:
        if corrections.has_subject(subject):

            def kind_of(text: str, subject: str = subject) -> int:
                return int(corrections.is_layer(subject, _plain(text), begins=begins)) - 1

            found.append(spans_of(operations, category, kind_of))
    return _joined([(one.rank, one.start_ns, one.end_ns, one.kind) for one in found], ("",))


def _plain(text: str) -> str:
    """A module's own name."""
    return text.removeprefix(MODULE)


def _numbered_spans(operations: Operations, subject: str) -> Spans:
    """Spans whose name ends in a number, by what stands before it."""
    kinds: dict[str, int] = {}
    rows = []
    for position, trace in enumerate(operations.traces):
        names = trace.name[trace.category == _CATEGORY[subject]]
        table = [-1] * len(trace.strings)
        for index in used_positions(names, len(trace.strings)).tolist():
            text = trace.strings[index]
            kind = _before_number(_plain(text))
            is_right = subject != "module" or text.startswith(MODULE)
            if kind and is_right and not _NO_LAYERS.search(kind):
                table[index] = kinds.setdefault(kind, len(kinds))
        rows.append(_chosen(trace, position, _CATEGORY[subject], table))
    return _joined(rows, tuple(kinds))


def _before_number(name: str) -> str:
    """What stands before the number that a name of one line ends in; "" if it ends in none."""
    match = _NUMBER_LAST.match(name[::-1])
    kind = name[: len(name) - match.end()] if match else ""
    return "" if "\n" in kind else kind


def _chosen(
    trace: Trace, position: int, category: Category, table: Sequence[int]
) -> tuple[Int64s, ...]:
    kind = np.array([*table, -1], np.int64)[trace.name]
    row = np.flatnonzero((trace.category == category) & (kind >= 0))
    start_ns = trace.start_ns[row]
    rank = np.full(len(row), position, np.int64)
    return rank, start_ns, start_ns + trace.duration_ns[row], kind[row]


def _joined(rows: list[tuple[Int64s, ...]], kinds: tuple[str, ...]) -> Spans:
    if not rows:
        none = np.zeros(0, np.int64)
        return Spans(none, none, none, none, kinds)
    columns = [np.concatenate(column) for column in zip(*rows, strict=True)]
    return Spans(columns[0], columns[1], columns[2], columns[3], kinds)


def of_kind(spans: Spans, kind: int) -> Spans:
    """Spans of one kind."""
    row = np.flatnonzero(spans.kind == kind)
    return Spans(
        spans.rank[row], spans.start_ns[row], spans.end_ns[row], spans.kind[row], spans.kinds
    )


def outermost(spans: Spans) -> Spans:
    """Without spans that lie in another."""
    order = np.lexsort((-spans.end_ns, spans.start_ns, spans.rank))
    rank, start_ns, end_ns = spans.rank[order], spans.start_ns[order], spans.end_ns[order]
    base = int(start_ns.min(initial=0))
    width = int(end_ns.max(initial=0)) - base + 1
    lifted = np.maximum.accumulate(end_ns - base + rank * width)
    before = np.append(np.int64(-1), lifted[:-1])[: len(rank)]
    is_outer = start_ns - base + rank * width >= before
    kept = order[is_outer]
    return Spans(
        spans.rank[kept], spans.start_ns[kept], spans.end_ns[kept], spans.kind[kept], spans.kinds
    )


def _layer_kind(spans: Spans, points: WorkPoints) -> int | None:
    """The kind of span that stands for layers; None if no kind covers enough."""
    covers = []
    total = max(len(points), 1)
    for kind in _longest_kinds(spans):
        chosen = outermost(of_kind(spans, kind))
        count = len(chosen.rank)
        if count >= _MIN_COUNT:
            covers.append((_covered(chosen, points) / total, count, kind))
    best = max((cover for cover, _, _ in covers), default=0.0)
    if best < _MIN_COVER:
        return None
    near = [one for one in covers if one[0] >= _ALMOST * best]
    called = [one for one in near if _LAYER_WORD.search(spans.kinds[one[2]])]
    return max(called or near, key=lambda one: one[1])[2]


def _longest_kinds(spans: Spans) -> list[int]:
    """The kinds with several spans that last longest, all their spans together."""
    size = len(spans.kinds)
    count = np.bincount(spans.kind, minlength=size)
    length_ns = np.zeros(size, np.int64)
    np.add.at(length_ns, spans.kind, spans.end_ns - spans.start_ns)
    order = np.lexsort((np.arange(size), -length_ns))
    return [kind for kind in order.tolist() if count[kind] >= _MIN_COUNT][:_MAX_KINDS]


def _covered(spans: Spans, points: WorkPoints) -> int:
    """Points that lie in one of the spans, which are disjoint in their rank."""
    return int((span_of_points(spans.rank, spans.start_ns, spans.end_ns, points) >= 0).sum())


def span_of_points(rank: Int64s, start_ns: Int64s, end_ns: Int64s, points: WorkPoints) -> Int64s:
    """The span that holds each point, int64[points]; -1: none. Spans are sorted and disjoint."""
    found = np.full(len(points), -1, np.int64)
    if not len(rank) or not len(points):
        return found
    ranks = np.arange(max(int(rank.max()), int(points.rank.max())) + 2)
    of_span, of_point = np.searchsorted(rank, ranks), np.searchsorted(points.rank, ranks)
    for position in range(len(ranks) - 1):
        low, high = of_span[position : position + 2]
        rows = np.arange(of_point[position], of_point[position + 1])
        if low == high or not len(rows):
            continue
        place = low + np.searchsorted(start_ns[low:high], points.at_ns[rows], side="right") - 1
        is_inside = (place >= low) & (points.at_ns[rows] < end_ns[np.maximum(place, 0)])
        found[rows[is_inside]] = place[is_inside]
    return found


@dataclass(frozen=True)
class RuledPoints:
    """Part and phase that rules give to points; UNKNOWN where they say nothing."""

    part: UInt8s  # uint8[points], Part
    phase: UInt8s  # uint8[points], Phase

    def with_parts(self, part: UInt8s, layer: Int64s) -> tuple[UInt8s, Int64s]:
        """Parts and layers of points, the ruled ones in place of what else was found.

        That something is a layer is said by its span, which numbers it, and not here.
        """
        is_ruled = (self.part != Part.UNKNOWN) & (self.part != Part.LAYER)
        ruled_part = np.where(is_ruled, self.part, part).astype(np.uint8)
        keeps_layer = ~is_ruled | (self.part == Part.BUCKET)
        return ruled_part, np.where(keeps_layer, layer, NO_LAYER)


def ruled_points(
    operations: Operations, points: WorkPoints, scopes: Scopes, corrections: Corrections
) -> RuledPoints:
    """What the rules say; of several kinds, kernels come first, then the innermost scope."""
    part, phase = np.zeros((2, len(points)), np.uint8)
    if corrections.rules:
        for target, says in ((part, corrections.part), (phase, corrections.phase)):
            _from_modules(operations, points, says, target)
            _from_scopes(operations, points, scopes, says, target)
            _from_kernels(operations, points, says, target)
    return RuledPoints(part, phase)


def _from_modules(operations: Operations, points: WorkPoints, says: _Says, target: UInt8s) -> None:
    def kind_of(text: str) -> int:
        return (int(says("module", text.removeprefix(MODULE))) or -1) if MODULE in text else -1

    spans = spans_of(operations, Category.PYTHON, kind_of)
    for value in np.unique(spans.kind).tolist():
        chosen = outermost(of_kind(spans, value))
        inside = span_of_points(chosen.rank, chosen.start_ns, chosen.end_ns, points) >= 0
        target[inside] = value


def _from_scopes(
    operations: Operations, points: WorkPoints, scopes: Scopes, says: _Says, target: UInt8s
) -> None:
    operator = by_name(operations.traces, scopes, lambda text: says("operator", text))
    mark = by_name(operations.traces, scopes, lambda text: says("annotation", text))
    own = np.where(scopes.is_operator, operator, mark)
    value = np.append(inherited(scopes.parent, own, 0, is_inner=True), 0)[points.scope]
    target[value != 0] = value[value != 0]


def _from_kernels(operations: Operations, points: WorkPoints, says: _Says, target: UInt8s) -> None:
    value = np.zeros(len(operations.names), np.uint8)
    for index in used_positions(points.name, len(operations.names)).tolist():
        value[index] = says("kernel", operations.names[index])
    own = value[points.name]
    target[own != 0] = own[own != 0]
