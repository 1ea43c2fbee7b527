"""`CriticalPath`: the chain of work and waiting that a step's length is the sum of.

From the node that ends the step the path leads back, on any rank, thread or stream, over the
predecessor that each node waited for last, until the step's begin. Its pieces tile the step: their
times sum to it exactly. Of equally late predecessors the first edge counts, so ties hide no time.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from foretrace.analyze.labels import NodeLabels, class_labels
from foretrace.analyze.options import Rank, Step
from foretrace.analyze.spans import StepSpan, step_span
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Json,
    Place,
    Series,
    SideBySide,
    Table,
    Told,
    Unit,
    count_text,
    duration_text,
    question,
    rows_json,
)
from foretrace.base import Int64s, UInt8s
from foretrace.graph import REPLAYED, EdgeKind, ExecutionGraph, Part, Phase, Timeline
from foretrace.simulate import NO_EDGE, way_back

UNEXPLAINED = "unexplained"
NO_BLOCK = "no block"
NO_RANK = "no rank"  # between ranks, or on one that was not recorded
LAG_LABELS = {
    EdgeKind.HOST_ORDER: "host order",
    EdgeKind.THREAD: "thread hand-over",
    EdgeKind.LAUNCH: "launch latency",
    EdgeKind.QUEUE: "launch queue",
    EdgeKind.WAKE: "wake-up",
    EdgeKind.STREAM: "stream order",
    EdgeKind.INTER_STREAM: "stream hand-over",
    EdgeKind.INTER_STREAM_INFERRED: "stream hand-over",
    EdgeKind.ARRIVAL: "rendezvous",
    EdgeKind.TRANSFER: "rendezvous",
    EdgeKind.GHOST: "unrecorded rank",
    EdgeKind.ISSUE: "collective issue",
    EdgeKind.PROGRAMMATIC: "stream order",
    EdgeKind.GRAPH: "stream order",
    EdgeKind.STATED: "stated dependency",
}


class PieceKind(IntEnum):
    """What a stretch of a critical path is."""

    WORK = 0  # a node's own time
    LAG = 1  # the lag of the edge to a node: launch latency, hand-over, wake-up
    UNEXPLAINED = 2  # measured time before a node that no edge explains


@dataclass(frozen=True)
class PathShare:
    """The part of a critical path that goes under one label."""

    label: str
    time_ns: int
    share: float  # of the step
    num_pieces: int


@dataclass(frozen=True, repr=False)
class CriticalPath(Answer):
    """The pieces in order of time; together they are the step, from begin to end."""

    note = "Shortening what is not on the path does not shorten the step."

    timeline: Timeline
    span: StepSpan
    kind: UInt8s  # uint8[pieces], PieceKind
    node: Int64s  # int64[pieces], whose work it is, or that waited
    edge: Int64s  # int64[pieces], over which `node` was reached; NO_EDGE of the way's first
    begin_ns: Int64s  # int64[pieces]
    end_ns: Int64s  # int64[pieces], the next piece's begin

    def __len__(self) -> int:
        """Number of pieces."""
        return len(self.node)

    @property
    def duration_ns(self) -> Int64s:
        """Length of each piece, above 0; int64[pieces]."""
        return self.end_ns - self.begin_ns

    @property
    def step_ns(self) -> int:
        """Length of the step: the sum of all pieces."""
        return self.span.duration_ns

    def labels(self, classes: NodeLabels | None = None) -> tuple[str, ...]:
        """Each piece's class of work, or of waiting.

        Args:
            classes: what `class_labels` returned of the graph, where it is at hand.
        """
        classes = class_labels(self.timeline.graph) if classes is None else classes
        return tuple(
            classes.labels[classes.label[node]]
            if kind == PieceKind.WORK
            else self._wait(kind, edge)
            for kind, node, edge in zip(
                self.kind.tolist(), self.node.tolist(), self.edge.tolist(), strict=True
            )
        )

    def by_class(self) -> tuple[PathShare, ...]:
        """Time by class of work, waiting under what was waited for; longest first."""
        return self._shares(self.labels())

    def by_part(self) -> tuple[PathShare, ...]:
        """Time by part of the model; longest first."""
        part = self.timeline.graph.part[self.node].tolist()
        return self._shares([block_label(Part(one)) for one in part])

    def by_phase(self) -> tuple[PathShare, ...]:
        """Time by phase of the step; longest first."""
        phase = self.timeline.graph.phase[self.node].tolist()
        return self._shares([block_label(Phase(one)) for one in phase])

    def by_layer(self) -> tuple[PathShare, ...]:
        """Time by layer; longest first."""
        layer = self.timeline.graph.layer[self.node].tolist()
        return self._shares([f"layer {one}" if one >= 0 else NO_BLOCK for one in layer])

    def by_block(self) -> tuple[PathShare, ...]:
        """Time by part, phase and layer together ("layer 3 backward"); longest first."""
        return self._shares([block_name(self.timeline.graph, node) for node in self.node.tolist()])

    def by_rank(self) -> tuple[PathShare, ...]:
        """Time by rank; longest first."""
        rank = self.timeline.graph.rank[self.node].tolist()
        return self._shares([f"rank {one}" if one >= 0 else NO_RANK for one in rank])

    def by_lane_kind(self) -> tuple[PathShare, ...]:
        """Time on host threads, on device streams, and between ranks; longest first."""
        graph = self.timeline.graph
        of_lane = ["device" if lane.is_device else "host" for lane in graph.lanes]
        lane = graph.lane[self.node].tolist()
        return self._shares([of_lane[one] if one >= 0 else NO_RANK for one in lane])

    def by_name(self, *, top: int | None = None) -> tuple[PathShare, ...]:
        """Time by name of the node; longest first."""
        graph = self.timeline.graph
        return self._shares([graph.names[one] for one in graph.name[self.node].tolist()])[:top]

    @property
    def headline(self) -> str:
        """Which step, how long, in how many pieces."""
        whose = "" if self.span.rank is None else f" of rank {self.span.rank}"
        return (
            f"{self.span.step_name}{whose}: {duration_text(self.step_ns)} in "
            f"{count_text(len(self), 'piece')} without a gap"
        )

    @property
    def lead(self) -> str:
        """What the path is, and how long."""
        return (
            f"From the end of {self.span.step_name} back to its begin, over what each piece of "
            f"work waited for last, on any rank, thread or stream: {count_text(len(self), 'piece')}"
            f" that sum to the step's {duration_text(self.step_ns)} exactly."
        )

    def parts(self) -> tuple[Told, ...]:
        """Time on the path under every label that tells something."""
        views = self._views()
        shown = ("by_class", "by_rank", "by_phase", "by_block", "by_name", "by_lane_kind")
        told = [views[name] for name in shown if len(views[name]) > 1 or name == "by_class"]
        pairs = range(0, len(told), 2)
        return tuple(SideBySide(tuple(told[first : first + 2])) for first in pairs)

    def tables(self) -> tuple[Table, ...]:
        """The pieces, then time by every label."""
        return self.pieces(), *self._views().values()

    def _views(self) -> dict[str, Table]:
        ways = (
            self.by_class, self.by_part, self.by_phase, self.by_layer, self.by_rank,
            self.by_lane_kind, self.by_block, self.by_name,
        )  # fmt: skip
        return {way.__name__: _shares_table(way.__name__, way()) for way in ways}

    def pieces(self) -> Table:
        """One row per piece."""
        graph, node = self.timeline.graph, self.node
        lane = graph.lane[node].tolist()
        return Table.of_columns(
            "pieces",
            (Column("begin_ns"), self.begin_ns),
            (Column("end_ns"), self.end_ns),
            (Column("duration_ns"), self.duration_ns),
            (Column("piece"), [PieceKind(kind).name.lower() for kind in self.kind.tolist()]),
            (Column("class"), self.labels()),
            (Column("name"), [graph.names[one] for one in graph.name[node].tolist()]),
            (Column("rank"), graph.rank[node]),
            (Column("lane"), [graph.lanes[one].label if one >= 0 else NO_RANK for one in lane]),
            (Column("block"), [block_name(graph, one) for one in node.tolist()]),
            (Column("node"), node),
        )

    def as_json(self) -> Json:
        """The step, the time under every label, and all pieces; times in ns."""
        views = self._views()
        told = (
            views[f"by_{one}"] for one in ("class", "part", "phase", "layer", "rank", "lane_kind")
        )
        return {
            "step": self.span.step_name,
            "rank": self.span.rank,
            "timeline": self.timeline.label,
            "step_ns": self.step_ns,
            **rows_json(*told, self.pieces()),
        }

    def _wait(self, kind: int, edge: int) -> str:
        """What a piece that is no work goes under."""
        if kind == PieceKind.UNEXPLAINED:
            return UNEXPLAINED
        return LAG_LABELS[EdgeKind(int(self.timeline.graph.edge_kind[edge]))]

    def _shares(self, labels: tuple[str, ...] | list[str]) -> tuple[PathShare, ...]:
        """Pieces added up by label; longest first, ties by label."""
        time_ns: dict[str, int] = {}
        count: dict[str, int] = {}
        for label, length_ns in zip(labels, self.duration_ns.tolist(), strict=True):
            time_ns[label] = time_ns.get(label, 0) + length_ns
            count[label] = count.get(label, 0) + 1
        order = sorted(time_ns, key=lambda label: (-time_ns[label], label))
        return tuple(
            PathShare(one, time_ns[one], time_ns[one] / self.step_ns, count[one]) for one in order
        )


def _shares_table(key: str, shares: tuple[PathShare, ...]) -> Table:
    title = key.replace("_", " ").removesuffix(" kind")
    return Table.of(
        key,
        shares,
        Column("label", title.removeprefix("by "), Unit.NAME),
        Column("time_ns", "ms"),
        Column("share"),
        Column("num_pieces"),
        title=title,
        chart=Chart(
            kind=ChartKind.BARS,
            label=f"time on the critical path {title}",
            category="label",
            category_unit=Unit.NAME,
            series=(Series("time_ns", "on the path", "path"),),
            unit=Unit.NS,
            max_rows=14,
        ),
    )


@question(
    REPLAYED,
    help="Show what a step's length is the sum of, over all ranks.",
    doing="following the critical path",
    place=Place(50, "Critical path"),
    top=12,
)
def critical_path(timeline: Timeline, *, step: Step = None, rank: Rank = None) -> CriticalPath:
    """What a step's length is made of, piece by piece.

    A measured timeline's path holds time that no edge explains (PieceKind.UNEXPLAINED): waiting
    for something the recording does not show, or an edge that took longer than its kind does.
    Work is as long as measured: a kernel that communication slowed down stays slow.

    Args:
        timeline: of a job, its replay.
        step: by name or number; without one, the step whose length is nearest the median.
        rank: that rank's own step, from its mark to its end; the job's step if left out.

    Raises:
        GraphError: if there is no such step, or the rank has none.
    """
    return path_of(timeline, step_span(timeline, step, rank))


def path_of(timeline: Timeline, span: StepSpan) -> CriticalPath:
    """What this span's length is made of, piece by piece."""
    way = way_back(timeline, span.end_node, begin_ns=span.begin_ns)
    kind, node, edge, cut_ns = _cuts(timeline, span, (way.node, way.edge))
    keeps = np.diff(cut_ns) > 0
    return CriticalPath(
        timeline=timeline,
        span=span,
        kind=kind[keeps],
        node=node[keeps],
        edge=edge[keeps],
        begin_ns=cut_ns[:-1][keeps],
        end_ns=cut_ns[1:][keeps],
    )


