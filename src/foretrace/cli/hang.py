"""`foretrace hang`: whether ranks stopped at different collectives, and who is missing where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text

from foretrace import api
from foretrace.analyze import Hang
from foretrace.cli import options
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Source
from foretrace.cli.tables import print_sentences, print_title

if TYPE_CHECKING:
    import polars as pl

HUNG = 1  # the exit code where one is asked for
_NO_HANG = "no rank waits for another for good, as far as the files tell"


@dataclass(frozen=True)
class Diagnosis:
    """A hang, or that there is none."""

    hang: Hang | None

    def as_json(self) -> dict[str, object]:
        """Whether there is one, and everything about it."""
        return {"is_hung": self.hang is not None, **(self.hang.as_json() if self.hang else {})}

    def to_frame(self) -> pl.DataFrame:
        """One row per place at which ranks wait; none without a hang."""
        import polars as pl  # on demand: it takes longer to import than a hang to find

        return self.hang.to_frame() if self.hang else pl.DataFrame()


def hang(
    paths: options.Paths,
    *,
    fail_if_hung: Annotated[
        bool, typer.Option("--fail-if-hung", help="Exit with 1 if there is a hang.")
    ] = False,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Say whether ranks stopped at different collectives, where."""
    source = Source(paths, ranks, no_cache, workers)
    with activity() as doing:
        job = source.job(doing)
        found = api.hang(job)

    def show() -> None:
        console = Console(highlight=False)
        print_title(console, job, is_replayed=False)
        print_hang(console, found)

    Outputs(json, csv, parquet).give(Diagnosis(found), show)
    if found is not None and fail_if_hung:
        raise typer.Exit(HUNG)


def print_hang(console: Console, found: Hang | None) -> None:
    """Print who waits where, the root first, and what those that are missing did last."""
    if found is None:
        console.print(_NO_HANG)
        return
    if found.deadlock:
        circle = " -> ".join(map(str, (*found.deadlock, found.deadlock[0])))
        console.print(Text(f"deadlock across groups: rank {circle}", "bold red"))
    print_sentences(console, "who waits where", (one.sentence for one in found.stuck))
    print_sentences(console, "who is missing", (one.sentence for one in found.culprits))
