"""`Stragglers`: who came last to collectives, why, and which rank was behind it in the end.

Who waits at a collective waits for the last rank to arrive; why that one came late is told by its
own way there against that of a typical rank that waited (`idle`). Where the late rank had itself
been held up by another, in another group, the blame is the other's. Transfers between two
ranks are left out: of a pipeline's neighbours one waits by design.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from foretrace.analyze.comparison.noise import chance_of_at_least
from foretrace.analyze.idle import (
    UNRECORDED_RANK,
    Excuses,
    IdleCause,
    Subjects,
    Waits,
    binding_edges,
    of_it_text,
    waits_of,
)
from foretrace.analyze.uneven_work import RankWork, work_tables, work_waited_for
from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Json,
    Place,
    Plain,
    Sentences,
    Series,
    Shown,
    Table,
    Told,
    Unit,
    cell_text,
    duration_text,
    plain,
    question,
    rows_json,
)
from foretrace.base import Bools, Float64s, Int32s, Int64s, joined_ranges
from foretrace.graph import MEASURED, NO_STEP, Collectives, Timeline

# A rank that is last this much more often than chance would have it, at one of a thousand, is
# late for a reason; ranks alike in everything are last with probability 1 / members each.
BY_CHANCE = 1e-3


@dataclass(frozen=True)
class Late:
    """Others' waiting that began on one rank, for one reason."""

    rank: int  # where the delay began; UNRECORDED_RANK
    cause: IdleCause
    subject: str  # what grew most against a typical rank: operator, kernel, call; "" unknown
    waiting_ns: int  # of all ranks that waited
    subject_ns: int  # of it, for the subject

    @property
    def sentence(self) -> str:
        """The reason as a reader says it."""
        name = of_it_text(self.subject, self.subject_ns, self.waiting_ns)
        is_recorded = self.rank != UNRECORDED_RANK
        who = f"rank {self.rank}" if is_recorded else "a rank that was not recorded"
        lost = f"{duration_text(self.waiting_ns)} in all"
        if self.cause is IdleCause.UNRECORDED:
            return f"{who} makes others wait {lost}: it waits for what was not recorded"
        return f"{who} makes others wait {lost} by its {self.cause.words}{name}"


@dataclass(frozen=True)
class RankBlame:
    """How one rank stands among the ranks it meets."""

    rank: int  # UNRECORDED_RANK
    blame_ns: int  # others' waiting that began on this rank
    own_wait_ns: int  # its own waiting for others
    num_collectives: int  # that it took part in, others waiting or not
    num_last: int  # at which it came last
    expected_last: float  # the same if all members were alike
    chance: float  # of being last so often, were members alike and collectives independent
    causes: tuple[Late, ...]  # of its blame, most first

    @property
    def is_systematic(self) -> bool:
        """Whether chance does not explain how often it was last."""
        return self.rank != UNRECORDED_RANK and self.chance < BY_CHANCE

    @property
    def sentence(self) -> str:
        """The rank's blame, its main reason and how regular it is."""
        if not self.causes:
            return f"rank {self.rank} delays nobody"
        if self.rank == UNRECORDED_RANK:
            return self.causes[0].sentence
        how = "was last systematically" if self.is_systematic else "may have been last by chance"
        times = f"{self.num_last} of {self.num_collectives} collectives"
        return f"{self.causes[0].sentence}; it {how} ({times}, {self.expected_last:.1f} expected)"


@dataclass(frozen=True)
class GroupBlame(Plain):
    """Who was last in one process group."""

    group: str
    ranks: tuple[int, ...]
    num_collectives: int
    waiting_ns: int
    last_by_rank: dict[int, int]  # how often each was last, most first
    blame_by_rank: dict[int, int]  # waiting in this group that began on each rank, in ns


