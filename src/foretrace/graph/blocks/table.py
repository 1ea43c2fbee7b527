"""`Blocks`: one row per block of a graph, with its nodes and times added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Json,
    Series,
    Shown,
    Table,
    Told,
    Unit,
    count_text,
    milliseconds_text,
    percent_text,
    rows_json,
)
from foretrace.base import Bools, Int32s, Int64s, UInt8s, numbered_rows
from foretrace.graph.graph import ExecutionGraph
from foretrace.graph.nodes import (
    DEVICE_KINDS,
    NO_LAYER,
    NO_MICROBATCH,
    NO_STEP,
    NodeKind,
    Part,
    Phase,
)

# Phases that a layer's work is drawn by, one upon the other, in these colours.
_PHASES = (
    (Phase.FORWARD, "category-0"),
    (Phase.RECOMPUTE, "category-4"),
    (Phase.BACKWARD, "category-1"),
    (Phase.OPTIMIZER, "category-2"),
    (Phase.UNKNOWN, "category-7"),
)


@dataclass(frozen=True, repr=False)
class Blocks(Answer):
    """Blocks of all ranks and steps; rows by rank, step, then the order in which they begin.

    Work is what device operations, transfers of communications, and operators on the host do;
    host time is what threads spend on everything else.
    """

    note = (
        "Times per rank and step; work is kernels, copies and transfers, or operators on the "
        "CPU. Of a layer: the median, least and most of one pass."
    )

    step_names: tuple[str, ...]
    names: tuple[str, ...]
    rank: Int32s  # int32[rows]
    step: Int32s  # int32[rows], position in `step_names`; NO_STEP
    part: UInt8s  # uint8[rows], Part
    phase: UInt8s  # uint8[rows], Phase
    layer: Int64s  # int64[rows], NO_LAYER
    microbatch: Int64s  # int64[rows], NO_MICROBATCH
    num_nodes: Int64s  # int64[rows]
    work_ns: Int64s  # int64[rows]
    host_ns: Int64s  # int64[rows]
    first_operator: Int32s  # int32[rows], position in `names`, of the first work; -1 none

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.rank)

    @property
    def share_assigned(self) -> float:
        """Of all work, the share whose part and phase are known; 0 to 1."""
        is_known = (self.part != Part.UNKNOWN) & (self.phase != Phase.UNKNOWN) & self.is_inside
        return float(self.work_ns[is_known].sum() / self._total_ns)

    @cached_property
    def is_inside(self) -> Bools:
        """Rows of steps; all of a recording without steps."""
        inside: Bools = self.step != NO_STEP
        return inside if inside.any() else ~inside

    @property
    def _total_ns(self) -> int:
        return max(int(self.work_ns[self.is_inside].sum()), 1)

    @property
    def headline(self) -> str:
        """How many blocks, and how much of the work they hold."""
        known = percent_text(100 * self.share_assigned)
        return f"{count_text(len(self), 'block')}, {known} of the work in a known one"

    @property
    def is_empty(self) -> bool:
        """Whether no block was found."""
        return not (self.part != Part.UNKNOWN).any()

    def parts(self) -> tuple[Told, ...]:
        """Layer by layer, then parts and phases of every kind of rank."""
        layers = self._layers_table()
        return (*((layers,) if layers.rows else ()), self._parts_table())

    def tables(self) -> tuple[Table, ...]:
        """The blocks, then what the parts show."""
        return self._blocks_table(), *super().tables()

    def as_json(self) -> Json:
        """Everything; times in ns, -1 for no layer, microbatch or step."""
        return {"share_assigned": self.share_assigned, **rows_json(self._blocks_table())}

    def _blocks_table(self) -> Table:
        """One row per block."""
        steps, first = [*self.step_names, ""], [*self.names, ""]
        return Table.of_columns(
            "blocks",
            (Column("rank"), self.rank),
            (Column("step"), [steps[one] if one >= 0 else "" for one in self.step.tolist()]),
            (Column("part"), [Part(one).name.lower() for one in self.part.tolist()]),
            (Column("phase"), [Phase(one).name.lower() for one in self.phase.tolist()]),
            (Column("layer"), self.layer),
            (Column("microbatch"), self.microbatch),
            (Column("num_nodes"), self.num_nodes),
            (Column("work_ns"), self.work_ns),
            (Column("host_ns"), self.host_ns),
            (Column("first_operator"), [first[one] for one in self.first_operator.tolist()]),
        )

    def _layers_table(self) -> Table:
        """Work of each layer by phase, its microbatches together, mean over ranks and steps."""
        numbers = np.unique(self.layer[self.layer != NO_LAYER]).tolist()
        rows = [
            (
                layer,
                *(self._mean_ns((self.layer == layer) & (self.phase == one)) for one, _ in _PHASES),
            )
            for layer in numbers
        ]
        used = [at for at in range(len(_PHASES)) if any(row[1 + at] for row in rows)]
        keys = [f"{_PHASES[at][0].name.lower()}_ns" for at in used]
        series = (
            Series(key, _PHASES[at][0].name.lower(), _PHASES[at][1], group="work")
            for key, at in zip(keys, used, strict=True)
        )
        return Table(
            key="layers",
            title="layer by layer",
            columns=(Column("layer"), *map(Column, keys)),
            rows=tuple((row[0], *(row[1 + at] for at in used)) for row in rows),
            chart=Chart(
                kind=ChartKind.COLUMNS,
                label="work of each layer by phase",
                category="layer",
                category_unit=Unit.IDENTIFIER,
                series=tuple(series),
                unit=Unit.NS,
            ),
            shown=Shown.WIDE,
        )

    def _mean_ns(self, rows: Bools) -> float:
        """Work of these rows, mean over the ranks and steps that have any of them."""
        rows = rows & self.is_inside
        cells = set(zip(self.rank[rows].tolist(), self.step[rows].tolist(), strict=True))
        return float(self.work_ns[rows].sum()) / max(len(cells), 1)

    def _parts_table(self) -> Table:
        """Parts and phases of every kind of rank."""
        groups, total_ns = self._ranks_alike(), self._total_ns
        items = [
            _PartRow(self, ranks, phase, part, total_ns)
            for ranks in groups
            for phase, part in self._pairs(ranks)
        ]
        return Table.of(
            "parts",
            items,
            Column("ranks", unit=Unit.WORD, value=lambda one: ranks_text(one.ranks)),
            Column("part", unit=Unit.WORD, value=lambda one: Part(one.part).name.lower()),
            Column("phase", unit=Unit.WORD, value=lambda one: Phase(one.phase).name.lower()),
            Column("layers", unit=Unit.WORD),
            Column("num_passes", "passes"),
            Column("work_ns"),
            Column("share", "of all work", shown=Shown.WIDE),
            Column("host_ns"),
            Column("per_layer", "a layer ms", Unit.WORD),
            title="parts and phases",
        )

    def _pairs(self, ranks: tuple[int, ...]) -> list[tuple[int, int]]:
        inside = np.isin(self.rank, ranks) & self.is_inside
        return sorted(
            set(zip(self.phase[inside].tolist(), self.part[inside].tolist(), strict=True))
        )

    def _ranks_alike(self) -> list[tuple[int, ...]]:
        """Ranks that have the same blocks, whatever these take."""
        by_kind: dict[frozenset[tuple[int, ...]], list[int]] = {}
        for rank in np.unique(self.rank).tolist():
            rows = np.flatnonzero((self.rank == rank) & (self.work_ns > 0) & self.is_inside)
            columns = (self.part, self.phase, self.layer, self.microbatch)
            kind = frozenset(zip(*(column[rows].tolist() for column in columns), strict=True))
            by_kind.setdefault(kind, []).append(rank)
        return [tuple(ranks) for ranks in by_kind.values()]


@dataclass(frozen=True)
class _PartRow:
    """One part in one phase on ranks that are alike; times per rank and step."""

    blocks: Blocks
    ranks: tuple[int, ...]
    phase: int
    part: int
    total_ns: int

    @cached_property
    def rows(self) -> Int64s:
        """Whose rows these are."""
        found = self.blocks
        is_own = (found.phase == self.phase) & (found.part == self.part)
        return np.flatnonzero(is_own & np.isin(found.rank, self.ranks) & found.is_inside)

    @property
    def _times(self) -> int:
        found = self.blocks
        busy = np.isin(found.rank, self.ranks) & (found.work_ns > 0) & found.is_inside
        return len(self.ranks) * (len(np.unique(found.step[busy])) or 1)

    @property
    def work_ns(self) -> float:
        """Work of one rank in a step."""
        return int(self.blocks.work_ns[self.rows].sum()) / self._times

    @property
    def share(self) -> float:
        """Of all work."""
        return int(self.blocks.work_ns[self.rows].sum()) / self.total_ns

    @property
    def host_ns(self) -> float:
        """Host time of one rank in a step."""
        return int(self.blocks.host_ns[self.rows].sum()) / self._times

    @property
    def layers(self) -> str:
        """First and last layer."""
        known = self.blocks.layer[self.rows]
        known = np.unique(known[known != NO_LAYER])
        if not len(known):
            return ""
        return f"{known[0]}-{known[-1]}" if len(known) > 1 else str(known[0])

    @property
    def num_passes(self) -> int | None:
        """Microbatches."""
        known = self.blocks.microbatch[self.rows]
        return len(np.unique(known[known != NO_MICROBATCH])) or None

    @property
    def per_layer(self) -> str:
        """Work of one pass of one layer."""
        found, rows = self.blocks, self.rows
        own = rows[(found.layer[rows] != NO_LAYER) & (found.work_ns[rows] > 0)]
        if not len(own) or self.part != Part.LAYER:
            return ""
        work_ns = found.work_ns[own]
        low, high = milliseconds_text(int(work_ns.min())), milliseconds_text(int(work_ns.max()))
        return f"{milliseconds_text(float(np.median(work_ns)))} ({low} to {high})"


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks as ranges: `0-3, 6`."""
    pieces: list[list[int]] = []
    for rank in ranks:
        if pieces and rank == pieces[-1][-1] + 1:
            pieces[-1].append(rank)
        else:
            pieces.append([rank])
    return ", ".join(
        str(piece[0]) if len(piece) == 1 else f"{piece[0]}-{piece[-1]}" for piece in pieces
    )


