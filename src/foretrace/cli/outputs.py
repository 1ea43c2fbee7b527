"""A result as JSON on stdout, as files, or as tables: the same for every command."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import typer

from foretrace.answer import Answer, Style, Told, count_text, markdown_of, text_of
from foretrace.api import Job
from foretrace.base import visible, written_beside
from foretrace.cli import options

if TYPE_CHECKING:
    import polars as pl

# Of `cli/schemas`: rises when a key goes or means something else, not when one is added.
SCHEMA_VERSION = 1
_STEERING = re.compile("[\x7f-\x9f]")  # steers some terminals, and JSON lets it stand


@dataclass(frozen=True)
class Outputs:
    """How the user wants a result."""

    json: options.AsJson = False
    markdown: options.Markdown = False
    csv: options.Csv = None
    parquet: options.Parquet = None
    table: options.TableName = None

    def __post_init__(self) -> None:
        """Refuse two forms at once."""
        if self.json and self.markdown:
            raise typer.BadParameter(
                "--json and --markdown are two forms of one answer: leave one out"
            )

    def tell(
        self,
        found: Answer,
        *,
        title: str = "",
        top: int | None = 16,
        parts: tuple[Told, ...] | None = None,
        lacks: tuple[str, ...] = (),
        wrote: Iterable[Path | None] = (),
    ) -> None:
        """Write the files asked for, then print JSON, or else what the answer tells.

        Args:
            title: what it is about, above it.
            top: rows of each table; None: all.
            parts: what to show; all that the answer tells, if left out.
            lacks: what the recording lacks, a sentence each; in JSON beside the answer.
            wrote: other files that were asked for and are there; `None`: not asked for.
        """
        if self.csv is not None:
            with written_beside(self.csv) as beside:
                self._frame(found).write_csv(beside)
        if self.parquet is not None:
            with written_beside(self.parquet) as beside:
                self._frame(found).write_parquet(beside)
        if self.json:
            print_json(_versioned(found.as_json(), lacks))
        else:
            shown = found.parts() if parts is None else parts
            text = _markdown if self.markdown else _told
            typer.echo(text(found, title, top, shown))
        tell_written(self.csv, self.parquet, *wrote)

    def _frame(self, found: Answer) -> pl.DataFrame:
        try:
            return found.to_polars(self.table or "")
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error


def tell_written(*paths: Path | None) -> None:
    """Name files that were asked for, where answers do not stand."""
    for path in paths:
        if path is not None:
            typer.echo(f"wrote {path}", err=True)


def _versioned(value: object, lacks: tuple[str, ...]) -> dict[str, object]:
    """JSON as its schema says it: its version first, a list under `rows`, what is lacking last."""
    told = value if isinstance(value, dict) else {"rows": value}
    lacking = {"lacks": lacks} if lacks else {}
    return {"schema_version": SCHEMA_VERSION, **told, **lacking}


def title_text(job: Job, *, is_replayed: bool) -> str:
    """Which run this is about, how much of it, and which side."""
    steps, ranks = count_text(len(job.steps), "step"), count_text(len(job.ranks), "rank")
    side = "replayed" if is_replayed else "measured"
    return f"{job.title}: {ranks}, {steps}, {side}"


def _told(found: Answer, title: str, top: int | None, parts: tuple[Told, ...]) -> str:
    style = Style(partial(typer.style, bold=True), partial(typer.style, dim=True))
    width = shutil.get_terminal_size().columns
    text = text_of(found.headline, parts, note=found.note, top=top, width=width, style=style)
    return f"{typer.style(visible(title), bold=True)}\n{text}" if title else text


def _markdown(found: Answer, title: str, top: int | None, parts: tuple[Told, ...]) -> str:
    return markdown_of(found.headline, parts, title=title, note=found.note, top=top)


def print_json(value: object) -> None:
    """Print builtins as indented JSON."""
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except UnicodeEncodeError:  # of a file's name that is no UTF-8
        text = json.dumps(value, indent=2)
    typer.echo(_STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text))
