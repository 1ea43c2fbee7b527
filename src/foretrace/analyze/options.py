"""Keywords that several questions share, each with its one help text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, TypeAlias

from foretrace.answer import Option
from foretrace.trace import STEP_MARK

Step: TypeAlias = Annotated[
    str | int | None, Option("Look at this step, by name or number.", metavar="NAME")
]
Rank: TypeAlias = Annotated[
    int | None,
    Option("Of this rank's own step. Default: the job's step.", metavar="RANK", minimum=0),
]
Of: TypeAlias = Annotated[
    str | None, Option("Look at this work only, as in 'gemm layers:0-3'.", metavar="WORK")
]


def step_name(step: str | int | None, names: Iterable[str]) -> str | None:
    """The name that a name or number stands for: 7 or "7" is "ProfilerStep#7", or "iteration 7".

    Args:
        step: a name, or a number that the name ends with.
        names: of the recording's steps. A number that none ends with is the profiler's.
    """
    if isinstance(step, int) or (step is not None and step.isdigit()):
        ending = re.compile(rf"(?<!\d){step}$")
        found = next((name for name in names if ending.search(name)), None)
        return f"{STEP_MARK}{step}" if found is None else found
    return step
