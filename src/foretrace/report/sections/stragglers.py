"""Stragglers: where others' waiting began, how often each rank was last, and why."""

from __future__ import annotations

from foretrace.analyze import UNRECORDED_RANK, Late, Stragglers
from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Sentences,
    Series,
    Table,
    Unit,
    duration_text,
)
from foretrace.report.document import Section
from foretrace.report.subjects import shortened

NUM_SENTENCES = 4


def straggler_section(found: Stragglers | None) -> Section | None:
    """Who was waited for at collectives; `None` if no recorded rank was."""
    if found is None or not found.causes:
        return None
    sentences = tuple(("", sentence) for sentence in found.sentences(NUM_SENTENCES))
    return Section(
        key="stragglers",
        title="Stragglers",
        short="Stragglers",
        lead=(
            f"All ranks together waited {duration_text(found.waiting_ns_of_all)} at collectives of "
            "the whole recording. The blame goes to the rank where the delay began, followed "
            "through the ranks that were late only because another was."
        ),
        parts=(
            Sentences("", sentences),
            _by_rank(found),
            _reasons(found.causes),
            *([_by_group(found)] if len(found.groups) > 1 else []),
        ),
        note=(
            "Chance: how likely a rank is last so often if all members were alike. Transfers "
            "between two ranks are left out: of a pipeline's neighbours one waits by design."
        ),
    )


def _rank_text(rank: int) -> str:
    return "not recorded" if rank == UNRECORDED_RANK else f"rank {rank}"


def _by_rank(found: Stragglers) -> Table:
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            _rank_text(rank.rank),
            rank.blame_ns,
            rank.own_wait_ns,
            rank.num_collectives,
            rank.num_last,
            rank.expected_last,
            100 * rank.chance,
            "systematic" if rank.is_systematic else "may be chance",
            rank.causes[0].cause.words if rank.causes else "",
            shortened(rank.causes[0].subject) if rank.causes else "",
        )
        for rank in found.ranks
    )
    return Table(
        key="straggler-ranks",
        title="Blame per rank",
        columns=(
            Column("rank", "rank", Unit.WORD),
            Column("blame_ns", "others waited, ms", Unit.MS),
            Column("own_wait_ns", "own waiting, ms", Unit.MS),
            Column("num_collectives", "collectives", Unit.COUNT),
            Column("num_last", "was last", Unit.COUNT),
            Column("expected_last", "expected", Unit.NUMBER),
            Column("chance_percent", "chance", Unit.PERCENT),
            Column("verdict", "verdict", Unit.WORD),
            Column("cause", "mostly by its", Unit.WORD),
            Column("subject", "operator or call"),
        ),
        rows=rows,
        chart=Chart(
            kind=ChartKind.BARS,
            label="how much others waited because of each rank, and it for others",
            category="rank",
            series=(
                Series("blame_ns", "others waited for it", "communication"),
                Series("own_wait_ns", "it waited for others", "wait"),
            ),
            unit=Unit.NS,
            max_rows=16,
        ),
    )


def _reasons(causes: tuple[Late, ...]) -> Table:
    return Table(
        key="straggler-reasons",
        title="Reasons",
        columns=(
            Column("rank", "rank", Unit.WORD),
            Column("cause", "its", Unit.WORD),
            Column("subject", "operator or call"),
            Column("waiting_ns", "others waited, ms", Unit.MS),
        ),
        rows=tuple(
            (
                _rank_text(one.rank),
                one.cause.words,
                shortened(one.subject),
                one.waiting_ns,
            )
            for one in causes
        ),
        max_rows=8,
    )


def _by_group(found: Stragglers) -> Table:
    def most(counts: dict[int, int]) -> str:
        return ", ".join(f"{_rank_text(rank)} ({count:,})" for rank, count in counts.items())

    return Table(
        key="straggler-groups",
        title="Process groups",
        columns=(
            Column("group", "group", Unit.WORD),
            Column("num_ranks", "ranks", Unit.COUNT),
            Column("num_collectives", "collectives", Unit.COUNT),
            Column("waiting_ns", "waiting, ms", Unit.MS),
            Column("last", "who was last"),
        ),
        rows=tuple(
            (
                one.group,
                len(one.ranks),
                one.num_collectives,
                one.waiting_ns,
                most(dict(list(one.last_by_rank.items())[:3])),
            )
            for one in found.groups
        ),
        max_rows=10,
    )
