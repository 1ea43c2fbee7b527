"""Chakra files that other tools wrote: dependencies as stated, resources as consumers have them.

Host operators of one thread run one after the other, and so does work on one stream, in an order
that all dependencies allow: by id where that is one. Where a file names no threads and streams,
a rank has one processor, one device for computation and one for communication, as in ASTRA-sim.
Collectives meet by process group, in the order in which each rank comes to them.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foretrace.base import NS_PER_US, Bools, CircleError, GraphError, Int64s, UInt8s
from foretrace.graph.chakra.collectives import StatedMeetings, meetings_of
from foretrace.graph.chakra.records import COLUMNS, StatedRecords
from foretrace.graph.graph import EdgeConstant, Finding, Lane
from foretrace.graph.nodes import NO_COLLECTIVE, WHOLE, EdgeKind, NodeKind
from foretrace.graph.operations import OWN_NAMES, NamePool
from foretrace.trace import ChakraNodes, ChakraTrace, NodeType, unknown_kinds

_COMMUNICATION = (NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.COMM_RECV)
_MEMORY = (NodeType.MEM_LOAD, NodeType.MEM_STORE)
# Streams of a device whose file names none.
_COMPUTE, _COMMUNICATE, _COPY = 0, 1, 2
NUM_MARKS = 3  # records before a rank's own: its start, and the begin and end of its step

# The kinds of the records that stand before a rank's own, and their durations.
_MARK_KINDS = (NodeKind.RANK_START, NodeKind.STEP_BEGIN, NodeKind.STEP_END)
_NO_MARKS = (0,) * NUM_MARKS


@dataclass(frozen=True)
class Foreign:
    """Records of files that other tools wrote."""

    records: StatedRecords
    findings: tuple[Finding, ...]
    has_times: bool  # whether the files say when
    is_control_held: tuple[bool, ...]  # as `ChakraOrigin` has it


@dataclass(frozen=True)
class _File:
    """One file's records; `first` is where its rows stand among all records."""

    trace: ChakraTrace
    rank: int
    first: int
    kind: UInt8s  # uint8[rows], NodeKind; FINISH of communication
    is_device: Bools  # bool[rows]
    number: Int64s  # int64[rows], thread or stream
    duration_ns: Int64s
    start_ns: Int64s
    source: Int64s  # int64[edges], rows
    target: Int64s  # int64[edges]
    order: Int64s  # int64[rows], rows in an order that dependencies allow
    is_control_held: bool  # whether control dependencies are among the edges


def foreign_records(
    traces: Sequence[ChakraTrace],
) -> Foreign:
    """The records of all files, and what a reader should know.

    Raises:
        GraphError: if there is no node.
        CircleError: if a file's dependencies close a circle.
    """
    findings: list[Finding] = []
    files, first = [], 0
    for place, trace in enumerate(traces):
        rank = place if trace.rank is None else trace.rank
        files.append(_file(trace, rank, first + NUM_MARKS, findings))
        first += len(trace.nodes) + NUM_MARKS
    if not any(len(file.kind) for file in files):
        raise GraphError(
            f"nothing to simulate in {traces[0].path}: it holds no node but its metadata; "
            "name the file of a run"
        )
    pool = NamePool()
    meetings = meetings_of([(file.trace, file.rank, file.kind, file.order) for file in files])
    findings += meetings.findings
    for one in meetings.collectives:
        pool.of(one.name)
    has_times = all((file.start_ns > 0).any() for file in files)
    records = _records(files, meetings, pool, has_times=has_times)
    findings += _untimed(files, has_times=has_times)
    return Foreign(
        records, tuple(findings), has_times, tuple(file.is_control_held for file in files)
    )


