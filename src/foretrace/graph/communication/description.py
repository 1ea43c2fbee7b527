"""What each communication operation is: its type, group, size and peers, read from the trace.

Metadata stands on the kernel itself (new profilers), on the `record_param_comms` operator that
encloses its launch, or on the `c10d::` call that issued it (CPU). Where it stands nowhere, the
kernel's name gives the type, and the stream stands for the group.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from foretrace.base import (
    CollectiveKind,
    Int32s,
    Int64s,
    collective_kind_of,
    number_format,
    numbered_rows,
    used_positions,
)
from foretrace.graph.operations import Operations
from foretrace.trace import Trace

UNKNOWN = -1
ISSUING_OPERATOR = "record_param_comms"
_TRANSFER_SPANS = frozenset({"gloo:send", "gloo:recv"})

_RANK_LIST = re.compile(r"\[\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\]$")
_FIRST_SHAPE = re.compile(r"\[\s*(\d+(?:\s*,\s*\d+)*)\s*\]")
_TYPE_IN_NAME = re.compile(
    r"_(f16|f32|f64|bf16|u8|i8|float|half|double|int8_t|uint8_t|int32_t|int64_t)(?=[_(]|$)"
)
_FIRST_TYPE = re.compile(r'"(c10::\w+|float|double|half|long int|int|signed char|unsigned char)"')


@dataclass(frozen=True)
class CommunicationOps:
    """One row per communication operation, in order of rank, then start."""

    op: Int64s  # int64[rows], position in `Operations.ops`
    rank: Int64s  # int64[rows], position among the traces
    kind: tuple[CollectiveKind, ...]
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
    words: list[_Words] = []
    numbers: list[_Numbers] = []
    members_by_text: dict[str, tuple[int, ...]] = {}
    for position, trace in enumerate(operations.traces):
        of_rank = chosen[slice(*np.searchsorted(rank, [position, position + 1]).tolist())]
        if not len(of_rank):
            continue
        issue = _issue_events(operations, trace, of_rank)
        reader = _Reader(trace, ops.event[of_rank], issue, members_by_text)
        own_words = reader.words(operations.names, ops.name[of_rank])
        words.extend(own_words)
        numbers.append(reader.numbers(own_words, operations.ranks[position]))
    columns = {
        field.name: np.concatenate(
            [np.zeros(0, np.int64), *(getattr(part, field.name) for part in numbers)]
        )
        for field in fields(_Numbers)
    }
    return CommunicationOps(
        op=chosen,
        rank=rank,
        kind=tuple(row.kind for row in words),
        group=tuple(row.group for row in words),
        members=tuple(row.members for row in words),
        dtype=tuple(row.dtype for row in words),
        start_ns=ops.start_ns[chosen],
        end_ns=ops.end_ns[chosen],
        lane=ops.lane[chosen].astype(np.int64),
        **columns,
    )


@dataclass(frozen=True)
class IssuedOperation:
    """A communication that a rank issued, and of which nothing ran, or not to its end."""

    position: int  # of the trace
    kind: CollectiveKind
    group: str
    members: tuple[int, ...]
    sequence: int
    num_bytes: int
    source_rank: int  # of a transfer between two; UNKNOWN
    destination_rank: int
    start_ns: int  # of the call, raw clock


def issued_operations(operations: Operations, comm: CommunicationOps) -> list[IssuedOperation]:
    """What ranks with a device issued by name and group without an operation that ran."""
    found: list[IssuedOperation] = []
    members_by_text: dict[str, tuple[int, ...]] = {}
    for position, trace in enumerate(operations.traces):
        of_rank = comm.op[comm.rank == position]
        event = trace.collectives.event
        if not len(event) or (len(of_rank) and not trace_has_device(operations, of_rank)):
            continue
        is_call = np.array([text == ISSUING_OPERATOR for text in trace.strings], np.bool_)
        calls = event[is_call[trace.name[event]] & (trace.collectives.group >= 0)].astype(np.int64)
        calls = np.setdiff1d(calls, _issue_events(operations, trace, of_rank))
        if len(calls):
            found.extend(
                _issued(trace, calls, position, operations.ranks[position], members_by_text)
            )
    return found


def _issued(
    trace: Trace,
    calls: Int64s,
    position: int,
    rank: int,
    members_by_text: dict[str, tuple[int, ...]],
) -> list[IssuedOperation]:
    """The calls that name a kind of communication, described."""
    reader = _Reader(trace, calls.astype(np.int32), calls, members_by_text)
    words = reader.words(trace.strings, trace.name[calls])
    numbers = reader.numbers(words, rank)
    return [
        IssuedOperation(
            position=position,
            kind=word.kind,
            group=word.group,
            members=word.members,
            sequence=int(numbers.sequence[row]),
            num_bytes=int(numbers.num_bytes[row]),
            source_rank=int(numbers.source_rank[row]),
            destination_rank=int(numbers.destination_rank[row]),
            start_ns=int(trace.start_ns[calls[row]]),
        )
        for row, word in enumerate(words)
        if word.kind != CollectiveKind.UNKNOWN
    ]


@dataclass(frozen=True)
class _Words:
    """What an operation's texts say; operations with the same texts share one."""

    kind: CollectiveKind
    group: str
    members: tuple[int, ...]
    dtype: str
    num_bytes: int  # where only the shapes tell it; UNKNOWN


