"""`Hang`: ranks that stopped at different collectives; who waits, and for whom.

The evidence is in the recording: what each member of a group began last (`Recording.unmatched`)
and what each rank was doing when its file ends (`Recording.endings`). A rank is missing where
others of its group began an operation, and it began nothing in the group from there on. If it
waits in another group itself, the blame goes on to whom it waits for; if that comes back, the
groups are in a deadlock. A file that was cut off tells nothing of what its rank did next.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from foretrace.answer import (
    Answer,
    Column,
    Gate,
    Json,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    plain_fields,
    question,
)
from foretrace.graph import RECORDING, Ending, NodeKind, Recording, Unmatched

_POSTED_EARLY = frozenset({"send", "recv"})  # long before they are met, by design


@dataclass(frozen=True)
class Stuck(Plain):
    """A place of a group at which ranks wait that will not be met."""

    json_names: ClassVar = {"called_ns": ""}

    group: str
    position: int  # in the group, from 0
    name: str  # what those that wait began: "allreduce", ...
    num_bytes: int  # -1 unknown
    waiting_ranks: tuple[int, ...]
    missing_ranks: tuple[int, ...]  # of whole files; () where ranks began different things
    called_ns: tuple[int, ...]  # when each waiting rank began it, on the timeline's clock
    instead: tuple[str, ...]  # "rank 1 began broadcast of 4 bytes", if they differ there

    @property
    def sentence(self) -> str:
        """Where, who waits and who is missing."""
        place = f"{self.name} number {self.position} of group {self.group!r}"
        waiting = _ranks(self.waiting_ranks)
        if self.instead:
            return f"the members of group {self.group!r} differ at number {self.position}: " + (
                "; ".join(self.instead)
            )
        verb = "waits" if len(self.waiting_ranks) == 1 else "wait"
        return f"{waiting} {verb} in {place}, which {_ranks(self.missing_ranks)} never began"


@dataclass(frozen=True)
class LastSeen(Plain):
    """A rank that others wait for, and what it did last."""

    rank: int
    operator: str  # that began last; "" none
    open_names: tuple[str, ...]  # what was open when the file ends, outermost first
    last_collective: str  # the last it began in the group; "" none

    @property
    def sentence(self) -> str:
        """What the rank did last."""
        where = f" inside {self.open_names[-1]}" if self.open_names else ""
        last = f"; its last there was {self.last_collective}" if self.last_collective else ""
        return f"rank {self.rank} was last at {self.operator or 'no operator'}{where}{last}"


@dataclass(frozen=True, repr=False)
class Hang(Answer):
    """Ranks that wait for each other for good, the root first; or that nothing says so."""

    stuck: tuple[Stuck, ...]
    culprits: tuple[LastSeen, ...]  # ranks that nobody keeps from going on
    deadlock: tuple[int, ...]  # ranks that wait for each other in a circle; () none

    @property
    def is_hung(self) -> bool:
        """Whether there is a hang."""
        return bool(self.stuck)

    @property
    def sentence(self) -> str:
        """The diagnosis in a sentence or two; "" without a hang."""
        if not self.is_hung:
            return ""
        root = self.stuck[0]
        if self.deadlock:
            names = (f"rank {rank}" for rank in (*self.deadlock, self.deadlock[0]))
            circle = ", which waits for ".join(names).replace(", which", "", 1)
            where = "; ".join(each.sentence for each in self.stuck)
            return f"deadlock across groups: {circle}: {where}"
        return ". ".join([root.sentence, *(each.sentence for each in self.culprits)])

    @property
    def headline(self) -> str:
        """Whether there is one."""
        if not self.is_hung:
            return "no rank waits for another for good, as far as the files tell"
        if not self.deadlock:
            return "ranks wait for good"
        circle = " -> ".join(map(str, (*self.deadlock, self.deadlock[0])))
        return f"deadlock across groups: rank {circle}"

    @property
    def is_empty(self) -> bool:
        """Whether there is none."""
        return not self.is_hung

    @property
    def lead(self) -> str:
        """Nothing: the warning says it."""
        return ""

    @property
    def warning(self) -> str:
        """The diagnosis."""
        return f"{self.sentence}." if self.is_hung else ""

    def as_json(self) -> Json:
        """Whether there is one, and everything about it."""
        if not self.is_hung:
            return {"is_hung": False}
        return {"is_hung": True, **plain_fields(self), "sentence": self.sentence}

    def parts(self) -> tuple[Told, ...]:
        """Who waits where, who is missing, and what they did last."""
        return (
            Sentences.of("who waits where", (each.sentence for each in self.stuck)),
            Sentences.of("who is missing", (each.sentence for each in self.culprits)),
            Table.of(
                "stuck",
                self.stuck,
                Column("group", unit=Unit.WORD),
                Column("position", "#"),
                Column("name", "collective", Unit.WORD),
                Column("num_bytes", "size"),
                Column("waiting_ranks", value=lambda each: _ranks(each.waiting_ranks)),
                Column("missing_ranks", value=lambda each: _ranks(each.missing_ranks)),
                Column("sentence", shown=Shown.FILES),
                title="where ranks wait, the root first",
            ),
        )


@question(
    RECORDING,
    help="Say whether ranks stopped at different collectives, where.",
    doing="looking for ranks that wait for good",
    gate=Gate("fail_if_hung", "Exit with 1 if there is a hang.", lambda found: found.is_hung),
)
def hang(recording: Recording) -> Hang:
    """Where and for whom ranks wait for good."""
    endings = {ending.rank: ending for ending in recording.endings}
    stuck = [one for each in recording.unmatched if (one := _stuck(each, endings)) is not None]
    stuck = _first_of_groups(stuck)
    if not stuck:
        return Hang((), (), ())
    waits_for = _waits_for(stuck)
    circle = _circle(waits_for)
    roots = {rank for ranks in waits_for.values() for rank in ranks if rank not in waits_for}
    ordered = _in_program_order(recording, stuck, roots)
    culprits = tuple(
        _last_seen(recording, endings[rank], ordered) for rank in sorted(roots) if rank in endings
    )
    return Hang(tuple(ordered), culprits, () if roots else circle)


def _stuck(one: Unmatched, endings: dict[int, Ending]) -> Stuck | None:
    """The place, if ranks wait there for ever."""
    cut_off = {rank for rank, ending in endings.items() if ending.is_cut_off}
    missing = tuple(rank for rank in one.ended_ranks if rank not in cut_off)
    instead: tuple[str, ...] = ()
    if not one.missing_ranks:
        opened = [begun for begun in one.begun if begun.is_open]
        if not opened or cut_off & set(one.ranks):
            return None
        instead = tuple(
            f"rank {begun.rank} began {begun.name} of {begun.num_bytes:,} bytes"
            if begun.num_bytes >= 0
            else f"rank {begun.rank} began {begun.name}"
            for begun in one.begun
        )
    elif not missing:
        return None
    return Stuck(
        group=one.group,
        position=one.position,
        name=one.name,
        num_bytes=one.num_bytes,
        waiting_ranks=one.ranks,
        missing_ranks=missing,
        called_ns=tuple(begun.called_ns for begun in one.begun),
        instead=instead,
    )


def _first_of_groups(stuck: list[Stuck]) -> list[Stuck]:
    """The first place of each group and its members: what comes after was never reached."""
    found: dict[tuple[object, ...], Stuck] = {}
    for one in sorted(stuck, key=lambda each: each.position):
        members = tuple(sorted({*one.waiting_ranks, *one.missing_ranks}))
        found.setdefault((one.group, members), one)
    return list(found.values())


def _in_program_order(recording: Recording, stuck: list[Stuck], roots: set[int]) -> list[Stuck]:
    """Places that miss a root first, and of these what the root would have come to first.

    Of two places, the one that a rank waiting in both began first is first; else time decides:
    the common clock's where collectives tie all clocks together, else since each rank's start.
    """
    begin_ns = dict.fromkeys(recording.graph.ranks, 0)
    if not _is_one_clock(recording):
        graph = recording.graph
        starts = graph.nodes_of(NodeKind.RANK_START)
        first_ns = recording.measured.end_ns[starts].tolist()
        begin_ns |= dict(zip(graph.rank[starts].tolist(), first_ns, strict=True))
    left = sorted(
        stuck,
        key=lambda one: (
            not roots & set(one.missing_ranks),
            one.name in _POSTED_EARLY,
            min(
                called_ns - begin_ns[rank]
                for rank, called_ns in zip(one.waiting_ranks, one.called_ns, strict=True)
            ),
        ),
    )
    ordered: list[Stuck] = []
    while left:
        first = left[0]
        for other in left[1:]:
            is_alike = bool(roots & set(other.missing_ranks)) == bool(
                roots & set(first.missing_ranks)
            )
            if is_alike and other.name not in _POSTED_EARLY and _precedes(other, first):
                first = other
        ordered.append(first)
        left.remove(first)
    return ordered


def _precedes(one: Stuck, other: Stuck) -> bool:
    """Whether a rank that waits in both began the first before the second."""
    called_ns = dict(zip(one.waiting_ranks, one.called_ns, strict=True))
    return any(
        rank in called_ns and called_ns[rank] < at_ns
        for rank, at_ns in zip(other.waiting_ranks, other.called_ns, strict=True)
    )


def _is_one_clock(recording: Recording) -> bool:
    """Whether collectives that all members finished tie all ranks' clocks together."""
    tied = {rank: rank for rank in recording.graph.ranks}

    def root(rank: int) -> int:
        while tied[rank] != rank:
            rank = tied[rank]
        return rank

    for one in recording.graph.collectives:
        for rank in one.recorded_ranks[1:]:
            tied[root(rank)] = root(one.recorded_ranks[0])
    return len({root(rank) for rank in tied}) == 1


