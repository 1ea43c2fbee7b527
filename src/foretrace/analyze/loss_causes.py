"""`Cause`: one thing that costs a job time; `loss_causes`: all that a timeline shows, as sums.

Time that devices lost is told by its cause and the rank where it began: others' waiting for that
rank, and its own idle time as far as it exceeds that of the median rank. What all ranks lose alike,
or what many ranks have a part in, is one entry of no rank. Compute that is waited for is told apart
by what it is against that of equal ranks (`slow_work`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from foretrace.analyze.host_stalls import StallKind
from foretrace.analyze.idle import (
    UNRECORDED_RANK,
    IdleCause,
    IdleCauses,
    Stillness,
    shortened,
)
from foretrace.analyze.slow_work import Compute, SlowKind, SlowLink, slow_links, stalled_work
from foretrace.answer import count_text, duration_text, percent_text
from foretrace.base import Bools
from foretrace.graph import ExecutionGraph, NodeKind, Part, Timeline

ALL_RANKS = -2
# A rank with so much of a cause's time is named; else the cause is that of all who have a part.
_LEADING_SHARE = 0.6
_NOT_WRONG = frozenset({IdleCause.EDGE, IdleCause.UNEXPLAINED})  # of the recording, not the job
SLOW_LINK = "slow transfers"
_STALL_WORDS = {kind.words: kind for kind in StallKind if kind is not StallKind.NONE}
_NO_CAUSE = (StallKind.UNTOLD, StallKind.SLOWED)  # a name of how it looks, not of what did it
_GHOST = "ghost"  # what stands for a rank that was not recorded


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong."""

    topic: str  # "hang", "straggler", "idle", "pipeline" or "link"
    rank: int  # where it began; ALL_RANKS, UNRECORDED_RANK
    cause: IdleCause | None  # None of a hang, and of what is neither idle nor waiting
    what: str  # in words: "host stalls", "garbage collection", "slow operator", ...
    subject: str  # operator, kernel, call or group; of a hang the collective; "" unknown
    lost_ns: int  # device time lost per step, on average over ranks; of a hang 0: it never ends
    waiting_ns: int = 0  # of it, others' waiting
    idle_ns: int = 0  # of it, idle
    inside_ns: int = 0  # of it, inside operators of a host without a device
    subject_ns: int = 0  # of it, that of the subject
    share: float = 0.0  # of the job's step time
    factor: float = 1.0  # how many times as long slow work takes as its equals
    num_ranks: int = 1  # that have a part in it
    text: str = ""  # of a hang, its sentence

    @property
    def sentence(self) -> str:
        """The cause as a reader says it; every number is one of this row's."""
        if self.text:
            return self.text
        lost = (
            f"{duration_text(self.lost_ns)} per step and rank, {percent_text(100 * self.share)} of "
            "the step"
        )
        parts = [lost]
        if told := self._shares:
            *first, last = told
            parts.append(f"{', '.join(first)} and {last}")
        if self._is_part:
            parts.append(f"{duration_text(self.subject_ns)} of it {shortened(self.subject)}")
        return f"{self._named}: {'; '.join(parts)}"

    @property
    def _shares(self) -> tuple[str, ...]:
        """What it consists of, where that is not one thing alone."""
        parts = (
            (self.waiting_ns, "waiting"),
            (self.idle_ns, "idle"),
            (self.inside_ns, "in operators"),
        )
        named = [(ns, what) for ns, what in parts if ns]
        texts = [f"{duration_text(ns)} of it {what}" for ns, what in named[:1]]
        texts += [f"{duration_text(ns)} {what}" for ns, what in named[1:]]
        return tuple(texts) if len(texts) > 1 else ()

    @property
    def _is_part(self) -> bool:
        """Whether the subject has a part of it, which is then said with that part."""
        is_less = duration_text(self.subject_ns) != duration_text(self.lost_ns)
        return self.subject not in {"", _GHOST} and 0 < self.subject_ns < self.lost_ns and is_less

    @property
    def _waiting(self) -> str:
        """Who waits."""
        if self.topic == "pipeline":
            return "pipeline stages wait"
        if self.rank == ALL_RANKS:
            return f"{count_text(self.num_ranks, 'rank')} wait"
        return f"rank {self.rank} waits"

    @property
    def _named(self) -> str:
        """What it is and where."""
        than = "usual" if self.what == SlowKind.WHILE else "its equals"
        slow = f", {self.factor:.2f} times as long as {than}" if self.factor > 1 else ""
        is_most = self.what == SlowKind.OPERATOR
        is_most |= bool(self.subject) and self.subject_ns > 0 and not self._is_part
        name = f" ({shortened(self.subject)})" if is_most else ""
        name += slow
        if self.rank == UNRECORDED_RANK:
            return "ranks wait for what was not recorded"
        if self.cause is IdleCause.UNRECORDED:
            named = f" ({self.subject})" if is_most and self.subject != _GHOST else ""
            return f"{self._waiting} for what was not recorded{named}"
        if self.topic == "pipeline":
            return f"pipeline stages wait for each other's {self.what}{name}"
        if self.topic == "link":
            return f"{self.what} in group {self.subject}{slow}"
        if self.rank == ALL_RANKS:
            what, *rest = self.what.split(", ")
            where = f"{what} on {count_text(self.num_ranks, 'rank')}"
            return f"{', '.join((where, *rest))}{name}"
        return f"rank {self.rank}'s {self.what}{name}"


