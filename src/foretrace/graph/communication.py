"""What each communication operation is: its type, group, size and peers, read from the trace.

Metadata stands on the kernel itself (new profilers), on the `record_param_comms` operator that
encloses its launch, or on the `c10d::` call that issued it (CPU). Where it stands nowhere, the
kernel's name gives the type, and the stream stands for the group.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s
from foretrace.graph.operations import Operations
from foretrace.trace import Trace, collective_kind_of

UNKNOWN = -1

ELEMENT_BYTES = {  # bytes of one element, by the names that PyTorch writes
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "half": 2, "bfloat16": 2, "short": 2, "int16": 2, "f16": 2, "float16": 2, "bf16": 2,
    "float": 4, "int": 4, "float32": 4, "f32": 4, "int32": 4,
    "double": 8, "long": 8, "int64": 8, "float64": 8, "long int": 8, "f64": 8,
    "c10::half": 2, "c10::bfloat16": 2, "signed char": 1, "unsigned char": 1,
}  # fmt: skip
_RANK_LIST = re.compile(r"\[\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\]$")
_FIRST_SHAPE = re.compile(r"\[\s*(\d+(?:\s*,\s*\d+)*)\s*\]")
_FIRST_TYPE = re.compile(r'"(c10::\w+|float|double|half|long int|int|signed char|unsigned char)"')


@dataclass(frozen=True)
class CommunicationOps:
    """One row per communication operation, in order of rank, then start."""

    op: Int64s  # int64[rows], position in `Operations.ops`
    rank: Int64s  # int64[rows], position among the traces
    kind: tuple[str, ...]  # "allreduce", "send", ...
    group: tuple[str, ...]  # process group name; "" unknown
    members: tuple[tuple[int, ...], ...]  # ranks of the group; () unknown
    group_size: Int64s  # int64[rows]; UNKNOWN
    sequence: Int64s  # int64[rows], number inside the group; UNKNOWN
    num_bytes: Int64s  # int64[rows], payload per rank; UNKNOWN
    dtype: tuple[str, ...]  # "" unknown
    source_rank: Int64s  # int64[rows], of a transfer between two; UNKNOWN
    destination_rank: Int64s  # int64[rows]
    start_ns: Int64s  # int64[rows], raw clock
    end_ns: Int64s  # int64[rows]
    lane: Int64s  # int64[rows]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.op)


def communication_ops(operations: Operations) -> CommunicationOps:
    """The communication operations of all ranks, with what the traces say of each."""
    ops = operations.ops
    chosen = np.flatnonzero(ops.is_communication)
    chosen = chosen[np.lexsort((ops.end_ns[chosen], ops.start_ns[chosen], ops.rank[chosen]))]
    rank = ops.rank[chosen].astype(np.int64)
    rows: list[_Description] = []
    peers: list[tuple[int, int]] = []
    for position, trace in enumerate(operations.traces):
        of_rank = chosen[rank == position]
        reader = _Reader(trace)
        rows.extend(
            reader.description(event, issue, operations.names[name])
            for event, issue, name in zip(
                ops.event[of_rank].tolist(),
                _issue_events(operations, trace, of_rank).tolist(),
                ops.name[of_rank].tolist(),
                strict=True,
            )
        )
        own = operations.ranks[position]
        peers.extend(_ends(row, own) for row in rows[len(peers) :])
    return CommunicationOps(
        op=chosen,
        rank=rank,
        kind=tuple(row.kind for row in rows),
        group=tuple(row.group for row in rows),
        members=tuple(row.members for row in rows),
        group_size=np.array([row.group_size for row in rows], np.int64),
        sequence=np.array([row.sequence for row in rows], np.int64),
        num_bytes=np.array([row.num_bytes for row in rows], np.int64),
        dtype=tuple(row.dtype for row in rows),
        source_rank=np.array([source for source, _ in peers], np.int64),
        destination_rank=np.array([destination for _, destination in peers], np.int64),
        start_ns=ops.start_ns[chosen],
        end_ns=ops.end_ns[chosen],
        lane=ops.lane[chosen].astype(np.int64),
    )


@dataclass(frozen=True)
class _Description:
    kind: str
    group: str
    members: tuple[int, ...]
    group_size: int
    sequence: int
    num_bytes: int
    dtype: str
    source_rank: int
    destination_rank: int


def _ends(row: _Description, own_rank: int) -> tuple[int, int]:
    """Sender and receiver of a transfer: the trace names only the other end."""
    if row.kind == "send" and row.destination_rank >= 0:
        return own_rank, row.destination_rank
    if row.kind == "recv" and row.source_rank >= 0:
        return row.source_rank, own_rank
    return row.source_rank, row.destination_rank


class _Reader:
    """Reads descriptions from one trace's collective columns; equal texts are parsed once."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._row_of_event = {
            event: row for row, event in enumerate(trace.collectives.event.tolist())
        }
        self._members: dict[int, tuple[int, ...]] = {}
        self._ranks_of_group = {group.name: group.ranks for group in trace.meta.process_groups}

    def description(self, event: int, issue: int, name: str) -> _Description:
        """What is known of the operation at `event`, launched inside the operator at `issue`."""
        kind_by_name = collective_kind_of(name)
        rows = [self._row_of_event.get(event), self._row_of_event.get(issue)]
        known = [row for row in rows if row is not None]
        if not known:
            num_bytes, dtype = self._size_by_shape(issue, name)
            return _Description(
                kind_by_name, "", (), UNKNOWN, UNKNOWN, num_bytes, dtype, UNKNOWN, UNKNOWN
            )
        columns = self._trace.collectives
        dtype = self._text(columns.dtype, known)
        elements = max(self._number(columns.in_elements, known), self._number(columns.out_elements, known))
        group = self._text(columns.group, known)
        kind = collective_kind_of(self._text(columns.collective, known) or name)
        members = self._member_ranks(known) or self._ranks_of_group.get(group, ())
        element_bytes = ELEMENT_BYTES.get(dtype.lower(), UNKNOWN)
        return _Description(
            kind=kind,
            group=group,
            members=members,
            group_size=self._number(columns.group_size, known),
            sequence=self._number(columns.sequence, known),
            num_bytes=elements * element_bytes if min(elements, element_bytes) >= 0 else UNKNOWN,
            dtype=dtype,
            source_rank=self._number(columns.source_rank, known),
            destination_rank=self._number(columns.destination_rank, known),
        )

    def _text(self, column: Int64s, rows: list[int]) -> str:
        for row in rows:
            if column[row] >= 0:
                return self._trace.strings[column[row]]
        return ""

    @staticmethod
    def _number(column: Int64s, rows: list[int]) -> int:
        for row in rows:
            if column[row] >= 0:
                return int(column[row])
        return UNKNOWN

    def _member_ranks(self, rows: list[int]) -> tuple[int, ...]:
        for row in rows:
            text = int(self._trace.collectives.group_ranks[row])
            if text < 0:
                continue
            if text not in self._members:
                match = _RANK_LIST.match(self._trace.strings[text].strip())
                self._members[text] = (
                    tuple(int(rank) for rank in match.group(1).split(",")) if match else ()
                )
            if self._members[text]:
                return self._members[text]
        return ()

    def _size_by_shape(self, issue: int, name: str) -> tuple[int, str]:
        """Payload and dtype from the issuing operator's shapes and the kernel's name."""
        dtype = ""
        match = re.search(r"_(f16|f32|f64|bf16|float|half|double|int8_t|int32_t)\b", name)
        if match:
            dtype = match.group(1).removesuffix("_t")
        if issue < 0 or self._trace.signature[issue] < 0:
            return UNKNOWN, dtype
        text = self._trace.strings[self._trace.signature[issue]]
        if not dtype and (found := _FIRST_TYPE.search(text)):
            dtype = found.group(1)
        shape = _FIRST_SHAPE.search(text)
        element_bytes = ELEMENT_BYTES.get(dtype.lower(), UNKNOWN)
        if not shape or element_bytes < 0:
            return UNKNOWN, dtype
        return int(np.prod([int(size) for size in shape.group(1).split(",")])) * element_bytes, dtype


