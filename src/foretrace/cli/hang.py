"""`foretrace hang`: whether ranks stopped at different collectives, and who is missing where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from foretrace import api
from foretrace.analyze import Hang
from foretrace.answer import Answer, Json, Table, Told, plain_fields
from foretrace.cli import options
from foretrace.cli.outputs import Outputs, title_text
from foretrace.cli.progress import activity
from foretrace.cli.source import Source

HUNG = 1  # the exit code where one is asked for


@dataclass(frozen=True, repr=False)
class HangSearch(Answer):
    """A hang, or that there is none."""

    hang: Hang | None

    @property
    def headline(self) -> str:
        """Whether there is one."""
        if self.hang is None:
            return "no rank waits for another for good, as far as the files tell"
        if not self.hang.deadlock:
            return "ranks wait for good"
        circle = " -> ".join(map(str, (*self.hang.deadlock, self.hang.deadlock[0])))
        return f"deadlock across groups: rank {circle}"

    def parts(self) -> tuple[Told, ...]:
        """What is known of the hang."""
        return () if self.hang is None else self.hang.parts()

    def tables(self) -> tuple[Table, ...]:
        """Where ranks wait; nothing without a hang."""
        return Hang((), (), ()).tables() if self.hang is None else self.hang.tables()

    def as_json(self) -> Json:
        """Whether there is one, and everything about it."""
        is_hung = {"is_hung": self.hang is not None}
        return is_hung if self.hang is None else is_hung | plain_fields(self.hang)


def hang(
    paths: options.Paths,
    *,
    fail_if_hung: Annotated[
        bool, typer.Option("--fail-if-hung", help="Exit with 1 if there is a hang.")
    ] = False,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    table: options.TableName = None,
    top: options.Top = 8,
    ranks: options.Ranks = None,
    no_cache: options.NoCache = False,
    workers: options.Workers = None,
) -> None:
    """Say whether ranks stopped at different collectives, where."""
    source = Source(paths, ranks, no_cache, workers)
    with activity() as doing:
        job = source.job(doing)
        found = api.hang(job)

    outputs = Outputs(json, csv, parquet, table)
    outputs.tell(HangSearch(found), title=title_text(job, is_replayed=False), top=top)
    if found is not None and fail_if_hung:
        raise typer.Exit(HUNG)
