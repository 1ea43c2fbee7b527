"""`diagnosis`: what is wrong with a job, first first, over idle time, stragglers and hangs.

A hang comes first. Then time that devices lost, by the rank where it began and by its cause:
others' waiting for that rank, and its own idle time as far as it exceeds that of the median
rank. What all ranks lose alike is one entry of no rank. Time lost is per step and rank, so that
entries compare with a step's length: an entry gone, the average rank has so much less to lose.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.analyze.hangs import hang
from foretrace.analyze.idle import (
    UNRECORDED_RANK,
    IdleCause,
    IdleCauses,
    Stillness,
    idle,
    shortened,
)
from foretrace.base import NS_PER_MS
from foretrace.graph import Collectives, Recording, Timeline

ALL_RANKS = -2
MIN_LOST_NS = 1_000  # per step and rank; less is below what the profiler resolves
_NOT_WRONG = frozenset({IdleCause.EDGE, IdleCause.UNEXPLAINED})  # of the recording, not the job


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong."""

    topic: str  # "hang", "straggler", "idle" or "pipeline"
    rank: int  # where it began; ALL_RANKS, UNRECORDED_RANK
    cause: IdleCause | None  # None of a hang
    subject: str  # operator, kernel or call; of a hang the collective; "" unknown
    lost_ns: int  # device time lost per step, on average over ranks; of a hang 0: it never ends
    sentence: str


@dataclass(frozen=True)
class _Entry:
    """Time lost by rank and cause, before it is put in words."""

    topic: str
    rank: int
    cause: IdleCause
    waiting_ns: int
    idle_ns: int
    subject: str


def diagnosis(of: Timeline | Recording) -> tuple[Cause, ...]:
    """What is wrong, most harmful first.

    Args:
        of: a timeline; or a recording, whose measured timeline it is then, and which can tell a
            hang.
    """
    timeline = of.measured if isinstance(of, Recording) else of
    first = _of_hang(of) if isinstance(of, Recording) else ()
    lost = idle(timeline)
    entries = _entries(lost, timeline.graph.collectives)
    cells = max(len(set(zip(lost.step.tolist(), lost.rank.tolist(), strict=True))), 1)
    found = [_in_words(entry, cells) for entry in entries]
    harmful = (one for one in found if one.lost_ns >= MIN_LOST_NS)
    return (*first, *sorted(harmful, key=lambda one: (-one.lost_ns, one.rank)))


def _of_hang(recording: Recording) -> tuple[Cause, ...]:
    found = hang(recording)
    if not found.is_hung:
        return ()
    rank = found.culprits[0].rank if found.culprits else ALL_RANKS
    return (Cause("hang", rank, None, found.stuck[0].name, 0, found.sentence),)


def _entries(idle: IdleCauses, collectives: Collectives) -> list[_Entry]:
    """All entries, those of the recording's own making left out."""
    is_pair = np.array([*collectives.each(lambda one: one.is_transfer), False], np.bool_)
    waiting = idle.kind == Stillness.WAITING
    of_transfer = is_pair[idle.collective]
    found: list[_Entry] = []
    for cause in IdleCause:
        if cause in _NOT_WRONG:
            continue
        mine = idle.cause == cause
        found.extend(_pipeline(idle, mine & waiting & of_transfer, cause))
        found.extend(_by_rank(idle, mine & waiting & ~of_transfer, mine & ~waiting, cause))
    return found


def _pipeline(idle: IdleCauses, chosen: np.ndarray, cause: IdleCause) -> list[_Entry]:
    waiting_ns = int(idle.duration_ns[chosen].sum())
    if not waiting_ns:
        return []
    return [_Entry("pipeline", ALL_RANKS, cause, waiting_ns, 0, _leading(idle, chosen))]


def _by_rank(
    idle: IdleCauses, waiting: np.ndarray, standing: np.ndarray, cause: IdleCause
) -> list[_Entry]:
    """Ranks' own entries, and the one that all ranks share."""
    ranks = np.unique(idle.rank).tolist()
    own_ns = {rank: int(idle.duration_ns[standing & (idle.rank == rank)].sum()) for rank in ranks}
    common_ns = int(np.median(list(own_ns.values()))) if len(ranks) > 1 else 0
    shared_ns = sum(min(ns, common_ns) for ns in own_ns.values())
    found = []
    if shared_ns:
        found.append(_Entry("idle", ALL_RANKS, cause, 0, shared_ns, _leading(idle, standing)))
    for rank in sorted({*ranks, *np.unique(idle.culprit_rank[waiting]).tolist()}):
        blamed = waiting & (idle.culprit_rank == rank)
        waiting_ns = int(idle.duration_ns[blamed].sum())
        idle_ns = max(own_ns.get(rank, 0) - common_ns, 0)
        if waiting_ns + idle_ns:
            subject = _leading(idle, blamed if waiting_ns else standing & (idle.rank == rank))
            topic = "straggler" if waiting_ns else "idle"
            found.append(_Entry(topic, rank, cause, waiting_ns, idle_ns, subject))
    return found


def _leading(idle: IdleCauses, chosen: np.ndarray) -> str:
    """What most of the chosen time is blamed on."""
    ns = np.bincount(
        idle.subject[chosen], weights=idle.duration_ns[chosen], minlength=len(idle.subjects)
    )
    return idle.subjects[int(np.argmax(ns))] if len(ns) else ""


def _in_words(entry: _Entry, cells: int) -> Cause:
    lost_ns = (entry.waiting_ns + entry.idle_ns) // cells
    name = f": {shortened(entry.subject)}" if entry.subject else ""
    lost = f"{lost_ns / NS_PER_MS:,.3f} ms per step and rank"
    what = f"{entry.cause.words}{name}"
    if entry.topic == "pipeline":
        sentence = f"pipeline stages wait {lost} for each other's {what}"
    elif entry.rank == ALL_RANKS:
        sentence = f"all ranks are idle {lost} because of {what}"
    elif entry.rank == UNRECORDED_RANK:
        sentence = f"ranks lose {lost} waiting for what was not recorded"
    elif entry.waiting_ns:
        sentence = f"rank {entry.rank} makes ranks lose {lost} by its {what}"
    else:
        sentence = f"rank {entry.rank} is idle {lost} because of its {what}"
    return Cause(entry.topic, entry.rank, entry.cause, entry.subject, lost_ns, sentence)
