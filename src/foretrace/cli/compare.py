"""`foretrace compare`: what got slower from one run to the other, and a gate for CI jobs."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, TypeAlias

import typer

from foretrace import api
from foretrace.analyze import Comparison, Verdict
from foretrace.answer import duration_text, signed_percent_text
from foretrace.api import Job
from foretrace.base import NS_PER_UNIT
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.source import Reading, timeline_of

SLOWER, INCONCLUSIVE = 1, 4  # exit codes of a gate that does not hold, and of one that cannot tell

FailIfSlower: TypeAlias = Annotated[
    str | None,
    option(
        "LIMIT",
        "Exit with 1 if the step got longer by more: 3%, 5ms, 200us; with 4 if it seems "
        "so, of too few steps to tell.",
    ),
]
RequireSignificant: TypeAlias = Annotated[
    bool,
    typer.Option(
        "--require-significant", help="Fail only if the spread between steps cannot explain it."
    ),
]
Confidence: TypeAlias = Annotated[
    float, option("PERCENT", "Of the difference's interval.", min=50, max=99.99)
]
VIEWS = "component, class, family, kernel, operator, phase, block, collective, path or host"

_LIMIT = re.compile(r"(\d+(?:\.\d+)?)\s*(%|s|ms|us|ns)")


def compare(
    before: Annotated[
        str, typer.Argument(metavar="BEFORE", help="One run: a file, a glob or a folder.")
    ],
    after: Annotated[
        str | None,
        typer.Argument(
            metavar="AFTER", help="The other. Left out: BEFORE's replay, against BEFORE measured."
        ),
    ] = None,
    *,
    fail_if_slower: FailIfSlower = None,
    require_significant: RequireSignificant = False,
    confidence: Confidence = 95,
    by: Annotated[list[str] | None, option("VIEW", f"Show {VIEWS}; may be given again.")] = None,
    step: options.Step = None,
    replayed: options.Replayed = False,
    top: options.Top = 8,
    outputs: Outputs,
    reading: Reading,
) -> None:
    """Say what got slower or faster between two runs, and why."""
    limit = stated_limit(fail_if_slower, require_significant=require_significant)
    if after is None and replayed:
        raise typer.BadParameter("one run's replay against itself: leave --replayed out")
    paths = [path for path in (before, after) if path is not None]
    with activity() as doing:
        jobs = [reading.job([path], doing) for path in paths]
        is_replayed = (replayed, replayed or after is None)
        sides = [
            timeline_of(job, doing, is_replayed=of_side)
            for job, of_side in zip((jobs[0], jobs[-1]), is_replayed, strict=True)
        ]
        doing.now("comparing")
        found = api.compare(*sides, step=step, confidence=confidence / 100)
    unknown = sorted(set(by or ()) - {view.name for view in found.views})
    if unknown:
        have = ", ".join(view.name for view in found.views)
        raise typer.BadParameter(f"no view {unknown[0]!r} of these runs: expected one of {have}")
    code = 0
    if limit is not None:
        code = code_of(limit, found, require_significant=require_significant)

    titles = _titles(jobs, paths)
    title = f"{titles[0]} before, {titles[1]} after" if after is not None else titles[0]
    shown = None if by is None else found.views_told(by)
    lacks = tuple(dict.fromkeys(one for job in jobs for one in job.lacks))
    outputs.tell(found, title=title, top=top, parts=shown, lacks=lacks)
    if limit is not None:
        typer.echo(gate_text(limit, found, code), err=True)
    if code:
        raise typer.Exit(code)


def stated_limit(text: str | None, *, require_significant: bool) -> Limit | None:
    """The gate, if one is asked for."""
    if text is not None:
        return parsed_limit(text)
    if require_significant:
        raise typer.BadParameter("--require-significant has no effect without --fail-if-slower")
    return None


def code_of(limit: Limit, found: Comparison, *, require_significant: bool) -> int:
    """The exit code: whether the step got longer by more than is allowed, as far as steps tell."""
    if not limit.is_exceeded(found.before.mean_ns, found.after.mean_ns):
        return 0
    if found.noise.verdict is Verdict.TOO_FEW_STEPS:
        return INCONCLUSIVE
    is_certain = found.noise.verdict is Verdict.BEYOND_NOISE
    return SLOWER if is_certain or not require_significant else 0


def gate_text(limit: Limit, found: Comparison, code: int) -> str:
    """What the gate says, on one line."""
    change = duration_text(abs(found.difference_ns))
    word = "longer" if found.difference_ns >= 0 else "shorter"
    says = {SLOWER: "FAIL", INCONCLUSIVE: "inconclusive"}.get(code, "ok")
    return (
        f"{says}: the step is {change} {word} "
        f"({signed_percent_text(found.percent)}), allowed {limit.text}; "
        f"{found.noise.verdict.value}"
    )


def _titles(jobs: list[Job], paths: list[str]) -> tuple[str, str]:
    """What to call the two; by their paths where their titles are the same."""
    names = [job.title for job in jobs]
    if len(jobs) > 1 and names[0] == names[1]:
        names = paths
    return names[0], names[-1]


@dataclass(frozen=True)
class Limit:
    """How much longer a step may get, in percent of the step before or in ns."""

    text: str
    percent: float | None
    extra_ns: float

    def is_exceeded(self, before_ns: int, after_ns: int) -> bool:
        """Whether the step got longer by more than this."""
        allowed_ns = self.extra_ns if self.percent is None else before_ns * self.percent / 100
        return after_ns - before_ns > allowed_ns


def parsed_limit(text: str) -> Limit:
    """The limit that a text states."""
    match = _LIMIT.fullmatch(text.strip())
    if match is None:
        raise typer.BadParameter(
            f"{text!r} is no limit: expected a number and %, s, ms, us or ns, as in 3% or 5ms"
        )
    number, unit = float(match[1]), match[2]
    if unit == "%":
        return Limit(f"{match[1]} %", number, 0.0)
    return Limit(f"{match[1]} {unit}", None, number * NS_PER_UNIT[unit])
