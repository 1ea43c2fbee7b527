"""What is being done, on stderr, while it takes long enough to wonder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn
from rich.progress import TimeElapsedColumn as Elapsed


class Activity:
    """One line that says what is being done, and how far it is."""

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
def activity() -> Iterator[Activity]:
    """A line that is shown on a terminal only, and gone when the block ends."""
    console = Console(stderr=True)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        Elapsed(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        yield Activity(bar)
