"""`OperatorTable`: what a step's device time is made of, by class, family and operator.

A rank's device time is what its kernels, copies and fills took, added up over its streams, and
its communication; of a rank without a device, what its operators took. FLOPs and bytes are
those that the shapes demand (`foretrace.operators.work_of`), counted once per call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np

from foretrace.analyze.activity import participations
from foretrace.analyze.calls import Calls, calls_of, in_step, step_of
from foretrace.analyze.comparison.views import shapes_text
from foretrace.analyze.options import Of, Step
from foretrace.analyze.selection import selected, selection_of
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Json,
    Place,
    Plain,
    Series,
    Shown,
    SideBySide,
    Table,
    Told,
    Unit,
    duration_text,
    percent_text,
    question,
    short_name,
)
from foretrace.base import Bools, Int64s, begins_run
from foretrace.graph import MEASURED, NO_STEP, Timeline
from foretrace.operators import (
    HOST_COPY,
    UNKNOWN_BYTES,
    OperatorClass,
    Work,
    runs_in_tf32,
    work_of,
)

WAITING = "waiting for ranks"  # class of the time from a rank's arrival to a transfer's begin
COMMUNICATION = "communication"  # family of collectives' rows
NUM_UNRECOGNISED = 20  # names that are listed

By = Literal["class", "family", "operator"]

_BY: tuple[By, ...] = ("class", "family", "operator")
_MANY_UNRECOGNISED = 0.05  # of device time, from which the names are shown
_MAX_NAME = 60


@dataclass(frozen=True)
class OperatorRow(Plain):
    """Kernels of one class, family, operator and shapes; or of fewer of these, added up."""

    json_names: ClassVar = {"kind": "class", "is_product": ""}
    json_also: ClassVar = ("flops_per_ns", "bytes_per_ns")

    kind: str  # operator class, a collective's name, or WAITING; "" added up over all
    family: str
    operator: str  # "" unknown
    signature: str  # "" unknown
    dtype: str  # number format of the operands; "" unknown
    num_kernels: int
    num_calls: int  # of the operator, or of the collective by ranks; 0 if another row has them
    time_ns: int
    time_by_rank_ns: tuple[int, ...]  # in the table's order of ranks
    share: float  # of all ranks' device time
    flops: int | None  # None: the shapes do not tell
    num_bytes: int | None  # least traffic; of collectives: payload per rank; None: not told
    worked_ns: int  # time of the calls whose FLOPs or bytes are known
    is_product: bool = False  # the FLOPs are those of matrix products

    @property
    def flops_per_ns(self) -> float | None:
        """Achieved rate of what is known: 1,000 are 1 TFLOP/s."""
        return self.flops / self.worked_ns if self.flops and self.worked_ns else None

    @property
    def bytes_per_ns(self) -> float | None:
        """Achieved rate of what is known: 1 is 1 GB/s."""
        return self.num_bytes / self.worked_ns if self.num_bytes and self.worked_ns else None


@dataclass(frozen=True)
class Unrecognised(Plain):
    """Device time whose kernels' names, and operators' names, say nothing."""

    time_ns: int
    share: float  # of all device time
    names: tuple[tuple[str, int], ...]  # name and time in ns of the NUM_UNRECOGNISED longest

    def as_json(self) -> Json:
        """Everything, as plain values."""
        names = [{"name": name, "time_ns": time_ns} for name, time_ns in self.names]
        return {"time_ns": self.time_ns, "share": self.share, "names": names}


@dataclass(frozen=True, repr=False)
class OperatorTable(Answer):
    """Rows by class, family, operator and shapes, the longest first."""

    json_names: ClassVar = {"step_name": "step"}
    json_also: ClassVar = ("time_ns", "by_class")

    step_name: str | None  # None: the recording has no steps, all of it counts
    ranks: tuple[int, ...]
    time_by_rank_ns: tuple[int, ...]  # device time of each rank
    rows: tuple[OperatorRow, ...]
    unrecognised: Unrecognised

    @property
    def time_ns(self) -> int:
        """Device time of all ranks."""
        return sum(self.time_by_rank_ns)

    def by(self, what: By) -> tuple[OperatorRow, ...]:
        """Rows added up by class, by class and family, or by class and operator; longest first."""
        if what not in {"class", "family", "operator"}:
            raise ValueError(f"by must be 'class', 'family' or 'operator', got {what!r}")
        groups: dict[tuple[str, str], list[OperatorRow]] = {}
        for row in self.rows:
            second = {"class": "", "family": row.family, "operator": row.operator}[what]
            groups.setdefault((row.kind, second), []).append(row)
        return _longest_first(_sum(rows, by=what) for rows in groups.values())

    @property
    def by_class(self) -> tuple[OperatorRow, ...]:
        """Rows added up by class, longest first."""
        return self.by("class")

    @property
    def headline(self) -> str:
        """Which step, how much device time, and how much of it says nothing."""
        step = self.step_name or "the whole recording"
        lost = percent_text(100 * self.unrecognised.share)
        return (
            f"{step}: {duration_text(self.time_ns)} of device time on all ranks; names not "
            f"recognised: {lost} of it"
        )

    @property
    def note(self) -> str:
        """What FLOPs and bytes are, and the names that say nothing."""
        said = "FLOPs and bytes are those that the shapes demand."
        if self.unrecognised.share < _MANY_UNRECOGNISED:
            return said
        names = (
            f"{short_name(name, _MAX_NAME)} ({duration_text(time_ns)})"
            for name, time_ns in self.unrecognised.names[:3]
        )
        return f"{said} Not recognised: {', '.join(names)}."

    @property
    def is_empty(self) -> bool:
        """Whether nothing ran."""
        return not self.time_ns

    def parts(self) -> tuple[Told, ...]:
        """Time by class and by family, then every operator with its shapes."""
        return SideBySide((self.summed("class"), self.summed("family"))), replace(
            self._rows_table(), shown=Shown.WIDE
        )

    def tables(self) -> tuple[Table, ...]:
        """The rows, then sums."""
        return self._rows_table(), *(self.summed(by) for by in _BY)

    def summed(self, by: By) -> Table:
        """Rows added up by class, or by class and family or operator."""
        rows, collectives = self.by(by), self._collectives
        return Table.of(
            f"by_{by}",
            rows,
            Column(by, by, Unit.NAME, lambda row: _title(row, by, collectives)),
            Column("time_ns", "ms"),
            Column("share"),
            Column("num_kernels"),
            Column("flops_per_ns", "rate"),
            Column("bytes_per_ns", "traffic"),
            title=f"device time by {by}",
            colours=tuple(_colour(row, collectives) for row in rows),
            chart=Chart(
                kind=ChartKind.BARS,
                label=f"device time by {by}",
                category=by,
                series=(Series("time_ns", "device time", "compute"),),
                unit=Unit.NS,
                max_rows=14,
            ),
        )

    @property
    def _collectives(self) -> set[str]:
        return {row.kind for row in self.rows if row.family == COMMUNICATION}

    def _rows_table(self) -> Table:
        return Table.of(
            "rows",
            self.rows,
            Column("operator", unit=Unit.NAME),
            Column("class", unit=Unit.WORD, value="kind"),
            Column("family", "kernels", Unit.NAME),
            Column("signature", shown=Shown.FILES),
            Column("shapes", value=lambda row: shapes_text(row.signature), shown=Shown.WIDE),
            Column("dtype", "format", Unit.WORD, shown=Shown.WIDE),
            Column("num_kernels", shown=Shown.FILES),
            Column("num_calls"),
            Column("time_ns", "ms"),
            Column("share"),
            Column("flops", shown=Shown.FILES),
            Column("num_bytes", shown=Shown.FILES),
            Column("flops_per_ns", "rate"),
            Column("bytes_per_ns", "traffic"),
            *(
                Column(f"rank_{rank}_ns", value=_time_on(at), shown=Shown.FILES)
                for at, rank in enumerate(self.ranks)
            ),
            title="operators with their shapes",
            max_rows=12,
        )


def _time_on(at: int) -> Callable[[OperatorRow], int]:
    return lambda row: row.time_by_rank_ns[at]


def _title(row: OperatorRow, by: By, collectives: set[str]) -> str:
    own = {"class": row.kind, "family": row.family, "operator": row.operator}[by]
    if by == "class" or row.kind in collectives or own == row.kind:
        return row.kind
    return f"{row.kind}: {own or 'not known'}"


def _colour(row: OperatorRow, collectives: set[str]) -> str:
    """What a page draws this work in."""
    if row.kind == WAITING:
        return "wait"
    if row.kind in collectives:
        return "communication"
    return "copy" if row.kind == OperatorClass.COPY else "compute"


@question(MEASURED, doing="counting operators", place=Place(100, "Operators"))
def operators(timeline: Timeline, *, step: Step = None, of: Of = None) -> OperatorTable:
    """What a step's device time is made of.

    Args:
        timeline: of a job, what was measured.
        step: by name or number; the step whose length is nearest the median without one.
        of: the work that is looked at, as edits name it; shares are then of it.

    Raises:
        GraphError: if there is no step of that name.
        ScenarioError: if the work that is named does not exist.
    """
    chosen = step_of(timeline, step)
    among = in_step(timeline.graph, chosen)
    if of is not None:
        among &= selected(timeline.graph, selection_of(of))
    return _table(timeline, chosen, among)


def operators_of_all_steps(timeline: Timeline) -> OperatorTable:
    """What the device time of all steps together is made of."""
    graph = timeline.graph
    in_any = graph.step != NO_STEP
    return _table(timeline, NO_STEP, in_any if in_any.any() else in_step(graph, NO_STEP))


def _table(timeline: Timeline, chosen: int, among: Bools) -> OperatorTable:
    calls = calls_of(timeline, chosen, among)
    ranks = timeline.graph.ranks
    spent_ns = _time_ns(timeline, calls, ranks)
    rows = [*_compute_rows(calls, spent_ns), *_collective_rows(timeline, among)]
    time_by_rank_ns = np.array([row.time_by_rank_ns for row in rows], np.int64)
    total_ns = max(int(time_by_rank_ns.sum()), 1)
    return OperatorTable(
        step_name=None if chosen == NO_STEP else timeline.graph.step_names[chosen],
        ranks=ranks,
        time_by_rank_ns=tuple(time_by_rank_ns.reshape(-1, len(ranks)).sum(axis=0).tolist()),
        rows=_longest_first(replace(row, share=row.time_ns / total_ns) for row in rows),
        unrecognised=_unrecognised(calls, spent_ns.sum(axis=1), total_ns),
    )


def _time_ns(timeline: Timeline, calls: Calls, ranks: Sequence[int]) -> Int64s:
    """Time of each kind on each rank; int64[kinds, ranks]."""
    rank = np.searchsorted(np.array(ranks, np.int32), timeline.graph.rank[calls.node])
    took_ns = timeline.duration_ns[calls.node]
    spent_ns = np.zeros((len(calls.kinds), len(ranks)), np.int64)
    np.add.at(spent_ns, (calls.kind, rank), took_ns)
    return spent_ns


def _compute_rows(calls: Calls, spent_ns: Int64s) -> list[OperatorRow]:
    """Rows of kernels; an operator's work stands in its longest row alone."""
    num_kernels = np.bincount(calls.kind, minlength=len(calls.kinds))
    num_calls = _calls_by_operator(calls)
    groups: dict[tuple[str, str], dict[tuple[str, str], list[int]]] = {}
    for at, kind in enumerate(calls.kinds):
        of_operator = groups.setdefault((kind.operator, kind.signature), {})
        of_operator.setdefault((str(kind.what.kind), kind.what.family), []).append(at)
    rows = []
    for operator, parts in groups.items():
        made = [
            _row(what, operator, spent_ns[members], int(num_kernels[members].sum()))
            for what, members in parts.items()
        ]
        longest = max(range(len(made)), key=lambda at: made[at].time_ns)
        names = [calls.kinds[at].name for members in parts.values() for at in members]
        done = _Done(num_calls.get(operator, 0), sum(row.time_ns for row in made), names)
        made[longest] = _with_work(made[longest], done)
        rows += made
    return rows


