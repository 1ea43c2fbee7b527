"""What is being done, on stderr, while it takes long enough to wonder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import msgspec
import typer
from rich.console import Console

from foretrace.cli.settings import ProgressKind, progress_kind

if TYPE_CHECKING:
    from rich.progress import Progress


class ProgressLine(Protocol):
    """Says what is being done, and how far it is."""

    def now(self, what: str) -> None:
        """Begin something whose length is not known."""

    def advance(self, done: int, total: int) -> None:
        """Say how much of the present thing is done."""


class NoLine:
    """Nobody reads along."""

    def now(self, what: str) -> None:
        """Begin something whose length is not known."""

    def advance(self, done: int, total: int) -> None:
        """Say how much of the present thing is done."""


class LinesOfJson:
    """One mapping a line: `{"doing": "reading traces", "done": 3, "total": 8}`."""

    def __init__(self) -> None:
        self._what = "starting"

    def now(self, what: str) -> None:
        """Begin something whose length is not known."""
        self._what = what
        self._tell(done=None, total=None)

    def advance(self, done: int, total: int) -> None:
        """Say how much of the present thing is done."""
        self._tell(done=done, total=total)

    def _tell(self, **numbers: int | None) -> None:
        told = msgspec.json.encode({"doing": self._what, **numbers}).decode()
        typer.echo(told, err=True)


class OneLine:
    """One line on a terminal."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("starting", total=None)

    def now(self, what: str) -> None:
        """Begin something whose length is not known."""
        self._bar.reset(self._task, description=what, total=None)

    def advance(self, done: int, total: int) -> None:
        """Say how much of the present thing is done."""
        self._bar.update(self._task, completed=done, total=total)


@contextmanager
def activity() -> Iterator[ProgressLine]:
    """Progress as the command line's `--progress` asks for it.

    Without it a line that is shown on a terminal only, and gone when the block ends.
    """
    kind = progress_kind()
    if kind is ProgressKind.JSON:
        yield LinesOfJson()
        return
    console = Console(stderr=True)
    if kind is ProgressKind.NONE or not console.is_terminal:
        yield NoLine()
        return
    from rich.progress import (  # on demand: a pipe shows no line
        BarColumn,
        MofNCompleteColumn,
        Progress,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )

    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        yield OneLine(bar)
