"""Which records of foreign Chakra files meet: by group and order, or by sender and receiver."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np

from foretrace.base import CollectiveKind, Int64s, UInt8s, collective_kind_of
from foretrace.graph.graph import Finding
from foretrace.graph.nodes import NO_COLLECTIVE, Collective, NodeKind
from foretrace.trace import KINDS_OF_COMM_TYPE, NO_TEXT, ChakraTrace, NodeType

_ABSENT = -1
# A file's trace, its rank, what each record is, and the rows in order.
FileRecords = tuple[ChakraTrace, int, UInt8s, Int64s]


@dataclass(frozen=True)
class StatedMeetings:
    """The collectives of all files, and which each record takes part in."""

    collectives: tuple[Collective, ...]
    collective: tuple[Int64s, ...]  # per file int64[rows]; NO_COLLECTIVE
    findings: tuple[Finding, ...]


@dataclass
class _Meeting:
    """One collective while its members are being found."""

    name: str
    group: str
    position: int
    num_bytes: int
    ranks: tuple[int, ...]  # empty: those that come
    members: list[int] = field(default_factory=list)


def meetings_of(files: Sequence[FileRecords]) -> StatedMeetings:
    """The k-th operation of a group on one rank meets the k-th on every other."""
    found: dict[tuple[object, ...], _Meeting] = {}
    columns: list[Int64s] = []
    keys: list[list[tuple[int, tuple[object, ...]]]] = []
    for trace, rank, kind, order in files:
        rows = order[kind[order] == NodeKind.FINISH]
        keys.append(_keys(trace, rank, rows, found))
    listed = list(found)
    place = {key: at for at, key in enumerate(listed)}
    for (_, _, kind, _), of_file in zip(files, keys, strict=True):
        column = np.full(len(kind), NO_COLLECTIVE, np.int64)
        for row, key in of_file:
            column[row] = place[key]
        columns.append(column)
    collectives = tuple(_collective(found[key]) for key in listed)
    return StatedMeetings(collectives, tuple(columns), _findings(collectives, len(files)))


def _keys(
    trace: ChakraTrace, rank: int, rows: Int64s, found: dict[tuple[object, ...], _Meeting]
) -> list[tuple[int, tuple[object, ...]]]:
    """What each communication of a rank is called on all ranks alike. out: found."""
    nodes = trace.nodes
    groups = group_ranks(trace)
    comm_type, size, sender, receiver, tag = (
        nodes.numbers(name, _ABSENT)[rows].tolist()
        for name in ("comm_type", "comm_size", "comm_src", "comm_dst", "comm_tag")
    )
    group = nodes.text_numbers("pg_name")[rows].tolist()
    count: dict[tuple[object, ...], int] = {}
    keys: list[tuple[int, tuple[object, ...]]] = []
    for at, row in enumerate(rows.tolist()):
        what = NodeType(int(nodes.kind[row]))
        group_name = nodes.texts[group[at]] if group[at] != NO_TEXT else ""
        ranks = groups.get(group_name, ())
        if what in (NodeType.COMM_SEND, NodeType.COMM_RECV):
            pair = _pair(rank, what, sender[at], receiver[at])
            base: tuple[object, ...] = ("transfer", *pair, tag[at])
            name, ranks = CollectiveKind.SEND_RECV.value, pair
        else:
            base = ("group", group_name, *ranks)
            name = _name(nodes.texts[int(nodes.name[row])], comm_type[at])
        position = count.get(base, 0)
        count[base] = position + 1
        key = (*base, position)
        meeting = found.setdefault(
            key, _Meeting(name, group_name, position, size[at], tuple(ranks))
        )
        meeting.num_bytes = max(meeting.num_bytes, size[at])
        meeting.members.append(rank)
        keys.append((row, key))
    return keys


def _pair(rank: int, what: NodeType, sender: int, receiver: int) -> tuple[int, int]:
    """Sender and receiver; the one that a record leaves out is its own rank."""
    if what == NodeType.COMM_SEND:
        return (rank if sender < 0 else sender, receiver)
    return (sender, rank if receiver < 0 else receiver)


def _name(name: str, comm_type: int) -> str:
    stated = KINDS_OF_COMM_TYPE.get(comm_type)
    return (collective_kind_of(name) if stated is None else stated).value


def _collective(one: _Meeting) -> Collective:
    members = tuple(sorted(set(one.members)))
    ranks = one.ranks or members
    num_bytes = one.num_bytes
    if one.name == CollectiveKind.ALL_GATHER and num_bytes > 0:
        num_bytes *= len(ranks)  # a rank's share in the file, the whole here
    return Collective(
        name=one.name,
        group=one.group,
        ranks=ranks,
        recorded_ranks=members,
        position=one.position,
        num_bytes=num_bytes,
        dtype="",
        is_transfer_estimated=False,
    )


def group_ranks(trace: ChakraTrace) -> dict[str, tuple[int, ...]]:
    """Members of the process groups that a file lists in its `process_group:init` nodes."""
    nodes = trace.nodes
    named = [
        text for text in np.unique(nodes.name).tolist() if "process_group:init" in nodes.texts[text]
    ]
    found: dict[str, tuple[int, ...]] = {}
    for row in np.flatnonzero(np.isin(nodes.name, named)).tolist():
        text = nodes.texts[int(nodes.values[row, 0])]
        # The value is a list of one text, which is JSON itself.
        begin, end = text.find("[{"), text.rfind("}]")
        try:
            groups = msgspec.json.decode(
                text[begin : end + 2].replace('\\"', '"'), type=list[_Group]
            )
        except msgspec.DecodeError:
            continue  # told otherwise, as texts of other versions are: members are those that come
        found |= {one.pg_name: tuple(one.ranks) for one in groups if one.ranks}
    return found


class _Group(msgspec.Struct):
    pg_name: str
    ranks: list[int] = []


def _findings(collectives: Sequence[Collective], num_files: int) -> tuple[Finding, ...]:
    alone = [one for one in collectives if len(one.recorded_ranks) < min(len(one.ranks), num_files)]
    if not alone:
        return ()
    first = alone[0]
    return (
        Finding(
            "collectives",
            f"{len(alone):,} of {len(collectives):,} collectives do not meet all their ranks: the "
            f"first is {first.name} {first.position} of group {first.group!r}, which rank "
            f"{', '.join(map(str, first.recorded_ranks[:5]))} comes to, and others do not.",
        ),
    )