def _cuts(
    timeline: Timeline, span: StepSpan, way: tuple[Int64s, Int64s]
) -> tuple[UInt8s, Int64s, Int64s, Int64s]:
    """Kind, node and edge of three pieces per node of the way, and where they are cut.

    Before each node: its edge's lag, then what nothing explains, then its work. Cuts never fall,
    so that a node which starts before its predecessor ended (a programmatic launch, or measured
    spans that overlap) takes the time from its own start on. The pieces' ends are int64[3 * nodes
    + 1] cuts within the step, first the begin.
    """
    node, edge = way
    graph = timeline.graph
    count = len(node)
    has_edge = edge != NO_EDGE
    waited = np.full(count, span.begin_ns, np.int64)
    found = edge[has_edge]
    before_ns = timeline.end_ns[graph.predecessor[found]]
    waited[has_edge] = before_ns + np.maximum(graph.lag_ns[found], 0)
    # each piece's end; the first node has nothing before it but the begin
    end_ns = np.stack([waited, timeline.start_ns[node], timeline.end_ns[node]], axis=1)
    end_ns[:, 0] = np.minimum(end_ns[:, 0], end_ns[:, 1])
    latest_first = np.minimum.accumulate(end_ns.ravel()[::-1])[::-1]
    cut_ns = np.concatenate(([span.begin_ns], np.clip(latest_first, span.begin_ns, span.end_ns)))
    kinds = (PieceKind.LAG, PieceKind.UNEXPLAINED, PieceKind.WORK)
    return (
        np.tile(np.array(kinds, np.uint8), count),
        np.repeat(node, 3),
        np.repeat(edge, 3),
        cut_ns,
    )


def block_label(of: Part | Phase) -> str:
    """A part or phase in words: "layer", "backward"; NO_BLOCK of the unknown ones."""
    return of.name.lower() if of else NO_BLOCK


def block_name(graph: ExecutionGraph, node: int) -> str:
    """A node's part, phase and layer in words: "layer 3 backward", "optimizer", "no block"."""
    part, phase, layer = Part(graph.part[node]), Phase(graph.phase[node]), int(graph.layer[node])
    if not part and not phase and layer < 0:
        return NO_BLOCK
    words = [part.name.lower()] if part else []
    words += [str(layer) if part == Part.LAYER else f"layer {layer}"] if layer >= 0 else []
    words += [phase.name.lower()] if phase and phase.name != part.name else []
    return " ".join(words)
