"""`foretrace sensitivity`: what would help most, and what a change of one's own would do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from foretrace import api
from foretrace.analyze import Effect, LeverKind, Sensitivity, SensitivityRow, WhatHelps
from foretrace.answer import duration_text, milliseconds_text, signed_percent_text
from foretrace.base import NS_PER_MS
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Source
from foretrace.cli.tables import (
    name_text,
    plain_table,
    print_section,
    print_title,
)

if TYPE_CHECKING:
    import polars as pl

CHANGE = "Make this change, as in class=gemm:0.8 or collective=allreduce:0; may be given again."


def sensitivity(
    paths: options.Paths,
    *,
    change: Annotated[list[str] | None, typer.Option(metavar="WHAT:FACTOR", help=CHANGE)] = None,
    step: options.Step = None,
    rank: options.Rank = None,
    top: options.Top = 8,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    blocks_file: options.BlocksFile = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Say what would shorten the step most, by simulating it."""
    source, outputs = Source(paths, ranks, no_cache, workers), Outputs(json, csv, parquet)
    console = Console(highlight=False)
    with activity() as doing:
        job = source.job(doing, blocks=blocks_file)
        doing.now("simulating with each thing faster")
        timeline = api.simulate(job)
        if change:
            effects = Effects.of(
                [api.effect(timeline, one, step=step, rank=rank) for one in change],
                api.effect(timeline, change, step=step, rank=rank),
            )
        else:
            found = api.sensitivity(timeline, step=step, rank=rank)
            advice = api.what_helps(found, top=top)

    def show() -> None:
        print_title(console, job, is_replayed=True)
        if change:
            print_effects(console, effects)
        else:
            print_advice(console, advice)
            print_levers(console, found, top)

    outputs.give(effects if change else found, show)


@dataclass(frozen=True)
class Effects:
    """Changes one by one, then all of them together."""

    rows: tuple[Effect, ...]

    @classmethod
    def of(cls, single: Sequence[Effect], together: Effect) -> Effects:
        """The changes alone, and together unless there is one only."""
        return cls((*single, together) if len(single) > 1 else tuple(single))

    def as_json(self) -> list[dict[str, object]]:
        """Every effect; times in ns."""
        return [one.as_json() for one in self.rows]

    def to_frame(self) -> pl.DataFrame:
        """One row per effect."""
        import polars as pl  # on demand: it takes longer to import than an effect to find

        rows = [one.as_json() | {"changes": " ".join(map(str, one.changes))} for one in self.rows]
        return pl.DataFrame(rows)


def print_effects(console: Console, effects: Effects) -> None:
    """Print what each change does to the step."""
    first = effects.rows[0]
    console.print(f"{first.step_name}: {milliseconds_text(first.step_ns)} ms as it is")
    table = plain_table("with", "step ms", "change", "", "work changed")
    for one in effects.rows:
        is_all = len(one.changes) > 1
        table.add_row(
            "all of them" if is_all else str(one.changes[0]),
            milliseconds_text(one.changed_ns),
            signed_percent_text(100 * one.share),
            f"{one.effect_ns / NS_PER_MS:+,.3f} ms",
            duration_text(one.work_ns),
            style="bold" if is_all else "",
        )
    print_section(console, "", table)


def print_advice(console: Console, advice: WhatHelps) -> None:
    """Print the changes that gain most."""
    console.print(f"{advice.step_name}: {milliseconds_text(advice.step_ns)} ms")
    table = plain_table("what would help most", "step", "", "part of")
    for one in advice.rows:
        table.add_row(
            name_text(one.text.split(": step")[0], 38),
            Text(signed_percent_text(-100 * one.share), "bold"),
            f"-{milliseconds_text(one.gain_ns)} ms",
            name_text(", ".join(one.inside[:1]), 22),
        )
    if not advice.rows:
        console.print("\nnothing that was tried shortens the step")
    print_section(console, "", table)


def print_levers(console: Console, found: Sensitivity, top: int) -> None:
    """Print every kind of lever: its time, and the step with it faster or free."""
    table = plain_table("lever", "time ms", "slope", "20 % faster", "free", "linear to")
    for kind in LeverKind:
        rows = [row for row in found.of_kind(kind) if _matters(row, found.step_ns)]
        if rows:
            table.add_row(Text(str(kind), "bold"))
        for row in rows[:top]:
            table.add_row(
                " " + name_text(row.label, 25),
                milliseconds_text(row.time_ns),
                *(
                    "" if part_ns is None else _share(part_ns, found.step_ns)
                    for part_ns in (row.derivative_ns, row.faster_ns, row.free_ns)
                ),
                "" if row.linear_to is None else f"{row.linear_to:.2f}",
            )
    print_section(console, "", table)
    console.print(
        "\nslope: of the step per 100 % of the time; linear to: the factor of the time down to "
        "which the slope alone gives the step, beyond it another path is critical",
        style="dim",
    )


_SMALLEST = 5e-4  # of the step; levers that change it by less are left to the files


def _matters(row: SensitivityRow, step_ns: int) -> bool:
    effects = (row.derivative_ns, row.faster_ns, row.free_ns)
    return max(abs(one) for one in effects if one is not None) >= _SMALLEST * step_ns


def _share(part_ns: float, step_ns: int) -> str:
    return signed_percent_text(100 * part_ns / step_ns)