@dataclass(frozen=True, repr=False)
class Stragglers(Answer):
    """Who was waited for; one row per collective and late rank that others waited for."""

    note = (
        "Expected, chance: how often a rank is last, and how likely so often, if all members "
        "were alike. Transfers between two ranks are left out: of a pipeline's neighbours one "
        "waits by design."
    )

    collectives: Collectives
    step_names: tuple[str, ...]
    collective: Int32s  # int32[rows], position in `collectives`
    step: Int32s  # int32[rows], position in `step_names`; NO_STEP
    last_rank: Int32s  # int32[rows]; UNRECORDED_RANK
    late_ns: Int64s  # int64[rows], its arrival after the median arrival of those who waited
    waiting_ns: Int64s  # int64[rows], of all who waited for it
    cause: Int32s  # int32[rows], IdleCause, the largest share
    culprit_rank: Int32s  # int32[rows], where the delay began: last_rank, or who held it up
    subject: Int32s  # int32[rows], position in `subjects`
    subjects: tuple[str, ...]
    ranks: tuple[RankBlame, ...]  # most blame first
    groups: tuple[GroupBlame, ...]  # most waiting first
    is_measured: bool
    work: tuple[RankWork, ...] = ()  # of ranks whose compute others waited for, most first

    def __len__(self) -> int:
        """Number of late arrivals."""
        return len(self.collective)

    @property
    def causes(self) -> tuple[Late, ...]:
        """Reasons of all ranks, most waiting first."""
        found = [cause for rank in self.ranks for cause in rank.causes]
        return tuple(sorted(found, key=lambda cause: -cause.waiting_ns))

    @property
    def waiting_ns_of_all(self) -> int:
        """Waiting of all ranks at all collectives."""
        return int(self.waiting_ns.sum())

    def sentences(self, count: int = 5) -> tuple[str, ...]:
        """The ranks with most blame in words, and whether it is their work or their hardware."""
        told = (rank.sentence for rank in self.ranks[:count] if rank.causes)
        return *told, *(one.sentence for one in self.work[:count])

    @property
    def headline(self) -> str:
        """How much was waited."""
        if not self.waiting_ns_of_all:
            return "no rank waited for another that was recorded"
        return (
            f"all ranks together waited {duration_text(self.waiting_ns_of_all)} at collectives for "
            "ranks that came last"
        )

    @property
    def lead(self) -> str:
        """How much was waited, and where the blame goes."""
        return (
            f"{self.headline}. The blame goes to the rank where the delay began, followed through "
            "the ranks that were late only because another was."
        )

    @property
    def is_empty(self) -> bool:
        """Whether no recorded rank was waited for."""
        return not self.causes

    def parts(self) -> tuple[Told, ...]:
        """The ranks in words, then every rank, reason and group."""
        if not self.waiting_ns_of_all:
            return ()
        groups = (self._groups_table(),) if len(self.groups) > 1 else ()
        return (
            Sentences.of("who is waited for", self.sentences()),
            self._ranks_table(),
            *work_tables(self.work),
            self._causes_table(),
            *groups,
        )

    def tables(self) -> tuple[Table, ...]:
        """Ranks, reasons, groups and late arrivals."""
        own = (self._ranks_table(), self._causes_table(), self._groups_table(), self.arrivals())
        return *own, *work_tables(self.work)

    def _ranks_table(self) -> Table:
        """One row per rank, most blame first."""
        return Table.of(
            "ranks",
            self.ranks,
            Column("rank"),
            Column("blame_ns", "delays ms"),
            Column("own_wait_ns", "waits ms"),
            Column("collectives", "of", Unit.COUNT, "num_collectives", Shown.WIDE),
            Column("last", "last", Unit.COUNT, "num_last"),
            Column("expected_last", "expected", Unit.NUMBER),
            Column("chance", "chance", Unit.NUMBER, shown=Shown.WIDE),
            Column("is_systematic", "systematic", shown=Shown.WIDE),
            Column("cause", "by its", Unit.WORD, _first_cause),
            Column("subject", "operator or call", Unit.NAME, _first_subject),
            is_strong=lambda one: one.is_systematic,
            chart=Chart(
                kind=ChartKind.BARS,
                label="how much others waited because of each rank, and it for others",
                category="rank",
                category_unit=Unit.RANK,
                series=(
                    Series("blame_ns", "others waited for it", "communication"),
                    Series("own_wait_ns", "it waited for others", "wait"),
                ),
                unit=Unit.NS,
                max_rows=16,
            ),
        )

    def _causes_table(self) -> Table:
        """Reasons of all ranks."""
        return Table.of(
            "causes",
            self.causes,
            Column("rank"),
            Column("cause", "its", Unit.WORD, "cause.words"),
            Column("subject", "operator or call", Unit.NAME),
            Column("waiting_ns", "others waited ms"),
            title="reasons",
            max_rows=8,
            shown=Shown.WIDE,
        )

    def _groups_table(self) -> Table:
        """Groups in which somebody waited."""
        return Table.of(
            "groups",
            self.groups,
            Column("group", unit=Unit.NAME),
            Column("num_ranks", value=lambda one: len(one.ranks)),
            Column("num_collectives"),
            Column("waiting_ns"),
            Column("last", "last most often", value=_most_often_last),
            title="process groups",
            max_rows=10,
        )

    def arrivals(self) -> Table:
        """One row per late arrival."""
        each = [self.collectives[index] for index in self.collective.tolist()]
        steps = [*self.step_names, None]
        return Table.of_columns(
            "arrivals",
            (Column("name"), [one.name for one in each]),
            (Column("group"), [one.group for one in each]),
            (Column("position"), [one.position for one in each]),
            (Column("step"), [steps[index] for index in self.step.tolist()]),
            (Column("last_rank"), self.last_rank),
            (Column("late_ns"), self.late_ns),
            (Column("waiting_ns"), self.waiting_ns),
            (Column("cause"), [IdleCause(one).words for one in self.cause.tolist()]),
            (Column("culprit_rank"), self.culprit_rank),
            (Column("subject"), [self.subjects[one] for one in self.subject.tolist()]),
        )

    def as_json(self) -> Json:
        """Ranks with their causes, groups and late arrivals; times in ns."""
        return {
            "timeline": "measured" if self.is_measured else "simulated",
            "waiting_ns": self.waiting_ns_of_all,
            **rows_json(*self.tables()),
            "groups": plain(self.groups),
        }


