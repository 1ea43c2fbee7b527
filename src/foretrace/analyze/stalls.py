"""`Stalls`: moments at which a host thread stood still in a call that usually takes far less.

What a stall is, and what of its cause is told, `host_stalls` says node by node.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.analyze.host_stalls import StallKind, host_stalls
from foretrace.analyze.steps import steps
from foretrace.answer import (
    Answer,
    Column,
    Json,
    Place,
    Shown,
    Table,
    Told,
    Unit,
    count_text,
    duration_text,
    question,
    rows_json,
)
from foretrace.graph import (
    MEASURED,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Timeline,
)


@dataclass(frozen=True)
class Stall:
    """One call that stood still."""

    rank: int
    thread: int
    step_name: str  # "" outside
    at_ns: int  # its begin, since the rank's own mark of the step began; without, on the clock
    call: str  # as the trace names it, or what the time was before
    operator: str  # at work around it; ""
    kind: StallKind
    took_ns: int
    usual_ns: int
    num_alike: int  # calls that say what is usual

    @property
    def over_ns(self) -> int:
        """What it took beyond the usual."""
        return max(self.took_ns - self.usual_ns, 0)


@dataclass(frozen=True)
class StallSum:
    """Stalls of one rank, or of one kind, together."""

    label: int | str
    num_stalls: int
    took_ns: int
    over_ns: int
    longest_ns: int
    share: float  # of the host's time in the steps of these ranks


@dataclass(frozen=True, repr=False)
class Stalls(Answer):
    """Where host threads stood still, the longest first."""

    note = (
        "Usual is the median of the same call at the same place of the step, on other ranks "
        "and in other steps, or of its call site; a stall takes 1 ms more and lies 3.5 "
        "deviations outside. `at` is its begin, since its rank's own mark of the step. What a "
        "thread lost its core for, or which lock or page it waited for, no recording tells."
    )

    rows: tuple[Stall, ...]
    host_ns: dict[int, int]  # rank -> length of its steps on the host, one after the other

    @property
    def over_ns(self) -> int:
        """Time beyond the usual, of all stalls."""
        return sum(row.over_ns for row in self.rows)

    @property
    def headline(self) -> str:
        """How many calls stood still, for how long, and why."""
        if not self.rows:
            return "no host thread stood still"
        first = self.by_kind()[0]
        ranks, total_ns = len({row.rank for row in self.rows}), sum(self.host_ns.values())
        of_all = "all " if ranks == len(self.host_ns) and ranks > 1 else ""
        share = f"{100 * self.over_ns / max(total_ns, 1):.1f} %"
        return (
            f"{count_text(len(self.rows), 'call')} on {of_all}{count_text(ranks, 'rank')} stalled "
            f"for {duration_text(self.over_ns)} beyond their usual time, {share} of the hosts' "
            f"steps; most of it by {count_text(first.num_stalls, 'stall')}, {first.label}: "
            f"{duration_text(first.over_ns)}"
        )

    @property
    def is_empty(self) -> bool:
        """Whether nothing stalled."""
        return not self.rows

    def by_kind(self) -> tuple[StallSum, ...]:
        """Stalls by what is known of their cause, most time first."""
        return self._sums(lambda row: row.kind.words, sum(self.host_ns.values()))

    def by_rank(self) -> tuple[StallSum, ...]:
        """Stalls by rank, most time first."""
        return self._sums(lambda row: row.rank, None)

    def _sums(self, label_of: object, whole_ns: int | None) -> tuple[StallSum, ...]:
        groups: dict[int | str, list[Stall]] = {}
        for row in self.rows:
            groups.setdefault(label_of(row), []).append(row)  # type: ignore[operator]
        found = [
            StallSum(
                label=label,
                num_stalls=len(rows),
                took_ns=sum(row.took_ns for row in rows),
                over_ns=sum(row.over_ns for row in rows),
                longest_ns=max(row.took_ns for row in rows),
                share=sum(row.over_ns for row in rows)
                / max(self.host_ns.get(rows[0].rank, 0) if whole_ns is None else whole_ns, 1),
            )
            for label, rows in groups.items()
        ]
        return tuple(sorted(found, key=lambda one: -one.over_ns))

    def parts(self) -> tuple[Told, ...]:
        """By kind, by rank, then each one, longest first."""
        if not self.rows:
            return ()
        sums = (
            Column("num_stalls"),
            Column("over_ns", "beyond usual ms"),
            Column("longest_ns", "longest ms"),
            Column("share", "of host steps"),
            Column("took_ns", shown=Shown.FILES),
        )
        return (
            Table.of("by-kind", self.by_kind(), Column("kind", "", Unit.WORD, "label"), *sums),
            Table.of("by-rank", self.by_rank(), Column("rank", value="label"), *sums),
            Table.of(
                "rows",
                self.rows,
                Column("rank"),
                Column("step", value="step_name", shown=Shown.WIDE),
                Column("at_ns"),
                Column("took_ns"),
                Column("usual_ns"),
                Column("num_alike", "of", shown=Shown.WIDE),
                Column("call", unit=Unit.NAME),
                Column("operator", unit=Unit.NAME),
                Column("kind", unit=Unit.TEXT, value="kind.words"),
                Column("thread", unit=Unit.IDENTIFIER, shown=Shown.WIDE),
                title="the longest",
                max_rows=20,
            ),
        )

    def tables(self) -> tuple[Table, ...]:
        """Every stall, then the sums."""
        return tuple(reversed(super().tables()))

    def as_json(self) -> Json:
        """Every stall, and the sums; times in ns."""
        return {"over_ns": self.over_ns, **rows_json(*self.tables())}


@question(
    MEASURED,
    help="Say where host threads stood still, for how long, and why as far as it shows.",
    doing="holding each call against its own like",
    place=Place(75, "Stalls of host threads", "Stalls"),
)
def stalls(timeline: Timeline) -> Stalls:
    """Calls of host threads that took far longer than the same call elsewhere.

    Args:
        timeline: of a job, what was measured.
    """
    graph, found, table = timeline.graph, host_stalls(timeline), steps(timeline)
    begins = {
        (rank, step): begin_ns
        for rank, step, begin_ns in zip(
            table.rank.tolist(), table.step.tolist(), table.begin_ns.tolist(), strict=True
        )
    }
    following = _following(graph)
    names = (*graph.names, "")
    rows = []
    columns = (found.node, found.kind, found.took_ns, found.usual_ns, found.count)
    for node, kind, took_ns, usual_ns, count in zip(
        *(one.tolist() for one in columns), strict=True
    ):
        rank, step = int(graph.rank[node]), int(graph.step[node])
        begin_ns = int(timeline.end_ns[node]) - took_ns
        after = names[following.get(node, -1)]
        is_gap = graph.kind[node] == NodeKind.HOST_SEGMENT
        rows.append(
            Stall(
                rank=rank,
                thread=graph.lanes[graph.lane[node]].number,
                step_name=graph.step_names[step] if step >= 0 else "",
                at_ns=begin_ns - begins.get((rank, step), 0),
                call=f"before {after or 'the end'}" if is_gap else names[graph.name[node]],
                operator=names[graph.operator[node]],
                kind=StallKind(kind),
                took_ns=took_ns,
                usual_ns=usual_ns,
                num_alike=count,
            )
        )
    host_ns = dict.fromkeys(graph.ranks, 0)
    for rank, length_ns in zip(table.rank.tolist(), table.host_duration_ns.tolist(), strict=True):
        host_ns[rank] += length_ns
    return Stalls(tuple(sorted(rows, key=lambda row: (-row.over_ns, row.rank, row.at_ns))), host_ns)


def _following(graph: ExecutionGraph) -> dict[int, int]:
    """Of each segment of a host, the name of the item that ends it."""
    source, target = graph.edges_of(EdgeKind.HOST_ORDER)
    is_gap = graph.kind[source] == NodeKind.HOST_SEGMENT
    return dict(zip(source[is_gap].tolist(), graph.name[target[is_gap]].tolist(), strict=True))