def _only_peer(members: tuple[int, ...], own_rank: int) -> int:
    """The other rank of a group of two; UNKNOWN in any other group."""
    if len(members) == 2 and own_rank in members:  # noqa: PLR2004  a pair
        return members[1] if members[0] == own_rank else members[0]
    return UNKNOWN


@dataclass(frozen=True)
class _Numbers:
    """Columns of `CommunicationOps` that differ from operation to operation."""

    group_size: Int64s
    sequence: Int64s
    num_bytes: Int64s
    source_rank: Int64s
    destination_rank: Int64s


class _Reader:
    """Reads one trace's collective columns for its operations; equal texts are read once.

    Each value is taken from the operation's own row, and where that has none from the row of
    the operator that issued it.
    """

    def __init__(
        self,
        trace: Trace,
        event: Int32s,
        issue: Int64s,
        members_by_text: dict[str, tuple[int, ...]],
    ) -> None:
        self._trace = trace
        self._event = event
        self._issue = issue
        self._rows = (_rows_of(trace, event), _rows_of(trace, issue))
        self._members_by_text = members_by_text

    def words(self, names: Sequence[str], name: Int32s) -> list[_Words]:
        """What each operation's texts say; `name` is its position in `names`."""
        columns = self._trace.collectives
        signature = self._signatures(names, name)
        is_known = (self._rows[0] >= 0) | (self._rows[1] >= 0)
        texts = (
            self._merged(columns.collective),
            self._merged(columns.group),
            self._merged(self._with_members(columns.group_ranks)),
            self._merged(columns.dtype),
        )
        of_class = numbered_rows([*texts, np.where(is_known, UNKNOWN, signature), name, is_known])
        _, first = np.unique(of_class, return_index=True)
        by_class = [
            self._words_of(names[name[row]], *(int(column[row]) for column in texts))
            if is_known[row]
            else self._words_of_name(names[name[row]], int(signature[row]))
            for row in first.tolist()
        ]
        return [by_class[index] for index in of_class.tolist()]

    def _signatures(self, names: Sequence[str], name: Int32s) -> Int32s:
        """Where each operation's shapes stand: on the operator that issued it.

        The calls of gloo's transfers take lists of tensors, which say no dtype: their spans do.
        """
        issued = np.append(self._trace.signature, np.int32(UNKNOWN))[self._issue]
        is_span = np.array([text in _TRANSFER_SPANS for text in names], np.bool_)[name]
        own = self._trace.signature[self._event]
        return np.where(is_span & (own >= 0), own, issued).astype(np.int32)

    def numbers(self, words: Sequence[_Words], own_rank: int) -> _Numbers:
        """Sizes, sequence numbers and peers of the operations whose words these are."""
        columns = self._trace.collectives
        elements = np.maximum(self._merged(columns.in_elements), self._merged(columns.out_elements))
        element_bytes = np.array([_element_bytes(row.dtype) for row in words])
        by_shape = np.array([row.num_bytes for row in words], np.int64)
        is_known = (elements >= 0) & (element_bytes >= 0)
        source, destination = (
            self._merged(columns.source_rank),
            self._merged(columns.destination_rank),
        )
        # The trace names only the other end of a transfer, which in a group of two is the other.
        peer = np.array([_only_peer(row.members, own_rank) for row in words], np.int64)
        is_send = np.array([row.kind == "send" for row in words], np.bool_)
        is_recv = np.array([row.kind == "recv" for row in words], np.bool_)
        destination = np.where(is_send & (destination < 0), peer, destination)
        source = np.where(is_recv & (source < 0), peer, source)
        is_send, is_recv = is_send & (destination >= 0), is_recv & (source >= 0)
        return _Numbers(
            group_size=self._merged(columns.group_size),
            sequence=self._merged(columns.sequence),
            num_bytes=np.where(is_known, elements * element_bytes, by_shape),
            source_rank=np.where(is_send, own_rank, source),
            destination_rank=np.where(is_recv, own_rank, destination),
        )

    def _merged(self, column: Int64s | Int32s) -> Int64s:
        """A column's value for each operation; UNKNOWN where neither row has one."""
        padded = np.append(column.astype(np.int64), UNKNOWN)
        own, issued = (padded[rows] for rows in self._rows)
        return np.where(own >= 0, own, issued)

    def _with_members(self, group_ranks: Int32s) -> Int32s:
        """The column of member lists without those that name nobody."""
        used = used_positions(group_ranks, len(self._trace.strings)).tolist()
        empty = [text for text in used if not self._member_ranks(text)]
        return np.where(np.isin(group_ranks, empty), np.int32(UNKNOWN), group_ranks)

    def _member_ranks(self, text: int) -> tuple[int, ...]:
        """The ranks that a text lists; the same object for equal texts of all ranks."""
        listed = self._trace.strings[text].strip()
        if listed not in self._members_by_text:
            match = _RANK_LIST.match(listed)
            self._members_by_text[listed] = (
                tuple(int(rank) for rank in match.group(1).split(",")) if match else ()
            )
        return self._members_by_text[listed]

    def _words_of(
        self, name: str, collective: int, group: int, group_ranks: int, dtype: int
    ) -> _Words:
        """What collective metadata says, as strings of the trace or UNKNOWN."""
        group_name = self._text(group)
        members = self._member_ranks(group_ranks) if group_ranks >= 0 else ()
        listed = {group.name: group.ranks for group in self._trace.meta.process_groups}
        kind = collective_kind_of(self._text(collective) or name)
        if kind == CollectiveKind.UNKNOWN:  # "coalesced": the kernel's name says of what
            kind = collective_kind_of(name)
        return _Words(
            kind=kind,
            group=group_name,
            members=members or listed.get(group_name, ()),
            dtype=self._text(dtype),
            num_bytes=UNKNOWN,
        )

    def _words_of_name(self, name: str, signature: int) -> _Words:
        """What a kernel's name and the issuing operator's shapes say."""
        num_bytes, dtype = self._size_by_shape(signature, name)
        return _Words(collective_kind_of(name), "", (), dtype, num_bytes)

    def _text(self, position: int) -> str:
        return self._trace.strings[position] if position >= 0 else ""

    def _size_by_shape(self, signature: int, name: str) -> tuple[int, str]:
        """Payload and dtype from the issuing operator's shapes and the kernel's name."""
        dtype = ""
        match = _TYPE_IN_NAME.search(name)
        if match:
            dtype = match.group(1).removesuffix("_t")
        text = self._text(signature)
        if not dtype and (found := _FIRST_TYPE.search(text)):
            dtype = found.group(1)
        shape = _FIRST_SHAPE.search(text)
        element_bytes = _element_bytes(dtype)
        if not shape or element_bytes < 0:
            return UNKNOWN, dtype
        elements = math.prod(int(size) for size in shape.group(1).split(","))
        return elements * element_bytes, dtype


def _element_bytes(dtype: str) -> int:
    found = number_format(dtype)
    return found.whole_bytes if found is not None else UNKNOWN


def _rows_of(trace: Trace, event: Int32s | Int64s) -> Int64s:
    """Row of each event in the trace's collective columns, int64; -1 where it has none."""
    known = trace.collectives.event
    if not len(known):
        return np.full(len(event), -1, np.int64)
    row = np.minimum(np.searchsorted(known, event), len(known) - 1)
    return np.where(known[row] == event, row, -1)


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
    name = np.array([text == ISSUING_OPERATOR for text in trace.strings])
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