def _waits_for(stuck: list[Stuck]) -> dict[int, set[int]]:
    """Whom each waiting rank waits for; of ranks that differ, each other."""
    found: dict[int, set[int]] = {}
    for one in stuck:
        for rank in one.waiting_ranks:
            others = set(one.missing_ranks) if not one.instead else set()
            if others:
                found.setdefault(rank, set()).update(others)
    return found


def _circle(waits_for: dict[int, set[int]]) -> tuple[int, ...]:
    """Ranks that wait for each other in a circle, the lowest first; () if there is none."""
    for first in sorted(waits_for):
        way = [first]
        while way[-1] in waits_for:
            following = min(waits_for[way[-1]])
            if following in way:
                circle = way[way.index(following) :]
                lowest = circle.index(min(circle))
                return tuple(circle[lowest:] + circle[:lowest])
            way.append(following)
    return ()


def _last_seen(recording: Recording, ending: Ending, stuck: list[Stuck]) -> LastSeen:
    """What a missing rank did last."""
    missed = next(one for one in stuck if ending.rank in one.missing_ranks)
    # it began all before the first place that it missed, so the one before that is its last
    last = missed.position - 1
    names = [
        each.name
        for each in recording.graph.collectives
        if (each.group, each.position) == (missed.group, last)
        and ending.rank in each.recorded_ranks
    ]
    return LastSeen(
        rank=ending.rank,
        operator=ending.operator,
        open_names=ending.open_names,
        last_collective=f"{(*names, missed.name)[0]} number {last}" if last >= 0 else "",
    )


def _ranks(ranks: tuple[int, ...]) -> str:
    """`rank 3`, `ranks 0, 1 and 2`."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    shown = ", ".join(str(rank) for rank in ranks[:-1])
    return f"ranks {shown} and {ranks[-1]}" if ranks else "no rank"
