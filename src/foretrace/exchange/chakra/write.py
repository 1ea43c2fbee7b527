"""A graph becomes Chakra files: one per rank, and one that lists the communicators.

`write_chakra(out / "job", graph)` makes `job.0.et`, `job.1.et`, ... and `job.groups.json`, as
ASTRA-sim takes them: `--workload-configuration=job --comm-group-configuration=job.groups.json`.

A graph that came from Chakra files goes back into them without loss, with its edits. Ids, names,
types and attributes stay as they were. A dependency stays where it stood, in data or control, if
the graph still has it, or if it names a node that the file never had; those the graph gained become
data dependencies. Durations are written where the graph's differ from the file's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import msgspec
import numpy as np

from foretrace.base import (
    NS_PER_US,
    Bools,
    Int64s,
    row_starts,
    write_whole,
    written_beside,
    written_together,
)
from foretrace.exchange.chakra.columns import WrittenGraph, node_batches
from foretrace.exchange.chakra.messages import (
    TextPool,
    Value,
    copied_metadata,
    metadata_message,
    write_nodes,
)
from foretrace.exchange.chakra.records import (
    NumberedGroup,
    communication_columns,
    communicators,
    records_of,
)
from foretrace.graph import ChakraOrigin, EdgeKind, ExecutionGraph, NodeKind, Timeline
from foretrace.trace import CHAKRA_VERSION, Attributes, ChakraNodes, ChakraTrace, ValueField

FORMAT = 1  # of the attributes that make a graph again
_File: TypeAlias = tuple[int, bytes, Iterable[ChakraNodes]]  # rank, metadata, nodes
_DURATION_NS = "duration_ns"


@dataclass(frozen=True)
class Written:
    """What was written."""

    paths: tuple[Path, ...]  # by rank
    groups_path: Path
    num_nodes: int
    num_bytes: int


def write_chakra(
    prefix: Path,
    graph: ExecutionGraph,
    *,
    timeline: Timeline | None = None,
    origin: ChakraOrigin | None = None,
) -> Written:
    """Write a graph as Chakra.

    Args:
        prefix: folder and first part of the files' names.
        graph: of any origin.
        timeline: when each node started and ended; no start is written, if left out.
        origin: the Chakra files that the graph came from; they are then written again, with what
            has changed, and start times stay as they were.

    Raises:
        GraphError: if a node waits for another rank's node other than in a collective.
    """
    files = _files_again(graph, origin) if origin is not None else _files(graph, timeline)
    groups_path = prefix.with_name(f"{prefix.name}.groups.json")
    paths, num_nodes = [], 0
    with written_together():
        for rank, metadata, batches in files:
            path = prefix.with_name(f"{prefix.name}.{rank}.et")
            with written_beside(path) as beside, beside.open("wb") as out:
                out.write(metadata)
                for nodes in batches:
                    write_nodes(out, nodes)
                    num_nodes += len(nodes)
            paths.append(path)
        _write_groups(groups_path, communicators(graph))
    num_bytes = sum(path.stat().st_size for path in paths)
    return Written(tuple(paths), groups_path, num_nodes, num_bytes)


def _files(graph: ExecutionGraph, timeline: Timeline | None) -> Iterator[_File]:
    pool = TextPool(graph.names)
    groups = communicators(graph)
    source = WrittenGraph(
        records_of(graph), communication_columns(graph, groups, pool), timeline, pool
    )
    for rank in graph.ranks:
        metadata = metadata_message(CHAKRA_VERSION, _metadata(graph, rank, groups))
        yield rank, metadata, node_batches(source, rank)


def _files_again(graph: ExecutionGraph, origin: ChakraOrigin) -> Iterator[_File]:
    for place, trace in enumerate(origin.traces):
        rank = place if trace.rank is None else trace.rank
        yield rank, copied_metadata(trace.metadata), [nodes_again(graph, origin, place)]


def _metadata(
    graph: ExecutionGraph, rank: int, groups: tuple[NumberedGroup, ...]
) -> Mapping[str, tuple[ValueField, Value]]:
    """What is said once per file; tables of the graph as JSON text."""
    lanes = {
        str(index): [lane.is_device, lane.process, lane.device, lane.number]
        for index, lane in enumerate(graph.lanes)
        if lane.rank == rank
    }
    constants = [
        [int(one.kind), one.lag_ns, one.num_samples, one.low_ns, one.high_ns]
        for one in graph.constants
    ]
    own = {
        str(group.number): [group.name, list(group.ranks)]
        for group in groups
        if rank in group.ranks
    }
    return {
        "foretrace": (ValueField.INT32, FORMAT),
        "rank": (ValueField.INT32, rank),
        "num_ranks": (ValueField.INT32, len(graph.ranks)),
        "lanes": (ValueField.STRING, _json(lanes)),
        "constants": (ValueField.STRING, _json(constants)),
        "groups": (ValueField.STRING, _json(own)),
        "steps": (ValueField.STRING, _json(graph.step_names)),
    }


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _write_groups(path: Path, groups: tuple[NumberedGroup, ...]) -> None:
    members = {str(group.number): list(group.ranks) for group in groups}
    write_whole(path, msgspec.json.format(msgspec.json.encode(members), indent=0))


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
        first_data=row_starts(data_row, count),
        data=data[order],
        first_control=row_starts(control_row, count),
        control=control,
    )


def _with_durations(nodes: ChakraNodes, duration_ns: Int64s) -> ChakraNodes:
    """Durations that differ from what the file says, in micros and, exactly, in an attribute."""
    stated_ns = nodes.duration_micros * NS_PER_US
    has_ns = nodes.has(_DURATION_NS)
    stated_ns[has_ns] = nodes.numbers(_DURATION_NS)[has_ns]
    changed = np.flatnonzero(stated_ns != duration_ns)
    if not len(changed):
        return nodes
    micros = nodes.duration_micros.copy()
    micros[changed] = (duration_ns[changed] + NS_PER_US // 2) // NS_PER_US
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
    return replace(
        nodes, texts=texts, attributes=Attributes(row_starts(owner, len(nodes)), *joined)
    )
