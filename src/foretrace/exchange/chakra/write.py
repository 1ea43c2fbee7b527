"""A graph becomes Chakra files: one per rank, and one that lists the communicators.

`write_chakra(out / "job", graph)` makes `job.0.et`, `job.1.et`, ... and `job.groups.json`, as
ASTRA-sim takes them: `--workload-configuration=job --comm-group-configuration=job.groups.json`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeAlias

import msgspec

from foretrace.base import Int64s, written_beside
from foretrace.exchange.chakra.again import nodes_again
from foretrace.exchange.chakra.collectives import (
    Communicator,
    communication_columns,
    communicators,
)
from foretrace.exchange.chakra.columns import Source, node_batches
from foretrace.exchange.chakra.messages import (
    Value,
    copied_metadata,
    metadata_message,
    write_nodes,
)
from foretrace.exchange.chakra.pool import TextPool
from foretrace.exchange.chakra.records import records_of
from foretrace.graph import ChakraOrigin, ExecutionGraph, Timeline
from foretrace.trace import CHAKRA_VERSION, ChakraNodes, ValueField

FORMAT = 1  # of the attributes that make a graph again


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
    duration_ns: Int64s | None = None,
    timeline: Timeline | None = None,
    origin: ChakraOrigin | None = None,
) -> Written:
    """Write a graph as Chakra.

    Args:
        prefix: folder and first part of the files' names.
        graph: of any origin.
        duration_ns: int64[nodes], how long each node takes; the graph's own, if left out.
        timeline: when each node started and ended; no start is written, if left out.
        origin: the Chakra files that the graph came from; they are then written again, with what
            has changed, and start times stay as they were.

    Raises:
        GraphError: if a node waits for another rank's node other than in a collective.
    """
    if duration_ns is not None:
        graph = replace(graph, measured_ns=duration_ns)
    files = _files_again(graph, origin) if origin is not None else _files(graph, timeline)
    groups_path = prefix.with_name(f"{prefix.name}.groups.json")
    paths, num_nodes = [], 0
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


_File: TypeAlias = tuple[int, bytes, Iterable[ChakraNodes]]  # rank, metadata, nodes


def _files(graph: ExecutionGraph, timeline: Timeline | None) -> Iterator[_File]:
    pool = TextPool(graph.names)
    groups = communicators(graph)
    source = Source(records_of(graph), communication_columns(graph, groups, pool), timeline, pool)
    for rank in graph.ranks:
        metadata = metadata_message(CHAKRA_VERSION, _metadata(graph, rank, groups))
        yield rank, metadata, node_batches(source, rank)


def _files_again(graph: ExecutionGraph, origin: ChakraOrigin) -> Iterator[_File]:
    for place, trace in enumerate(origin.traces):
        rank = place if trace.rank is None else trace.rank
        yield rank, copied_metadata(trace.metadata), [nodes_again(graph, origin, place)]


def _metadata(
    graph: ExecutionGraph, rank: int, groups: tuple[Communicator, ...]
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


def _write_groups(path: Path, groups: tuple[Communicator, ...]) -> None:
    members = {str(group.number): list(group.ranks) for group in groups}
    with written_beside(path) as beside:
        beside.write_bytes(msgspec.json.format(msgspec.json.encode(members), indent=0))
