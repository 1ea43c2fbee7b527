"""`Lever`: something that could be made faster, as the nodes or edges that it is about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

import numpy as np

from foretrace.analyze.attributes import (
    NO_VALUE,
    Attribute,
    SelectionKey,
    WorkKind,
    attribute,
    edge_values,
)
from foretrace.analyze.labels import HOST_CLASSES
from foretrace.analyze.selection import Selection, selection_of
from foretrace.base import Bools, Float64s, Int64s
from foretrace.graph import EdgeKind, ExecutionGraph, Timeline

Labels: TypeAlias = tuple[tuple[SelectionKey, str], ...]  # what nodes have there, exactly

_TEXTS = {
    SelectionKey.CLASS: "named",
    SelectionKey.FAMILY: "named",
    SelectionKey.COLLECTIVE: "named",
    SelectionKey.KERNEL: "kernels",
    SelectionKey.GROUP: "groups",
    SelectionKey.EDGE: "edges",
}
_PLACES = {
    SelectionKey.PART: "parts",
    SelectionKey.PHASE: "phases",
    SelectionKey.LAYER: "layers",
    SelectionKey.RANK: "ranks",
}


class LeverKind(StrEnum):
    """What levers of one kind have in common; the order in which they are shown."""

    CLASS = "class"
    FAMILY = "kernel family"
    KERNEL = "kernel"
    COLLECTIVE = "collective"
    GROUP = "process group"
    PART = "part"
    PHASE = "phase"
    LAYER = "layer"
    HOST = "host"
    COMPUTE = "compute"
    COMMUNICATION = "communication"
    RANK_COMPUTE = "compute of a rank"
    RANK_HOST = "host of a rank"
    LATENCY = "latency"
    SYNCHRONISATION = "synchronisation"
    STRAGGLERS = "stragglers"


@dataclass(frozen=True)
class Lever:
    """What to choose nodes or edges by, with its time and its derivative."""

    kind: LeverKind
    label: str
    select: Labels
    num_nodes: int  # in the step; of a latency: edges
    time_ns: int  # in the step, over all ranks
    slope_ns: tuple[int, int]  # by goal: its time on the way to the step's end, and to its begin

    @property
    def is_on_edges(self) -> bool:
        """Whether it is about waiting between nodes, not about work."""
        return self.kind in {LeverKind.LATENCY, LeverKind.SYNCHRONISATION}


@dataclass(frozen=True)
class Ways:
    """A step's nodes, and what its end and its begin waited for, goal by goal."""

    timeline: Timeline
    in_step: Bools  # bool[nodes]
    nodes: tuple[Int64s, Int64s]
    edges: tuple[Int64s, Int64s]


# Kinds of levers with a value each: field, and the work that it is limited to.
_BY_VALUE: tuple[tuple[LeverKind, SelectionKey, WorkKind | None], ...] = (
    (LeverKind.CLASS, SelectionKey.CLASS, None),
    (LeverKind.FAMILY, SelectionKey.FAMILY, None),
    (LeverKind.KERNEL, SelectionKey.KERNEL, WorkKind.COMPUTE),
    (LeverKind.COLLECTIVE, SelectionKey.COLLECTIVE, None),
    (LeverKind.GROUP, SelectionKey.GROUP, None),
    (LeverKind.PART, SelectionKey.PART, None),
    (LeverKind.PHASE, SelectionKey.PHASE, None),
    (LeverKind.LAYER, SelectionKey.LAYER, None),
    (LeverKind.HOST, SelectionKey.WORK, WorkKind.HOST),
    (LeverKind.COMPUTE, SelectionKey.WORK, WorkKind.COMPUTE),
    (LeverKind.COMMUNICATION, SelectionKey.WORK, WorkKind.COMMUNICATION),
    (LeverKind.RANK_COMPUTE, SelectionKey.RANK, WorkKind.COMPUTE),
    (LeverKind.RANK_HOST, SelectionKey.RANK, WorkKind.HOST),
)


@dataclass(frozen=True)
class LeverTable:
    """All levers of a step, and the attributes that their nodes are found by."""

    levers: tuple[Lever, ...]
    attributes: Mapping[SelectionKey, Attribute]


def nodes_of(select: Labels, attributes: Mapping[SelectionKey, Attribute]) -> Bools:
    """Nodes that a lever on work selects; bool[nodes]."""
    masks = [
        attributes[field].label == attributes[field].values.index(value) for field, value in select
    ]
    mask: Bools = np.logical_and.reduce(masks)
    return mask


def selection_with(select: Labels) -> Selection:
    """The selection of exactly these nodes, or edges."""
    stated: dict[str, object] = {}
    for field, value in select:
        if field == SelectionKey.WORK:
            stated["works"] = (WorkKind(value),)
        elif field in _PLACES:
            place = selection_of(f"{field}:{value}")
            stated |= {_PLACES[field]: getattr(place, _PLACES[field])}
        else:
            is_host = field == SelectionKey.CLASS and value in HOST_CLASSES
            # A `|` would stand between alternatives; `?` is any one letter.
            stated["of_class" if is_host else _TEXTS[field]] = value.replace("|", "?")
    if stated.keys() <= set(_PLACES.values()):  # a place alone is all that is done there
        stated["works"] = (WorkKind.COMPUTE, WorkKind.COMMUNICATION, WorkKind.HOST)
    return Selection(**stated)  # type: ignore[arg-type]  # by the fields' names


