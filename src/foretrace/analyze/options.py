"""Keywords that several questions share, each with its one help text."""

from __future__ import annotations

from typing import Annotated, TypeAlias

from foretrace.answer import Option

STEP_MARK = "ProfilerStep#"

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


def step_name(step: str | int | None) -> str | None:
    """The name that a name or number stands for: 7 or "7" is "ProfilerStep#7"."""
    if isinstance(step, int) or (step is not None and step.isdigit()):
        return f"{STEP_MARK}{step}"
    return step