def _file(trace: ChakraTrace, rank: int, first: int, findings: list[Finding]) -> _File:
    nodes = trace.nodes
    kind, is_device = _kinds(nodes)
    is_control_held = True
    source, target = _dependencies(trace, findings)
    order = _order(nodes.node_id, source, target)
    if len(order) < len(nodes):
        # Control dependencies of traces from PyTorch name the caller, which ends last.
        is_control_held = False
        source, target = _dependencies(trace, [], has_control=False)
        order = _order(nodes.node_id, source, target)
        findings.append(
            Finding(
                "dependencies",
                f"rank {rank}: with its control dependencies nodes would wait for each other in a "
                "circle; its data dependencies alone hold nodes up.",
                (trace.path,),
            )
        )
    if len(order) < len(nodes):
        raise _circle(trace, order)
    findings += [
        Finding("types of nodes", f"rank {rank}: {told}.", (trace.path,))
        for told in unknown_kinds(nodes)
    ]
    duration_ns = nodes.duration_micros * NS_PER_US
    has_ns = nodes.has("duration_ns")
    duration_ns[has_ns] = nodes.numbers("duration_ns")[has_ns]
    start_ns = nodes.start_micros * NS_PER_US
    has_ns = nodes.has("start_ns")
    start_ns[has_ns] = nodes.numbers("start_ns")[has_ns]
    return _File(
        trace, rank, first, kind, is_device, _lane_numbers(nodes, kind, is_device),
        duration_ns, start_ns, source, target, order, is_control_held,
    )  # fmt: skip


def _circle(trace: ChakraTrace, order: Int64s) -> CircleError:
    is_stuck = np.ones(len(trace.nodes), np.bool_)
    is_stuck[order] = False
    stuck = trace.nodes.node_id[is_stuck]
    return CircleError(
        f"cannot simulate {trace.path}: {len(stuck):,} nodes wait for each other in a circle, "
        f"among them ids {stuck[:5].tolist()}; correct their data_deps"
    )


def _kinds(nodes: ChakraNodes) -> tuple[UInt8s, Bools]:
    """What each record is, and whether it runs on a device."""
    is_cpu = nodes.numbers("is_cpu_op") != 0  # absent: Chakra's feeder takes it for device work
    is_cpu |= np.isin(nodes.kind, (NodeType.METADATA, NodeType.INVALID))
    is_cpu |= nodes.kind >= len(NodeType)  # of no device that is known
    kind = np.where(is_cpu, NodeKind.OPERATOR, NodeKind.KERNEL).astype(np.uint8)
    kind[~is_cpu & np.isin(nodes.kind, _MEMORY)] = NodeKind.MEMCPY
    used = np.unique(nodes.name)
    for prefix, what in (("Memcpy", NodeKind.MEMCPY), ("Memset", NodeKind.MEMSET)):
        named = [text for text in used.tolist() if nodes.texts[text].startswith(prefix)]
        kind[~is_cpu & np.isin(nodes.name, named)] = what
    kind[~is_cpu & np.isin(nodes.kind, _COMMUNICATION)] = NodeKind.FINISH
    return kind, ~is_cpu


def _lane_numbers(nodes: ChakraNodes, kind: UInt8s, is_device: Bools) -> Int64s:
    number = nodes.numbers("tid")
    # What no schema names runs beside all else, each type in its turn.
    is_unknown = (nodes.kind >= len(NodeType)) & ~nodes.has("tid")
    number[is_unknown] = -1 - nodes.kind[is_unknown].astype(np.int64)
    stream = nodes.numbers("stream", -1)
    is_streamed = is_device & (stream >= 0)
    number[is_streamed] = stream[is_streamed]
    is_nowhere = is_device & ~is_streamed & ~nodes.has("tid")
    number[is_nowhere] = _COMPUTE
    number[is_nowhere & (kind == NodeKind.FINISH)] = _COMMUNICATE
    number[is_nowhere & np.isin(nodes.kind, _MEMORY)] = _COPY
    return number