@dataclass(frozen=True)
class _Done:
    """All calls of one operator with one signature."""

    num_calls: int
    time_ns: int
    kernels: Sequence[str]


def _with_work(row: OperatorRow, done: _Done) -> OperatorRow:
    work = work_of(row.operator, row.signature) if row.signature else None
    if work is None:
        return replace(row, num_calls=done.num_calls)
    # A link to the host carries the bytes once; memory reads and writes them.
    num_bytes = work.bytes_written if row.family == HOST_COPY else work.num_bytes
    return replace(
        row,
        dtype=operand_format(work, done.kernels),
        is_product=work.is_product,
        num_calls=done.num_calls,
        flops=work.flops * done.num_calls,
        num_bytes=None if num_bytes == UNKNOWN_BYTES else num_bytes * done.num_calls,
        worked_ns=done.time_ns,
    )


def operand_format(work: Work, kernels: Iterable[str]) -> str:
    """Number format that these kernels multiply in; `tf32` where fp32 runs on matrix units."""
    is_tf32 = work.is_product and work.dtype == "fp32" and any(map(runs_in_tf32, kernels))
    return "tf32" if is_tf32 else work.dtype


def _calls_by_operator(calls: Calls) -> dict[tuple[str, str], int]:
    """Number of calls of each operator with each shapes."""
    if not len(calls):
        return {}
    first = np.flatnonzero(begins_run(calls.call))
    counts = np.bincount(calls.kind[first], minlength=len(calls.kinds)).tolist()
    found: dict[tuple[str, str], int] = {}
    for kind, count in zip(calls.kinds, counts, strict=True):
        key = (kind.operator, kind.signature)
        found[key] = found.get(key, 0) + count
    return found


