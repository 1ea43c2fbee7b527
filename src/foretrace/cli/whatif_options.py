"""Options of `foretrace whatif`: one for every key of an edit, and its own, each with its help."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from foretrace.base import ScenarioError
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.whatif import Holds, Key, Order, WorkEdit, edit_keys, edit_kinds, pairs_of
from foretrace.workload import parsed_keys

_Texts: TypeAlias = list[str] | None

_TYPES: Mapping[Holds, object] = {
    Holds.COUNT: int | None,
    Holds.NAME: str | None,
    Holds.FLAG: bool | None,
    Holds.FACTORS: _Texts,
    Holds.TIMES: _Texts,
    Holds.TABLE: _Texts,
    Holds.NAMES: _Texts,
    Holds.TIME_OR_FACTOR: str | None,
}

Paths: TypeAlias = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH...]", help="Files or folders of one job; none: an estimate is edited."
    ),
]

# many scenarios
Scenarios: TypeAlias = Annotated[
    Path | None,
    option("FILE.toml", "Many scenarios: docs/whatif.md has the format.", dir_okay=False),
]
BestBy: TypeAlias = Annotated[Order, typer.Option(help="Which of many scenarios is best.")]
Processes: TypeAlias = Annotated[int, option("N", "Scenarios to predict at once.", min=1)]

# the recorded job
Machine: TypeAlias = Annotated[str | None, option("NAME", "What the job ran on, or its file.")]
Model: TypeAlias = Annotated[
    str | None, option("NAME", "What was trained, or its file.", heading=options.MODEL_AND_PLAN)
]
Plan: TypeAlias = Annotated[
    str | None,
    option("NAME", "The plan it ran under, or its file.", heading=options.MODEL_AND_PLAN),
]
Recorded: TypeAlias = Annotated[
    _Texts,
    option(
        "KEY=VALUE",
        "A key of that plan, or a size: tp=2, hidden=4096; repeatable.",
        "--stated",
        heading=options.MODEL_AND_PLAN,
    ),
]
SharedCores: TypeAlias = Annotated[
    int | None, option("N", "Processor cores that its ranks shared.", "--cores", min=1, max=65_536)
]
WithoutProfiler: TypeAlias = Annotated[
    bool,
    typer.Option("--without-profiler", help="Predict the job as it runs when nobody records it."),
]

# files
Trace: TypeAlias = Annotated[
    Path | None, option("OUT", "Write before and after for Perfetto.", dir_okay=False)
]


def _option(key: Key, heading: str) -> Any:
    dashed = key.name.replace("_", "-")
    flags = f"--{dashed}/--no-{dashed}" if key.holds is Holds.FLAG else f"--{dashed}"
    found = option(key.metavar or None, key.help, flags, heading=heading)
    return Annotated[_TYPES[key.holds], found]


def _read(key: Key, given: Any) -> object:
    """What was typed, as a scenario file would state it."""
    if given is None or given == []:
        return None
    option = f"--{key.name.replace('_', '-')}"
    if key.holds in {Holds.FACTORS, Holds.TIMES}:
        return pairs_of(given, option)
    if key.holds is Holds.TABLE:
        return parsed_keys(given)
    if key.holds is Holds.TIME_OR_FACTOR:
        name, _, value = given.rpartition("=")
        if name:
            raise ScenarioError(
                f"{option} {given!r} names {name!r}, expected one time or factor: write {option} "
                "2ms, or 0.5 for half of it"
            )
        return pairs_of([f"data={value}"], option)["data"]
    return given


# An option for every key of an edit, in the place of what is stated, by key.
with_edits = options.with_options(
    "stated",
    [
        options.keyword(
            key.name,
            _option(
                key, "Other work" if issubclass(kind, WorkEdit) else "Other sizes, plan, machine"
            ),
        )
        for kind in edit_kinds()
        for key in kind.KEYS
    ],
    lambda given: {key.name: _read(key, given[key.name]) for key in edit_keys().values()},
)
