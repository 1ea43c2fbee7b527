"""A result as JSON on stdout, as files, or as tables: the same for every command."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
import typer

from foretrace.answer import Answer, Style, Told, count_text, text_of
from foretrace.api import Job
from foretrace.base import visible, written_beside

if TYPE_CHECKING:
    import polars as pl

_STEERING = re.compile("[\x7f-\x9f]")  # steers some terminals, and JSON lets it stand


class Result(Protocol):
    """What every analysis returns."""

    def as_json(self) -> object:
        """Everything, as builtins; times in ns."""
        ...

    def to_frame(self) -> pl.DataFrame:
        """The main table."""
        ...


@dataclass(frozen=True)
class Outputs:
    """How the user wants a result."""

    json: bool
    csv: Path | None = None
    parquet: Path | None = None
    table: str | None = None

    def tell(
        self,
        found: Answer,
        *,
        title: str = "",
        top: int | None = 16,
        parts: tuple[Told, ...] | None = None,
    ) -> None:
        """Write the files asked for, then print JSON, or else what the answer tells.

        Args:
            title: what it is about, above it.
            top: rows of each table; None: all.
            parts: what to show; all that the answer tells, if left out.
        """
        if self.csv is not None:
            with written_beside(self.csv) as beside:
                self._frame(found).write_csv(beside)
        if self.parquet is not None:
            with written_beside(self.parquet) as beside:
                self._frame(found).write_parquet(beside)
        if self.json:
            print_json(found.as_json())
        else:
            shown = found.parts() if parts is None else parts
            typer.echo(_told(found, title, top, shown))
        for path in (self.csv, self.parquet):
            if path is not None:
                typer.echo(f"wrote {path}", err=True)

    def _frame(self, found: Answer) -> pl.DataFrame:
        try:
            return found.to_polars(self.table or "")
        except ValueError as error:
            raise typer.BadParameter(str(error)) from error

    def give(self, result: Result, show: Callable[[], None]) -> None:
        """Write the files asked for, then print JSON, or else what `show` prints."""
        if self.csv is not None:
            _write_csv(self.csv, result)
        if self.parquet is not None:
            with written_beside(self.parquet) as beside:
                result.to_frame().write_parquet(beside)
        if self.json:
            print_json(result.as_json())
        else:
            show()
        for path in (self.csv, self.parquet):
            if path is not None:
                typer.echo(f"wrote {path}", err=True)


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


def print_json(value: object) -> None:
    """Print builtins as indented JSON."""
    try:
        text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    except UnicodeEncodeError:  # of a file's name that is no UTF-8
        text = json.dumps(value, indent=2)
    typer.echo(_STEERING.sub(lambda found: f"\\u{ord(found[0]):04x}", text))


def _write_csv(path: Path, result: Result) -> None:
    """A column of lists or structs, which CSV has no form for, becomes text."""
    import polars as pl  # on demand: it takes longer to import than most commands take

    frame = result.to_frame()
    nested = [name for name, kind in frame.schema.items() if kind.is_nested()]
    frame = frame.with_columns(
        pl.Series(name, [_text(value) for value in frame[name].to_list()], dtype=pl.String)
        for name in nested
    )
    with written_beside(path) as beside:
        frame.write_csv(beside)


def _text(value: object) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