def _first_cause(one: RankBlame) -> str:
    return one.causes[0].cause.words if one.causes else ""


def _first_subject(one: RankBlame) -> str:
    return one.causes[0].subject if one.causes else ""


def _most_often_last(group: GroupBlame) -> str:
    counts = list(group.last_by_rank.items())[:3]
    return ", ".join(f"{cell_text(rank, Unit.RANK)} ({count:,})" for rank, count in counts)


@question(
    MEASURED,
    help="Say which ranks others waited for, how long, and why.",
    doing="following each wait to where it began",
    place=Place(70, "Stragglers"),
)
def stragglers(timeline: Timeline) -> Stragglers:
    """Who came last to collectives, how long others waited for it, and why.

    Args:
        timeline: of a job, what was measured.
    """
    waits = waits_of(timeline, binding_edges(timeline), Excuses.of(timeline), Subjects.of(timeline))
    shared = _Shared.of(timeline, waits)
    rows, waiting_ns = _late_arrivals(waits, shared)
    delays = waits.delays
    lead = delays.first_share[rows]
    step = np.full(len(delays), NO_STEP, np.int32)
    step[waits.delay] = timeline.graph.step[waits.arrive]  # that of one who waited
    return Stragglers(
        collectives=timeline.graph.collectives,
        step_names=timeline.graph.step_names,
        collective=delays.collective[rows],
        step=step[rows],
        last_rank=delays.late_rank[rows],
        late_ns=delays.late_ns[rows],
        waiting_ns=waiting_ns,
        cause=delays.share_cause[lead].astype(np.int32),
        culprit_rank=delays.share_rank[lead],
        subject=delays.share_subject[lead],
        subjects=delays.subjects,
        ranks=_ranks(timeline, waits, shared, rows),
        groups=_groups(timeline, waits, shared, rows),
        is_measured=timeline.is_measured,
        work=_work(timeline, waits, shared),
    )


def _work(timeline: Timeline, waits: Waits, shared: _Shared) -> tuple[RankWork, ...]:
    """Whether ranks whose compute is waited for have more work, or slower hardware."""
    delays, share = waits.delays, shared.share
    rank = delays.share_rank[share]
    step = timeline.graph.step[waits.arrive[shared.wait]]
    chosen = (delays.share_cause[share] == IdleCause.COMPUTE) & (rank >= 0)
    chosen &= rank != waits.rank[shared.wait]
    return work_waited_for(timeline, rank[chosen], step[chosen], shared.ns[chosen])


@dataclass(frozen=True)
class _Shared:
    """Every wait for another rank, times every share of the delay it was for."""

    wait: Int64s  # row of the waits
    share: Int64s  # of the delays' shares
    ns: Float64s
    is_counted: Bools  # bool[waits], for another rank and not a transfer between two
    delayed_ns: Int64s  # int64[waits], up to the late rank's arrival

    @classmethod
    def of(cls, timeline: Timeline, waits: Waits) -> _Shared:
        """All of a timeline."""
        delays = waits.delays
        late_ns = timeline.end_ns[delays.late_node][waits.delay]
        delayed_ns = np.clip(late_ns - waits.begin_ns, 0, waits.duration_ns)
        is_other = delays.late_node[waits.delay] != waits.arrive
        counted = is_other & ~waits.is_transfer & (delayed_ns > 0)
        chosen = np.flatnonzero(counted)
        delay = waits.delay[chosen]
        number = np.diff(delays.first_share)[delay]
        wait, share = np.repeat(chosen, number), joined_ranges(delays.first_share[delay], number)
        return cls(wait, share, delayed_ns[wait] * delays.share[share], counted, delayed_ns)


def _late_arrivals(waits: Waits, shared: _Shared) -> tuple[Int64s, Int64s]:
    """Delays for which others waited, and how long all of them did."""
    chosen = np.flatnonzero(shared.is_counted)
    waiting_ns = np.zeros(len(waits.delays), np.int64)
    np.add.at(waiting_ns, waits.delay[chosen], shared.delayed_ns[chosen])
    rows = np.unique(waits.delay[chosen])
    return rows, waiting_ns[rows]