def _issue_events(operations: Operations, trace: Trace, of_rank: Int64s) -> Int64s:
    """Row of the operator that issued each operation, int64; -1 where there is none.

    On a device: the `record_param_comms` on the launching thread that the launch lies in.
    On the CPU: the `c10d::` call itself, which is the launch.
    """
    launch = operations.ops.launch[of_rank]
    issue = np.full(len(of_rank), -1, np.int64)
    is_launched = launch >= 0
    if not is_launched.any():
        return issue
    if not trace_has_device(operations, of_rank):
        issue[is_launched] = operations.items.event[launch[is_launched]]
        return issue
    name = np.array([text == "record_param_comms" for text in trace.strings])
    rows = np.flatnonzero(name[trace.name])
    if not len(rows):
        return issue
    launch_rows = operations.items.event[launch[is_launched]]
    # Rows are sorted by start over all lanes; look on the launch's own lane.
    found = np.full(len(launch_rows), -1, np.int64)
    for lane in np.unique(trace.lane[launch_rows]).tolist():
        on_lane = rows[trace.lane[rows] == lane]
        mine = np.flatnonzero(trace.lane[launch_rows] == lane)
        at_ns = trace.start_ns[launch_rows[mine]]
        if not len(on_lane):
            continue
        before = np.searchsorted(trace.start_ns[on_lane], at_ns, side="right") - 1
        row = on_lane[np.maximum(before, 0)]
        encloses = (before >= 0) & (trace.start_ns[row] + trace.duration_ns[row] >= at_ns)
        found[mine] = np.where(encloses, row, -1)
    issue[is_launched] = found
    return issue


def trace_has_device(operations: Operations, of_rank: Int64s) -> bool:
    """Whether these operations of one rank ran on a device rather than on the CPU's workers."""
    return bool(len(of_rank)) and operations.lanes[operations.ops.lane[of_rank[0]]].is_device