def _row(
    what: tuple[str, str], operator: tuple[str, str], spent_ns: Int64s, num_kernels: int
) -> OperatorRow:
    by_rank_ns = spent_ns.sum(axis=0).tolist()
    return OperatorRow(
        kind=what[0],
        family=what[1],
        operator=operator[0],
        signature=operator[1],
        dtype="",
        num_kernels=num_kernels,
        num_calls=0,
        time_ns=sum(by_rank_ns),
        time_by_rank_ns=tuple(by_rank_ns),
        share=0.0,
        flops=None,
        num_bytes=None,
        worked_ns=0,
    )


def _collective_rows(timeline: Timeline, among: Bools) -> list[OperatorRow]:
    """Transfers among these nodes by the collective's name, and all waiting for other ranks."""
    graph = timeline.graph
    pairs = participations(graph)
    chosen = np.flatnonzero(among[pairs.finish])
    names = [graph.collectives[at].name for at in pairs.collective[chosen].tolist()]
    rank = np.searchsorted(np.array(graph.ranks, np.int32), pairs.rank[chosen])
    begin_ns = timeline.start_ns[pairs.finish[chosen]]
    transfer_ns = timeline.end_ns[pairs.finish[chosen]] - begin_ns
    wait_ns = begin_ns - timeline.start_ns[pairs.arrive[chosen]]
    kinds = sorted(set(names))
    position = {name: at for at, name in enumerate(kinds)}
    kind = np.array([position[name] for name in names], np.int64)
    spent_ns = np.zeros((len(kinds) + 1, len(graph.ranks)), np.int64)
    np.add.at(spent_ns, (kind, rank), transfer_ns)
    np.add.at(spent_ns[-1], rank, wait_ns)
    counts = [*np.bincount(kind, minlength=len(kinds)).tolist(), 0]
    made = [
        replace(
            _row((name, COMMUNICATION), ("", ""), spent_ns[at : at + 1], counts[at]),
            num_calls=counts[at],  # a rank's part in a collective is one
        )
        for at, name in enumerate((*kinds, WAITING))
    ]
    payload_bytes = np.array(graph.collectives.each(lambda one: one.num_bytes), np.int64)
    payload_bytes = payload_bytes[pairs.collective[chosen]]
    for at in range(len(kinds)):
        known = (kind == at) & (payload_bytes >= 0)
        if known.any():
            made[at] = replace(
                made[at],
                num_bytes=int(payload_bytes[known].sum()),
                worked_ns=int(transfer_ns[known].sum()),
            )
    return [row for row in made if row.time_ns or row.num_kernels]


