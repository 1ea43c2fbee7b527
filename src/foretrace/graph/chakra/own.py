"""Chakra files that foretrace wrote, back to the graph they were written from.

Every record says which kind of node it is, on which lane, and of which kind each of its
dependencies is; the files' metadata holds the tables. Dependencies that another tool added say no
kind and become stated ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from foretrace.base import GraphError, Int32s, Int64s, UInt8s
from foretrace.graph.chakra.records import COLUMNS, StatedRecords
from foretrace.graph.graph import EdgeConstant, Lane
from foretrace.graph.nodes import NO_LANE, Collective, EdgeKind, NodeKind, Part, Phase
from foretrace.graph.operations import NamePool
from foretrace.trace import NO_TEXT, ChakraNodes, ChakraTrace, listed_numbers

TO_MEETING = 64  # added to an edge's kind where it leads to a collective's meeting
_MOST_LAYERS = np.iinfo(np.int16).max  # and microbatches: what their columns hold
_NO_NUMBERS = np.zeros(0, np.int64)
NO_RANK = -1  # of what stands for a rank that was not recorded
_T = TypeVar("_T")


def is_own(trace: ChakraTrace) -> bool:
    """Whether a file says that foretrace wrote it in a form that this version reads."""
    return trace.told("foretrace") == "1"


@dataclass(frozen=True)
class _Rank:
    """One file, its rows standing from `first` on among all records."""

    trace: ChakraTrace
    rank: int
    first: int
    node_id: Int64s  # int64[nodes], rising
    by_id: Int64s  # int64[nodes], rows in that order

    def rows(self, ids: Int64s) -> Int64s:
        """Records with these ids, among all records; -1 where the file has none."""
        if not len(self.node_id):
            return np.full(len(ids), -1, np.int64)
        at = np.minimum(np.searchsorted(self.node_id, ids), len(self.node_id) - 1)
        return np.where(self.node_id[at] == ids, self.first + self.by_id[at], -1)


def own_records(traces: Sequence[ChakraTrace]) -> StatedRecords:
    """The records of files that foretrace wrote, one file per rank.

    Raises:
        GraphError: if the files lack what foretrace writes into each, or name lanes and groups
            that none of them lists.
    """
    ranks = _ranks(traces)
    pool = NamePool()
    lanes, lane_place = _lanes(ranks)
    parts = [_columns(one, pool) for one in ranks]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    kind = _known(columns.pop("kind"), NodeKind, traces)
    duration_ns, start_ns, end_ns = (
        columns.pop(name) for name in ("duration_ns", "start_ns", "end_ns")
    )
    inflation = columns.pop("inflation").astype(np.uint32).view(np.float32)
    step_names = tuple(_told(traces[0], "steps", list[str]))
    _check(columns, {"lane": len(lane_place) - 1, "step": len(step_names)}, traces)
    collectives = _collectives(ranks, columns, pool)
    parts_of_edges = [*map(_edges, ranks), _remote_edges(ranks)]
    edges = [np.concatenate(each) for each in zip(*parts_of_edges, strict=True)]
    waits = _waits(ranks, columns)
    columns["lane"] = lane_place[columns["lane"]]
    return StatedRecords(
        kind=kind,
        columns=columns,
        duration_ns=duration_ns,
        start_ns=start_ns,
        end_ns=end_ns,
        inflation=inflation,
        source=edges[0],
        target=edges[1],
        edge_kind=_known(edges[2] & (TO_MEETING - 1), EdgeKind, traces),
        is_to_meeting=(edges[2] & TO_MEETING) > 0,
        waits_source=waits[0],
        waits_target=waits[1],
        constants=_constants(traces[0]),
        names=pool.names(),
        lanes=lanes,
        step_names=step_names,
        collectives=collectives,
    )


def _known(
    numbers: NDArray[np.integer], kinds: type[NodeKind | EdgeKind], traces: Sequence[ChakraTrace]
) -> UInt8s:
    """Numbers of kinds, each of which there is."""
    wrong = numbers[~np.isin(numbers, [int(kind) for kind in kinds])]
    if len(wrong):
        raise GraphError(
            f"cannot rebuild the graph of {traces[0].path}: a record says {kinds.__name__} "
            f"{wrong[0]}, which there is not; export it again"
        )
    return numbers.astype(np.uint8)


def _check(
    columns: Mapping[str, NDArray[np.integer]],
    sizes: Mapping[str, int],
    traces: Sequence[ChakraTrace],
) -> None:
    """Refuse numbers of lanes, steps, parts, phases, layers and microbatches that none is."""
    counts = {"part": len(Part), "phase": len(Phase), **sizes}
    for name in ("lane", "step", "part", "phase", "layer", "microbatch"):
        high = counts.get(name, _MOST_LAYERS)
        wrong = columns[name][(columns[name] < -1) | (columns[name] >= high)]
        if len(wrong):
            raise GraphError(
                f"cannot rebuild the graph of {traces[0].path}: a record is of {name} {wrong[0]}, "
                "which the file does not list; export it again"
            )


def _ranks(traces: Sequence[ChakraTrace]) -> list[_Rank]:
    ranks: list[_Rank] = []
    first = 0
    for trace in traces:
        by_id = np.argsort(trace.nodes.node_id, kind="stable")
        rank = trace.rank if trace.rank is not None else len(ranks)
        ranks.append(_Rank(trace, rank, first, trace.nodes.node_id[by_id], by_id))
        first += len(trace.nodes)
    return ranks


def _told(trace: ChakraTrace, name: str, kind: type[_T]) -> _T:
    """The file's own attribute of that name, which holds JSON text."""
    try:
        return msgspec.json.decode(trace.told(name).encode(), type=kind)
    except msgspec.DecodeError as err:
        raise GraphError(
            f"cannot rebuild the graph of {trace.path}: its attribute {name!r} is "
            f"{trace.told(name)[:40]!r}, expected JSON as foretrace writes it; export it again"
        ) from err