def _ranks(
    timeline: Timeline, waits: Waits, shared: _Shared, rows: Int64s
) -> tuple[RankBlame, ...]:
    """Every rank's blame, most first."""
    delays = waits.delays
    causes = _causes(waits, shared)
    chances = _chances(timeline)
    last = _times_last(delays.late_rank[rows])
    blamed = [
        RankBlame(
            rank=rank,
            blame_ns=sum(cause.waiting_ns for cause in causes.get(rank, ())),
            own_wait_ns=int(shared.delayed_ns[shared.is_counted & (waits.rank == rank)].sum()),
            num_collectives=len(chances.get(rank, ())),
            num_last=last.get(rank, 0),
            expected_last=sum(chances.get(rank, ())),
            chance=chance_of_at_least(last.get(rank, 0), chances.get(rank, ())),
            causes=causes.get(rank, ()),
        )
        for rank in sorted({*timeline.graph.ranks, *causes})
    ]
    return tuple(sorted(blamed, key=lambda one: -one.blame_ns))


def _times_last(late_rank: Int32s) -> dict[int, int]:
    """How often each rank was last, most first."""
    return dict(Counter(np.sort(late_rank).tolist()).most_common())


def _causes(waits: Waits, shared: _Shared) -> dict[int, tuple[Late, ...]]:
    """Reasons of every rank's blame, most first."""
    delays, share = waits.delays, shared.share
    is_other = delays.share_rank[share] != waits.rank[shared.wait]
    share, ns = share[is_other], shared.ns[is_other]
    columns = np.stack([delays.share_rank, delays.share_cause, delays.share_subject])
    keys, key = np.unique(columns[:, share], axis=1, return_inverse=True)
    sums = np.rint(np.bincount(key.reshape(-1), weights=ns, minlength=keys.shape[1]))
    found: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for (rank, cause, subject), waiting in zip(
        keys.T.tolist(), sums.astype(np.int64).tolist(), strict=True
    ):
        found.setdefault(rank, {}).setdefault(cause, []).append((waiting, subject))
    lates = {
        rank: [
            Late(
                rank=rank,
                cause=IdleCause(cause),
                subject=delays.subjects[max(each)[1]],
                waiting_ns=sum(waiting for waiting, _ in each),
                subject_ns=max(each)[0],
            )
            for cause, each in by_cause.items()
        ]
        for rank, by_cause in found.items()
    }
    return {
        rank: tuple(sorted(each, key=lambda one: -one.waiting_ns)) for rank, each in lates.items()
    }


def _chances(timeline: Timeline) -> dict[int, list[float]]:
    """Each rank's chance to be last at each collective in which it met others."""
    chances: dict[int, list[float]] = {rank: [] for rank in timeline.graph.ranks}
    for one in timeline.graph.collectives:
        if len(one.recorded_ranks) > 1 and not one.is_transfer:
            for rank in one.recorded_ranks:
                chances[rank].append(1 / len(one.recorded_ranks))
    return chances


def _groups(
    timeline: Timeline, waits: Waits, shared: _Shared, rows: Int64s
) -> tuple[GroupBlame, ...]:
    """Every group in which somebody waited, most waiting first."""
    collectives, delays = timeline.graph.collectives, waits.delays
    keys = collectives.each(lambda one: (one.group, one.ranks))
    place = {key: index for index, key in enumerate(dict.fromkeys(keys))}
    of_collective = np.array([place[key] for key in keys], np.int64)
    total = np.bincount(of_collective, minlength=len(place)).tolist()
    of_delay, of_wait = of_collective[delays.collective[rows]], of_collective[waits.collective]
    of_share = of_wait[shared.wait]
    is_other = delays.share_rank[shared.share] != waits.rank[shared.wait]
    found = []
    for (group, ranks), index in place.items():
        waiting = int(shared.delayed_ns[shared.is_counted & (of_wait == index)].sum())
        if not waiting:
            continue
        mine = is_other & (of_share == index)
        found.append(
            GroupBlame(
                group=group,
                ranks=ranks,
                num_collectives=total[index],
                waiting_ns=waiting,
                last_by_rank=_times_last(delays.late_rank[rows[of_delay == index]]),
                blame_by_rank=_sums(delays.share_rank[shared.share[mine]], shared.ns[mine]),
            )
        )
    return tuple(sorted(found, key=lambda one: -one.waiting_ns))


def _sums(rank: Int32s, ns: Float64s) -> dict[int, int]:
    """Time by rank, most first."""
    ranks, row = np.unique(rank, return_inverse=True)
    sums = np.rint(np.bincount(row, weights=ns, minlength=len(ranks))).astype(np.int64)
    order = np.argsort(-sums, kind="stable")
    return dict(zip(ranks[order].tolist(), sums[order].tolist(), strict=True))
