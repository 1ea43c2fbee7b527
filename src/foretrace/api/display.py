"""Results show themselves as tables in a notebook."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Protocol, TypeVar

from foretrace import analyze
from foretrace.api import notebook
from foretrace.api.edited import Edited
from foretrace.estimate import Estimate
from foretrace.graph import Blocks
from foretrace.report import replay_html
from foretrace.validate import ReplayReport
from foretrace.whatif import Prediction, Sweep

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
    formatter.for_type(ReplayReport, replay_html)
    formatter.for_type(Estimate, notebook.estimate_html)
    formatter.for_type(Prediction, notebook.prediction_html)
    formatter.for_type(Edited, notebook.edited_html)
    formatter.for_type(Sweep, notebook.sweep_html)
    formatter.for_type(analyze.CriticalPath, notebook.critical_path_html)
    formatter.for_type(analyze.Sensitivity, notebook.sensitivity_html)
    formatter.for_type(analyze.WhatHelps, notebook.what_helps_html)
    formatter.for_type(analyze.Effect, notebook.effect_html)
    formatter.for_type(analyze.Hang, notebook.hang_html)
    formatter.for_type(analyze.OperatorTable, notebook.operators_html)
    formatter.for_type(analyze.Roofline, notebook.roofline_html)
    formatter.for_type(analyze.AttentionProfile, notebook.attention_html)
    formatter.for_type(analyze.MemoryUse, notebook.memory_html)
    formatter.for_type(analyze.Comparison, notebook.comparison_html)
    formatter.for_type(Blocks, notebook.blocks_html)