def _lanes(ranks: Sequence[_Rank]) -> tuple[tuple[Lane, ...], Int64s]:
    """All lanes, and the position of each by the number that records name it by.

    Lanes of ranks whose files are absent leave no gap. The last position is that of no lane.
    """
    found: dict[int, Lane] = {}
    for one in ranks:
        told = _told(one.trace, "lanes", dict[int, tuple[bool, int, int, int]])
        for index, (is_device, process, device, number) in told.items():
            found[index] = Lane(one.rank, is_device, process, device, number)
    place = np.full(max(found, default=-1) + 2, NO_LANE, np.int64)
    order = sorted(found)
    place[order] = np.arange(len(order))
    return tuple(found[index] for index in order), place


def _constants(trace: ChakraTrace) -> dict[EdgeKind, EdgeConstant]:
    told = _told(trace, "constants", list[tuple[int, int, int, int, int]])
    return {EdgeKind(kind): EdgeConstant(EdgeKind(kind), *numbers) for kind, *numbers in told}


def _columns(one: _Rank, pool: NamePool) -> dict[str, NDArray[np.integer]]:
    """The columns of one file's records."""
    nodes = one.trace.nodes
    columns: dict[str, NDArray[np.integer]] = {
        name: pool.of_column(nodes.texts, nodes.text_numbers(name))
        if column.table == "names"
        else nodes.numbers(name, column.neutral)
        for name, column in COLUMNS.items()
        if name not in ("rank", "name")
    }
    columns["kind"] = nodes.numbers("node_kind")
    columns["rank"] = np.where(columns["kind"] == NodeKind.GHOST, NO_RANK, one.rank)
    columns["name"] = pool.of_column(nodes.texts, nodes.name)
    columns["duration_ns"] = nodes.numbers("duration_ns")
    columns["start_ns"] = nodes.numbers("start_ns")
    columns["end_ns"] = nodes.numbers("end_ns")
    columns["inflation"] = nodes.bits("inflation", int(np.float32(1).view(np.uint32)))
    return columns


def _edges(one: _Rank) -> tuple[Int64s, Int64s, Int64s]:
    """Source and target records, and the kind with its mark, of all edges of a file."""
    nodes = one.trace.nodes
    count = np.diff(nodes.first_data)
    target = np.repeat(np.arange(len(nodes)), count)
    source = one.rows(nodes.data)
    kinds = nodes.list_numbers("edge_kinds")
    kind = np.full(len(target), int(EdgeKind.STATED), np.int64)
    lists = _lists(nodes, kinds)
    for row in np.flatnonzero((kinds != NO_TEXT) & (count > 0)).tolist():
        stated = lists[int(kinds[row])]
        # Dependencies that were added since stand behind, without a kind.
        known = stated[: count[row]]
        begin = nodes.first_data[row]
        kind[begin : begin + len(known)] = known
    more = _more_edges(one)
    source, target, kind = (
        np.concatenate(pair) for pair in zip((source, target + one.first, kind), more, strict=True)
    )
    is_here = source >= 0
    return source[is_here], target[is_here], kind[is_here]


def _more_edges(one: _Rank) -> tuple[Int64s, Int64s, Int64s]:
    """Further edges between records that are joined already."""
    nodes = one.trace.nodes
    column = nodes.list_numbers("more_edges")
    lists = _lists(nodes, column)
    rows = np.flatnonzero(column != NO_TEXT)
    pairs = [_tuples(lists[int(column[row])], 2, one) for row in rows.tolist()]
    if not pairs:
        return _NO_NUMBERS, _NO_NUMBERS, _NO_NUMBERS
    joined = np.concatenate(pairs)
    target = np.repeat(rows + one.first, [len(pair) for pair in pairs])
    return one.rows(joined[:, 0]), target, joined[:, 1]