def _dependencies(
    trace: ChakraTrace, findings: list[Finding], *, has_control: bool = True
) -> tuple[Int64s, Int64s]:
    """Rows waited for and rows that wait: data first, then control; each pair once."""
    nodes = trace.nodes
    by_id = np.argsort(nodes.node_id, kind="stable")
    ids = nodes.node_id[by_id]
    if len(ids) and (np.diff(ids) == 0).any():
        twice = int(ids[:-1][np.diff(ids) == 0][0])
        raise GraphError(
            f"cannot read {trace.path}: two of its nodes have the id {twice}; ids must differ"
        )
    count = len(nodes)
    lists = [(nodes.first_data, nodes.data)]
    if has_control:
        lists.append((nodes.first_control, nodes.control))
    wanted = np.concatenate([each for _, each in lists])
    target = np.concatenate([np.repeat(np.arange(count), np.diff(first)) for first, _ in lists])
    at = np.minimum(np.searchsorted(ids, wanted), max(count - 1, 0))
    is_here = ids[at] == wanted if count else np.zeros(0, np.bool_)
    source = by_id[at[is_here]] if count else at
    if not is_here.all():
        findings.append(
            Finding(
                "dependencies",
                f"rank {trace.rank}: {int((~is_here).sum()):,} of {len(wanted):,} dependencies "
                "name nodes that are not in the file; they hold nothing up.",
                (trace.path,),
            )
        )
    key = source * count + target[is_here]
    _, first = np.unique(key, return_index=True)
    first.sort()
    return source[first], target[is_here][first]


def _order(ids: Int64s, source: Int64s, target: Int64s) -> Int64s:
    """Rows in an order in which none stands before what it waits for: the lowest id first.

    Those in circles are left out.
    """
    by_id = np.argsort(ids, kind="stable")
    if (ids[source] < ids[target]).all():
        return by_id
    waits = np.bincount(target, minlength=len(ids))
    successors: dict[int, list[int]] = defaultdict(list)
    for one, other in zip(source.tolist(), target.tolist(), strict=True):
        successors[one].append(other)
    ready = [(int(ids[row]), int(row)) for row in np.flatnonzero(waits == 0).tolist()]
    heapq.heapify(ready)
    order: list[int] = []
    while ready:
        _, row = heapq.heappop(ready)
        order.append(row)
        for other in successors[row]:
            waits[other] -= 1
            if not waits[other]:
                heapq.heappush(ready, (int(ids[other]), other))
    return np.array(order, np.int64)


def _untimed(files: Sequence[_File], *, has_times: bool) -> list[Finding]:
    findings = []
    num_nodes = sum(len(file.kind) for file in files)
    num_untimed = sum(int((file.duration_ns == 0).sum()) for file in files)
    if num_untimed:
        findings.append(
            Finding(
                "durations",
                f"{num_untimed:,} of {num_nodes:,} nodes state no duration and take none in a "
                "replay; a cost model can give them one.",
            )
        )
    if not has_times:
        findings.append(
            Finding(
                "times",
                "the files do not say when anything began, so there is no measured timeline; "
                "what is shown as one is the replay.",
            )
        )
    return findings


def _records(
    files: Sequence[_File], meetings: StatedMeetings, pool: NamePool, *, has_times: bool
) -> StatedRecords:
    """All files' records, each file's start and step marks before its own."""
    lanes = _lanes(files)
    place = {lane: at for at, lane in enumerate(lanes)}
    parts = [_file_columns(file, place, pool) for file in files]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in COLUMNS}
    kind = np.concatenate([_with_marks(file.kind, _MARK_KINDS) for file in files])
    columns["collective"][:] = NO_COLLECTIVE
    for file, collective in zip(files, meetings.collective, strict=True):
        columns["collective"][file.first : file.first + len(file.kind)] = collective
    duration_ns = np.concatenate([_with_marks(file.duration_ns, _NO_MARKS) for file in files])
    start_ns = np.concatenate([_started(file) for file in files])
    if has_times:
        start_ns -= start_ns.min()
    edges = [np.concatenate(each) for each in zip(*map(_edges, files), strict=True)]
    constants = {one: EdgeConstant(one, 0, 0, 0, 0) for one in (EdgeKind.STREAM, EdgeKind.STATED)}
    return StatedRecords(
        kind=kind.astype(np.uint8),
        columns=columns,
        duration_ns=duration_ns,
        start_ns=start_ns,
        end_ns=start_ns + duration_ns,
        inflation=np.ones(len(kind), np.float32),
        source=edges[0],
        target=edges[1],
        edge_kind=edges[2].astype(np.uint8),
        is_to_meeting=np.zeros(len(edges[0]), np.bool_),
        waits_source=np.zeros(0, np.int64),
        waits_target=np.zeros(0, np.int64),
        constants=constants,
        names=pool.names(),
        lanes=lanes,
        step_names=(WHOLE,),
        collectives=meetings.collectives,
    )


