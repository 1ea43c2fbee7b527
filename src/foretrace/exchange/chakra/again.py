"""A graph that came from Chakra files goes back into them: nothing is lost, edits are written.

Ids, names, types and attributes stay as they were. A dependency stays where it stood, in data or
control, if the graph still has it, or if it names a node that the file never had; those the graph
gained become data dependencies. Durations are written where the graph's differ from the file's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.base import Bools, Int64s
from foretrace.graph import ChakraOrigin, EdgeKind, ExecutionGraph, NodeKind
from foretrace.trace import Attributes, ChakraNodes, ChakraTrace, ValueField

_DURATION_NS = "duration_ns"


def nodes_again(graph: ExecutionGraph, origin: ChakraOrigin, place: int) -> ChakraNodes:
    """The nodes of one of the files that the graph came from, as the graph has them now."""
    trace = origin.traces[place]
    own = np.flatnonzero((origin.trace == place) & (graph.kind != NodeKind.ARRIVE))
    duration_ns = np.zeros(len(trace.nodes), np.int64)
    duration_ns[origin.row[own]] = graph.measured_ns[own]
    nodes = _with_dependencies(
        trace,
        _stated_edges(graph, origin, place),
        is_control_held=origin.is_control_held[place],
    )
    return _with_durations(nodes, duration_ns)


def _stated_edges(graph: ExecutionGraph, origin: ChakraOrigin, place: int) -> tuple[Int64s, Int64s]:
    """Rows waited for and rows that wait, of one file."""
    target = graph.edge_target
    source = graph.predecessor
    is_stated = graph.edge_kind == EdgeKind.STATED
    is_stated &= (origin.trace[source] == place) & (origin.trace[target] == place)
    return origin.row[source[is_stated]], origin.row[target[is_stated]]


def _with_dependencies(
    trace: ChakraTrace, edges: tuple[Int64s, Int64s], *, is_control_held: bool
) -> ChakraNodes:
    nodes = trace.nodes
    source, target = edges
    count = len(nodes)
    by_id = np.argsort(nodes.node_id, kind="stable")
    ids = nodes.node_id[by_id]
    is_new = np.ones(len(source), np.bool_)
    stated = target * count + source
    lists = []
    for first, wanted, is_held in (
        (nodes.first_data, nodes.data, True),
        (nodes.first_control, nodes.control, is_control_held),
    ):
        row = np.repeat(np.arange(count), np.diff(first))
        at = np.minimum(np.searchsorted(ids, wanted), max(count - 1, 0))
        is_here: Bools = ids[at] == wanted if count else np.zeros(0, np.bool_)
        key = row * count + by_id[at] if count else row
        is_kept = ~is_here | np.isin(key, stated) if is_held else np.ones(len(key), np.bool_)
        is_new &= ~np.isin(stated, key)
        lists.append((row[is_kept], wanted[is_kept]))
    (data_row, data), (control_row, control) = lists
    data_row = np.concatenate([data_row, target[is_new]])
    data = np.concatenate([data, nodes.node_id[source[is_new]]])
    order = np.argsort(data_row, kind="stable")
    return replace(
        nodes,
        first_data=_first(data_row, count),
        data=data[order],
        first_control=_first(control_row, count),
        control=control,
    )


def _first(row: Int64s, count: int) -> Int64s:
    first = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(row, minlength=count), out=first[1:])
    return first


def _with_durations(nodes: ChakraNodes, duration_ns: Int64s) -> ChakraNodes:
    """Durations that differ from what the file says, in micros and, exactly, in an attribute."""
    stated_ns = nodes.duration_micros * 1000
    has_ns = nodes.has(_DURATION_NS)
    stated_ns[has_ns] = nodes.numbers(_DURATION_NS)[has_ns]
    changed = np.flatnonzero(stated_ns != duration_ns)
    if not len(changed):
        return nodes
    micros = nodes.duration_micros.copy()
    micros[changed] = (duration_ns[changed] + 500) // 1000
    return _with_numbers(
        replace(nodes, duration_micros=micros), _DURATION_NS, changed, duration_ns[changed]
    )


def _with_numbers(nodes: ChakraNodes, name: str, rows: Int64s, values: Int64s) -> ChakraNodes:
    """These rows with an int64 attribute of that name, in place of one that they had."""
    attributes, texts = nodes.attributes, nodes.texts.with_text(name)
    text = texts.found(name)
    owner = np.repeat(np.arange(len(nodes)), np.diff(attributes.first))
    is_kept = (attributes.name != text) | ~np.isin(owner, rows)
    owner = np.concatenate([owner[is_kept], rows])
    order = np.argsort(owner, kind="stable")
    count = len(rows)
    columns = (
        (attributes.name, np.full(count, text, np.int32)),
        (attributes.doc, np.full(count, -1, np.int32)),
        (attributes.field, np.full(count, ValueField.INT64, np.uint8)),
        (attributes.value, values),
    )
    joined = [np.concatenate([old[is_kept], new])[order] for old, new in columns]
    return replace(nodes, texts=texts, attributes=Attributes(_first(owner, len(nodes)), *joined))