def loss_causes(timeline: Timeline, lost: IdleCauses) -> Iterator[Cause]:
    """What costs time, each over all steps and ranks, one entry for what is one cause.

    Args:
        timeline: of a job.
        lost: its idle time.
    """
    compute = Compute.of(timeline)
    entries = [*_entries(lost, timeline), *_slow_for_a_while(compute, lost)]
    entries = _with_stalled_work(entries, timeline)
    links, entries = _of_links(slow_links(timeline), entries)
    yield from _told_apart(_joined(entries), compute)
    yield from links


# -- idle time and waiting: sums over all steps and ranks ----------------------------------------


def _entries(lost: IdleCauses, timeline: Timeline) -> Iterator[Cause]:
    """All entries, those of the recording's own making left out."""
    waiting = lost.kind == Stillness.WAITING
    of_transfer = _is_between_stages(timeline.graph)[lost.collective]
    for cause in IdleCause:
        if cause in _NOT_WRONG:
            continue
        for what, mine in _kinds(lost, cause):
            yield from _pipeline(lost, mine & waiting & of_transfer, (cause, what))
            yield from _by_rank(lost, mine & waiting & ~of_transfer, mine & ~waiting, (cause, what))


def _is_between_stages(graph: ExecutionGraph) -> Bools:
    """Sends and receives of a pipeline, bool[collectives + 1]; an all-to-all has that name too."""
    is_pair = np.array([*graph.collectives.each(lambda one: one.is_transfer), False], np.bool_)
    finish = graph.nodes_of(NodeKind.FINISH)
    of_stage = graph.collective[finish[graph.part[finish] == Part.TRANSFER]]
    is_pair[:-1] &= np.isin(np.arange(len(graph.collectives)), of_stage)
    return is_pair


def _kinds(lost: IdleCauses, cause: IdleCause) -> Iterator[tuple[str, Bools]]:
    """A cause in words with its rows; stalls by what is known of theirs."""
    mine = lost.cause == cause
    if cause is not IdleCause.STALL:
        yield cause.words, mine
        return
    for subject in np.unique(lost.subject[mine]).tolist():
        kind = _STALL_WORDS[lost.subjects[subject]]
        yield _stall_words(kind), mine & (lost.subject == subject)


def _stall_words(kind: StallKind) -> str:
    """What stalls of a kind are called among causes."""
    return f"{IdleCause.STALL.words}, {kind.words}" if kind in _NO_CAUSE else kind.words