def _with_marks(values: NDArray[np.generic], marks: Sequence[int]) -> NDArray[np.generic]:
    return np.concatenate([np.array(marks, values.dtype), values])


def _started(file: _File) -> Int64s:
    """Start of each record; the step begins with the first and ends with the last."""
    if not len(file.kind):
        return np.zeros(NUM_MARKS, np.int64)
    first, last = file.start_ns.min(), (file.start_ns + file.duration_ns).max()
    return np.concatenate([[first, first, last], file.start_ns])


def _lane_of(file: _File, *, is_device: bool, number: int) -> Lane:
    return Lane(file.rank, is_device, file.rank, file.rank if is_device else -1, number)


def _main_thread(file: _File) -> int:
    """The thread with most operators; 0 of a file without any."""
    threads, count = np.unique(file.number[~file.is_device], return_counts=True)
    return int(threads[np.argmax(count)]) if len(threads) else 0


def _lanes(files: Sequence[_File]) -> tuple[Lane, ...]:
    lanes = {
        _lane_of(file, is_device=bool(is_device), number=int(number))
        for file in files
        for is_device, number in {
            (False, _main_thread(file)),
            *zip(file.is_device.tolist(), file.number.tolist(), strict=True),
        }
    }
    return tuple(sorted(lanes, key=lambda lane: (lane.rank, lane.is_device, lane.number)))


def _file_columns(
    file: _File, place: Mapping[Lane, int], pool: NamePool
) -> dict[str, NDArray[np.integer]]:
    """The columns of a file's records, its marks first."""
    count = len(file.kind)
    columns = {name: np.full(NUM_MARKS + count, column.neutral) for name, column in COLUMNS.items()}
    columns["rank"][:] = file.rank
    columns["step"][1:] = 0
    names = [OWN_NAMES.index(name) for name in ("rank start", "step begin", "step end")]
    columns["name"][:] = _with_marks(
        pool.of_column(file.trace.nodes.texts, file.trace.nodes.name), names
    )
    main = place[_lane_of(file, is_device=False, number=_main_thread(file))]
    columns["lane"][:NUM_MARKS] = main
    for is_device in (False, True):
        chosen = file.is_device == is_device
        for number in np.unique(file.number[chosen]).tolist():
            lane = place[_lane_of(file, is_device=is_device, number=number)]
            columns["lane"][NUM_MARKS:][chosen & (file.number == number)] = lane
    return columns


def _edges(file: _File) -> tuple[Int64s, Int64s, Int64s]:
    """Sources, targets and kinds of all edges of a file, records counted over all files."""
    begin, end = file.first - NUM_MARKS + 1, file.first - NUM_MARKS + 2
    start = file.first - NUM_MARKS
    main = _main_thread(file)
    parts = [(file.source + file.first, file.target + file.first, EdgeKind.STATED)]
    ordered = file.order
    threads = np.unique(file.number[~file.is_device]).tolist()
    for thread in dict.fromkeys((main, *threads)):
        rows = ordered[~file.is_device[ordered] & (file.number[ordered] == thread)] + file.first
        chain = [start, begin, *rows.tolist(), end] if thread == main else [start, *rows.tolist()]
        parts.append((np.array(chain[:-1]), np.array(chain[1:]), EdgeKind.HOST_ORDER))
    for stream in np.unique(file.number[file.is_device]).tolist():
        rows = ordered[file.is_device[ordered] & (file.number[ordered] == stream)] + file.first
        parts.append((rows[:-1], rows[1:], EdgeKind.STREAM))
    return (
        np.concatenate([source for source, _, _ in parts]).astype(np.int64),
        np.concatenate([target for _, target, _ in parts]).astype(np.int64),
        np.concatenate([np.full(len(source), int(kind)) for source, _, kind in parts]),
    )