def levers_of(graph: ExecutionGraph, ways: Ways, *, top: int) -> LeverTable:
    """The `top` levers of each kind: steepest first, then those with most time, then by label."""
    fields = {field for _, field, _ in _BY_VALUE} | {SelectionKey.WORK}
    attributes = {field: attribute(graph, field) for field in sorted(fields)}
    duration_ns = ways.timeline.duration_ns.astype(np.float64)
    found: list[Lever] = []
    works = attributes[SelectionKey.WORK]
    is_untold = works.label == works.values.index(WorkKind.UNRECORDED)  # nobody can speed that up
    for kind, field, work in _BY_VALUE:
        label = np.where(is_untold, NO_VALUE, attributes[field].label)
        if work is not None:
            of_work = attributes[SelectionKey.WORK]
            label = np.where(of_work.label == of_work.values.index(work), label, NO_VALUE)
        column = Attribute(attributes[field].values, label)
        found += _steepest(_of_values((kind, field, work), column, ways, duration_ns), top)
    found += _steepest(_latencies(graph, ways), top)
    return LeverTable(tuple(found), attributes)


def _steepest(levers: Iterable[Lever], top: int) -> list[Lever]:
    """The first levers in the stated order."""
    return sorted(
        levers,
        key=lambda one: (-abs(one.slope_ns[0] - one.slope_ns[1]), -one.time_ns, one.label),
    )[:top]


def _of_values(
    of: tuple[LeverKind, SelectionKey, WorkKind | None],
    column: Attribute,
    ways: Ways,
    duration_ns: Float64s,
) -> Iterator[Lever]:
    """One lever per value that has time in the step, or on a way to its end or begin."""
    kind, field, work = of
    time_ns, count = _sums(column, np.flatnonzero(ways.in_step), duration_ns)
    slopes = [_sums(column, nodes, duration_ns)[0] for nodes in ways.nodes]
    for value in np.flatnonzero(time_ns + slopes[0] + slopes[1] > 0).tolist():
        name = column.values[value]
        select: Labels = ((field, name),)
        if work is not None and field != SelectionKey.WORK:
            select = (*select, (SelectionKey.WORK, work))
        yield Lever(
            kind=kind,
            label=_label(kind, name),
            select=select,
            num_nodes=int(count[value]),
            time_ns=int(time_ns[value]),
            slope_ns=(int(slopes[0][value]), int(slopes[1][value])),
        )


def _label(kind: LeverKind, value: str) -> str:
    """What a person calls a lever."""
    words = {
        LeverKind.GROUP: f"group {value}",
        LeverKind.LAYER: f"layer {value}",
        LeverKind.RANK_COMPUTE: f"rank {value} compute",
        LeverKind.RANK_HOST: f"rank {value} host",
        LeverKind.HOST: "all host work",
        LeverKind.COMPUTE: "all compute",
        LeverKind.COMMUNICATION: "all transfers",
        LeverKind.PHASE: f"{value} phase",
        LeverKind.PART: f"{value} part",
    }
    return words.get(kind, value)


def _sums(column: Attribute, nodes: Int64s, duration_ns: Float64s) -> tuple[Float64s, Int64s]:
    """Time and number of these nodes by value; float64 holds whole ns exactly up to 104 days."""
    label = column.label[nodes] + 1
    size = len(column.values) + 1
    time_ns = np.bincount(label, weights=duration_ns[nodes], minlength=size).astype(np.float64)
    count = np.bincount(label, minlength=size).astype(np.int64)
    return time_ns[1:], count[1:]


def _latencies(graph: ExecutionGraph, ways: Ways) -> Iterator[Lever]:
    """One lever per kind of edge with a lag, over the whole recording's edges into the step."""
    size = len(EdgeKind)
    into_step = np.repeat(ways.in_step, np.diff(graph.first_edge))
    kinds, lags = graph.edge_kind[into_step], graph.lag_ns[into_step].astype(np.float64)
    time_ns = np.bincount(kinds, weights=lags, minlength=size)
    count = np.bincount(kinds, minlength=size)
    slopes = [
        np.bincount(
            graph.edge_kind[edges], weights=graph.lag_ns[edges].astype(np.float64), minlength=size
        )
        for edges in ways.edges
    ]
    for kind, name in zip(EdgeKind, edge_values(), strict=True):
        if time_ns[kind]:
            yield Lever(
                kind=LeverKind.LATENCY,
                label=f"{name.replace('-', ' ')} latency",
                select=((SelectionKey.EDGE, name),),
                num_nodes=int(count[kind]),
                time_ns=int(time_ns[kind]),
                slope_ns=(int(slopes[0][kind]), int(slopes[1][kind])),
            )