def _remote_edges(ranks: Sequence[_Rank]) -> tuple[Int64s, Int64s, Int64s]:
    """Edges from other ranks; those of ranks whose files are absent are left out."""
    by_rank = {one.rank: one for one in ranks}
    found: list[tuple[int, int, int]] = []
    for one in ranks:
        column = one.trace.nodes.list_numbers("remote_edges")
        lists = _lists(one.trace.nodes, column)
        for row in np.flatnonzero(column != NO_TEXT).tolist():
            for rank, number, kind in _tuples(lists[int(column[row])], 3, one).tolist():
                if rank in by_rank:
                    source = int(by_rank[rank].rows(np.array([number]))[0])
                    found.append((source, one.first + row, kind))
    edges = np.array([edge for edge in found if edge[0] >= 0], np.int64).reshape(-1, 3)
    return edges[:, 0], edges[:, 1], edges[:, 2]


def _lists(nodes: ChakraNodes, column: Int32s) -> dict[int, Int64s]:
    """Each list that a column of texts holds, as numbers."""
    used = np.unique(column[column != NO_TEXT]).tolist()
    return {text: np.array(listed_numbers(nodes.texts.bytes_of(text)), np.int64) for text in used}


def _tuples(numbers: Int64s, width: int, one: _Rank) -> Int64s:
    if len(numbers) % width:
        raise GraphError(
            f"{one.trace.path}: a list of edges has {len(numbers)} numbers, expected a multiple of "
            f"{width}: the file is damaged; write it or copy it again"
        )
    return numbers.reshape(-1, width)


def _collectives(
    ranks: Sequence[_Rank], columns: Mapping[str, NDArray[np.integer]], pool: NamePool
) -> tuple[Collective, ...]:
    """One per number that records give; each described by its first member. out: columns."""
    described: dict[int, Collective] = {}
    members: dict[int, set[int]] = {}
    for one in ranks:
        nodes = one.trace.nodes
        mine = columns["collective"][one.first : one.first + len(nodes)]
        rows = np.flatnonzero(mine >= 0)
        for number in mine[rows].tolist():
            members.setdefault(number, set()).add(one.rank)
        is_new = np.array([number not in described for number in mine[rows].tolist()], np.bool_)
        described |= _described(one, rows[is_new], mine[rows[is_new]])
    order = sorted(described)
    place = {number: at for at, number in enumerate(order)}
    is_member = columns["collective"] >= 0
    columns["collective"][is_member] = [
        place[number] for number in columns["collective"][is_member].tolist()
    ]
    for number in order:
        pool.of(described[number].name)
    return tuple(
        replace(described[number], recorded_ranks=tuple(sorted(members[number])))
        for number in order
    )


def _described(one: _Rank, rows: Int64s, numbers: NDArray[np.integer]) -> dict[int, Collective]:
    """What one rank's records say of these collectives."""
    nodes = one.trace.nodes
    groups = _told(one.trace, "groups", dict[str, tuple[str, tuple[int, ...]]])
    texts = {
        name: nodes.text_numbers(name)[rows].tolist()
        for name in ("collective_name", "pg_name", "dtype")
    }
    values = zip(
        numbers.tolist(),
        *texts.values(),
        nodes.numbers("position")[rows].tolist(),
        nodes.numbers("num_bytes", -1)[rows].tolist(),
        nodes.numbers("is_transfer_estimated")[rows].tolist(),
        strict=True,
    )
    found = {}
    for number, name, group, dtype, position, num_bytes, is_estimated in values:
        group_name, members = groups.get(nodes.texts[group], ("", (one.rank,)))
        found[number] = Collective(
            name=nodes.texts[name],
            group=group_name,
            ranks=members,
            recorded_ranks=(),
            position=position,
            num_bytes=num_bytes,
            dtype=nodes.texts[dtype],
            is_transfer_estimated=bool(is_estimated),
        )
    return found


def _waits(
    ranks: Sequence[_Rank], columns: Mapping[str, NDArray[np.integer]]
) -> tuple[Int64s, Int64s]:
    """Records waited for and records that wait, where finishes do not wait for all."""
    member = np.flatnonzero(columns["collective"] >= 0)
    key = zip(columns["collective"][member].tolist(), columns["lane"][member].tolist(), strict=True)
    record_of = dict(zip(key, member.tolist(), strict=True))
    source: list[int] = []
    target: list[int] = []
    for one in ranks:
        column = one.trace.nodes.list_numbers("waits_for_lanes")
        lists = _lists(one.trace.nodes, column)
        for row in np.flatnonzero(column != NO_TEXT).tolist():
            record = one.first + row
            collective = int(columns["collective"][record])
            for lane in lists[int(column[row])].tolist():
                # A neighbour whose file is absent is not waited for; the rank itself then is.
                source.append(record_of.get((collective, lane), record))
                target.append(record)
    return np.array(source, np.int64), np.array(target, np.int64)