def _pipeline(lost: IdleCauses, chosen: Bools, of: tuple[IdleCause, str]) -> Iterator[Cause]:
    waiting_ns = int(lost.duration_ns[chosen].sum())
    if waiting_ns:
        yield _entry(lost, chosen, ("pipeline", ALL_RANKS, *of), (waiting_ns, 0))


def _by_rank(
    lost: IdleCauses, waiting: Bools, standing: Bools, of: tuple[IdleCause, str]
) -> Iterator[Cause]:
    """Ranks' own entries, and the one that all ranks share."""
    ranks = np.unique(lost.rank).tolist()
    own_ns = {rank: int(lost.duration_ns[standing & (lost.rank == rank)].sum()) for rank in ranks}
    # of two the lower: what the higher has more is its own
    common_ns = sorted(own_ns.values())[(len(ranks) - 1) // 2] if len(ranks) > 1 else 0
    shared_ns = sum(min(ns, common_ns) for ns in own_ns.values())
    if shared_ns:
        one = _entry(lost, standing, ("idle", ALL_RANKS, *of), (0, shared_ns))
        scale = shared_ns / max(int(lost.duration_ns[standing].sum()), 1)
        yield replace(one, subject_ns=int(one.subject_ns * scale), num_ranks=len(ranks))
    for rank in sorted({*ranks, *np.unique(lost.culprit_rank[waiting]).tolist()}):
        blamed = waiting & (lost.culprit_rank == rank)
        waiting_ns = int(lost.duration_ns[blamed].sum())
        idle_ns = max(own_ns.get(rank, 0) - common_ns, 0)
        if waiting_ns + idle_ns:
            rows = blamed | (standing & (lost.rank == rank)) if idle_ns else blamed
            topic = "straggler" if waiting_ns else "idle"
            yield _entry(lost, rows, (topic, rank, *of), (waiting_ns, idle_ns))


def _entry(
    lost: IdleCauses,
    rows: Bools,
    about: tuple[str, int, IdleCause, str],
    ns: tuple[int, int],
) -> Cause:
    """A sum of rows, with what most of it is blamed on and how much that is."""
    topic, rank, cause, what = about
    by_subject = np.bincount(
        lost.subject[rows], weights=lost.duration_ns[rows], minlength=len(lost.subjects)
    )
    at = int(np.argmax(by_subject))
    subject = lost.subjects[at]
    if cause is IdleCause.STALL:
        subject = ""  # what is known of it is what `what` says
    subject_ns = min(int(by_subject[at]), sum(ns))
    return Cause(topic, rank, cause, what, subject, sum(ns), *ns, subject_ns=subject_ns)


def _joined(entries: Iterable[Cause]) -> list[Cause]:
    """Entries of one cause as one where many ranks have a part in it, and none leads."""
    groups: dict[tuple[bool, str, str], list[Cause]] = {}
    for one in entries:
        is_apart = one.topic == "pipeline" or one.rank == UNRECORDED_RANK
        groups.setdefault((is_apart, one.topic if is_apart else "", one.what), []).append(one)
    found: list[Cause] = []
    for (is_apart, _, _), alike in groups.items():
        by_rank = [one for one in alike if one.rank != ALL_RANKS]
        most_ns = max((one.lost_ns for one in by_rank), default=0)
        total_ns = sum(one.lost_ns for one in alike)
        if is_apart or len(by_rank) < 2 or most_ns > _LEADING_SHARE * total_ns:  # noqa: PLR2004  joins
            found += alike
        else:
            found.append(_sum_of(alike))
    return found


def _sum_of(alike: list[Cause]) -> Cause:
    """One entry of all ranks that have a part."""
    by_subject: dict[str, int] = {}
    for one in alike:
        by_subject[one.subject] = by_subject.get(one.subject, 0) + one.subject_ns
    subject = max(by_subject, key=lambda name: by_subject[name])
    ranks = {one.rank for one in alike if one.rank >= 0}
    shared = max(one.num_ranks for one in alike if one.rank == ALL_RANKS or one.num_ranks)
    return replace(
        alike[0],
        topic="straggler" if any(one.waiting_ns for one in alike) else "idle",
        rank=ALL_RANKS,
        subject=subject,
        lost_ns=sum(one.lost_ns for one in alike),
        waiting_ns=sum(one.waiting_ns for one in alike),
        idle_ns=sum(one.idle_ns for one in alike),
        inside_ns=sum(one.inside_ns for one in alike),
        subject_ns=by_subject[subject],
        num_ranks=max(len(ranks), shared),
    )


# -- compute and transfers ----------------------------------------------------------------------


def _told_apart(entries: Iterable[Cause], compute: Compute) -> Iterator[Cause]:
    """Compute that a rank is blamed for as what it is against that of equal ranks."""
    graph = compute.timeline.graph
    for one in entries:
        if one.cause is not IdleCause.COMPUTE or one.rank < 0 or one.topic == "pipeline":
            yield one
            continue
        slow = compute.against_others(one.rank)
        if slow is None:
            yield one
            continue
        names = (*graph.names, "")
        name = names[graph.name[slow.node]] or names[graph.operator[slow.node]]
        is_one = slow.kind is SlowKind.OPERATOR
        yield replace(
            one,
            what=slow.kind.value,
            subject=name if is_one else "",
            subject_ns=0,
            factor=slow.factor,
        )


def _slow_for_a_while(compute: Compute, lost: IdleCauses) -> Iterator[Cause]:
    """Ranks whose compute is slow for a while, where no other rank waited for it."""
    blamed = {int(rank) for rank in np.unique(lost.culprit_rank[lost.cause == IdleCause.COMPUTE])}
    for rank in compute.timeline.graph.ranks:
        slow = None if rank in blamed else compute.against_itself(rank)
        if slow is not None:
            yield Cause("slow", rank, None, slow.kind.value, "", slow.over_ns, factor=slow.factor)


def _with_stalled_work(entries: list[Cause], timeline: Timeline) -> list[Cause]:
    """The entries, and what stalled inside operators of ranks without a device.

    A rank's stalls of one kind are one entry, whether they struck between its operators or in them.
    """
    for stalled in stalled_work(timeline):
        what = _stall_words(stalled.kind)
        alike = [one for one in entries if (one.rank, one.what) == (stalled.rank, what)]
        entries = [one for one in entries if one not in alike]
        lost_ns = stalled.over_ns + sum(one.lost_ns for one in alike)
        topic = max(alike, key=lambda one: one.lost_ns).topic if alike else "slow"
        entries.append(
            Cause(
                topic,
                stalled.rank,
                IdleCause.STALL,
                what,
                stalled.operator if 2 * stalled.operator_ns >= lost_ns else "",
                lost_ns,
                waiting_ns=sum(one.waiting_ns for one in alike),
                idle_ns=sum(one.idle_ns for one in alike),
                inside_ns=stalled.over_ns,
                subject_ns=stalled.operator_ns,
            )
        )
    return entries


def _of_links(links: tuple[SlowLink, ...], entries: list[Cause]) -> tuple[list[Cause], list[Cause]]:
    """Slow groups, with others' waiting for the transfers of their ranks; and the other entries."""
    found = []
    for link in links:
        own = [
            one
            for one in entries
            if one.cause is IdleCause.COMMUNICATION and one.rank in link.ranks
        ]
        entries = [one for one in entries if one not in own]
        waiting_ns = sum(one.waiting_ns for one in own)
        lost_ns = link.over_ns + waiting_ns
        found.append(
            Cause(
                "link",
                link.ranks[0],
                None,
                SLOW_LINK,
                link.group,
                lost_ns,
                waiting_ns=waiting_ns,
                factor=link.factor,
                num_ranks=len(link.ranks),
            )
        )
    return found, entries
