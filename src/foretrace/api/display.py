"""Results show themselves as tables in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

from foretrace.analyze import Breakdown
from foretrace.report import breakdown_html, replay_html
from foretrace.validate import ReplayReport

Shown = TypeVar("Shown")


class HtmlFormatter(Protocol):
    """What IPython offers to learn how a type looks."""

    def for_type(self, typ: type[Shown], func: Callable[[Shown], str]) -> object:
        """Use `func` for values of `typ`."""
        ...


def register_displays() -> None:
    """Teach the running notebook, if there is one, how our results look."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is not None:
        teach(shell.display_formatter.formatters["text/html"])


def teach(formatter: HtmlFormatter) -> None:
    """Teach one formatter all types that a verb returns and that have a table."""
    formatter.for_type(Breakdown, breakdown_html)
    formatter.for_type(ReplayReport, replay_html)