def _unrecognised(calls: Calls, spent_ns: Int64s, total_ns: int) -> Unrecognised:
    by_name: dict[str, int] = {}
    for kind, took_ns in zip(calls.kinds, spent_ns.tolist(), strict=True):
        if not kind.what.is_recognised:
            by_name[kind.name] = by_name.get(kind.name, 0) + took_ns
    longest = sorted(by_name.items(), key=lambda pair: (-pair[1], pair[0]))
    unknown_ns = sum(by_name.values())
    return Unrecognised(unknown_ns, unknown_ns / total_ns, tuple(longest[:NUM_UNRECOGNISED]))


def _longest_first(rows: Iterable[OperatorRow]) -> tuple[OperatorRow, ...]:
    return tuple(
        sorted(
            rows, key=lambda row: (-row.time_ns, row.kind, row.family, row.operator, row.signature)
        )
    )


def _sum(rows: Sequence[OperatorRow], *, by: By) -> OperatorRow:
    """One row for several; what they differ in is left empty."""
    first = rows[0]
    flops = [row.flops for row in rows if row.flops is not None]
    num_bytes = [row.num_bytes for row in rows if row.num_bytes is not None]
    formats = {row.dtype for row in rows if row.dtype}
    return OperatorRow(
        kind=first.kind,
        family=first.family if by == "family" else "",
        operator=first.operator if by == "operator" else "",
        signature="",
        dtype=formats.pop() if len(formats) == 1 else "",
        num_kernels=sum(row.num_kernels for row in rows),
        num_calls=sum(row.num_calls for row in rows),
        time_ns=sum(row.time_ns for row in rows),
        time_by_rank_ns=tuple(
            sum(each) for each in zip(*(row.time_by_rank_ns for row in rows), strict=True)
        ),
        share=sum(row.share for row in rows),
        flops=sum(flops) if flops else None,
        num_bytes=sum(num_bytes) if num_bytes else None,
        worked_ns=sum(row.worked_ns for row in rows),
    )
