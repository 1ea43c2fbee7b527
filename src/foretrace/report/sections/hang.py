"""A hang: ranks that stopped at different collectives, who waits and for whom."""

from __future__ import annotations

from foretrace.analyze import Hang
from foretrace.answer import Cell, Column, Sentences, Table, Unit
from foretrace.report.document import Section


def hang_section(hang: Hang | None) -> Section | None:
    """The diagnosis, the root first; `None` if nothing hangs."""
    if hang is None:
        return None
    rows: tuple[tuple[Cell, ...], ...] = tuple(
        (
            one.group,
            one.position,
            one.name,
            one.num_bytes if one.num_bytes >= 0 else None,
            ", ".join(map(str, one.waiting_ranks)),
            ", ".join(map(str, one.missing_ranks)),
        )
        for one in hang.stuck
    )
    seen = tuple(("", one.sentence) for one in hang.culprits)
    return Section(
        key="hang",
        title="This run hangs",
        short="Hang",
        warning=f"{hang.sentence}.",
        parts=(
            *([Sentences("What they did last", seen)] if seen else []),
            Table(
                key="hang-places",
                title="Where ranks wait, the root first",
                columns=(
                    Column("group", "group", Unit.WORD),
                    Column("position", "#", Unit.IDENTIFIER),
                    Column("name", "collective", Unit.WORD),
                    Column("num_bytes", "size", Unit.BYTES),
                    Column("waiting_ranks", "waiting ranks"),
                    Column("missing_ranks", "missing ranks"),
                ),
                rows=rows,
            ),
        ),
    )