def blocks_of(graph: ExecutionGraph) -> Blocks:
    """The graph's blocks; nodes of no rank (hubs, ghosts) are left out."""
    node = np.flatnonzero(graph.rank >= 0)
    columns = (graph.rank, graph.step, graph.part, graph.phase, graph.layer, graph.microbatch)
    if not len(node):
        return _empty(graph)
    key = numbered_rows([column[node].astype(np.int64) for column in columns])
    size = int(key.max()) + 1
    first = np.full(size, len(node), np.int64)
    np.minimum.at(first, key, np.arange(len(node)))
    order = np.lexsort((first, graph.step[node[first]], graph.rank[node[first]]))
    place = np.empty(size, np.int64)
    place[order] = np.arange(size)
    row = place[key]
    is_work = _is_work(graph)[node]
    is_host = graph.is_host[node] & ~is_work
    duration_ns = graph.measured_ns[node]
    head = node[first[order]]
    return Blocks(
        step_names=graph.step_names,
        names=graph.names,
        rank=graph.rank[head],
        step=graph.step[head],
        part=graph.part[head],
        phase=graph.phase[head],
        layer=graph.layer[head].astype(np.int64),
        microbatch=graph.microbatch[head].astype(np.int64),
        num_nodes=np.bincount(row, minlength=size).astype(np.int64),
        work_ns=_summed(row[is_work], duration_ns[is_work], size),
        host_ns=_summed(row[is_host], duration_ns[is_host], size),
        first_operator=_first_operators(graph, node[is_work], row[is_work], size),
    )


def _is_work(graph: ExecutionGraph) -> Bools:
    kinds = (*DEVICE_KINDS, NodeKind.FINISH, NodeKind.OPERATOR)
    is_work: Bools = graph.is_of(*kinds)
    return is_work


def _summed(row: Int64s, duration_ns: Int64s, size: int) -> Int64s:
    total = np.zeros(size, np.int64)
    np.add.at(total, row, duration_ns)
    return total


def _first_operators(graph: ExecutionGraph, node: Int64s, row: Int64s, size: int) -> Int32s:
    """Operator of each row's first work, else its own name."""
    found = np.full(size, -1, np.int32)
    called = np.where(graph.operator[node] >= 0, graph.operator[node], graph.name[node])
    found[row[::-1]] = called[::-1]
    return found


def _empty(graph: ExecutionGraph) -> Blocks:
    none = np.zeros(0, np.int64)
    short, byte = none.astype(np.int32), none.astype(np.uint8)
    return Blocks(
        graph.step_names, graph.names, short, short, byte, byte, none, none, none, none, none, short
    )
