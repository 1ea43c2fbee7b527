"""`foretrace ledger`: predictions are kept, settled when their runs are there, and told."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from foretrace import __version__, api
from foretrace.analyze import step_time_ns
from foretrace.base import NS_PER_S, write_whole
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.settings import machine_folders, model_folders, plan_folders, software_folders
from foretrace.machine import load_machine
from foretrace.software import software_called
from foretrace.validate import kept, read_ledger, write_ledger
from foretrace.workload import PlanDraft, load_model, load_plan, parsed_keys

app = options.group(
    "Keep predictions, settle them when runs are there, and say what they were worth."
)
File: TypeAlias = Annotated[
    Path, option("OUT.jsonl", "The ledger's file.", "--ledger", dir_okay=False)
]
_HERE = Path("foretrace-ledger.jsonl")


@app.command()
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="What to call the prediction.")],
    *,
    model: Annotated[str, option("NAME", "As of `foretrace estimate`.")],
    machine: Annotated[str, option("NAME", "So too.")],
    costs: options.Costs = None,
    software: Annotated[str | None, option("NAME", "So too.")] = None,
    plan: Annotated[str | None, option("NAME", "So too.")] = None,
    gpus: Annotated[int | None, option("N", "So too.", min=1)] = None,
    set_keys: Annotated[
        list[str] | None, option("KEY=VALUE", "A key of the plan; may be given again.", "--set")
    ] = None,
    ledger: File = _HERE,
    json: options.AsJson = False,
) -> None:
    """Estimate a step and keep the prediction."""
    draft = PlanDraft() if plan is None else load_plan(plan, plan_folders())
    found = api.estimate(
        load_model(model, model_folders()),
        draft.with_keys(parsed_keys(set_keys or ())),
        load_machine(machine, machine_folders(costs)),
        num_ranks=gpus,
        software=None if software is None else software_called(software, software_folders()),
    )
    one = kept(found, name, date=_today(), version=__version__)
    done = read_ledger(ledger).with_prediction(one)
    write_ledger(ledger, done)
    Outputs(json).tell(done)


@app.command()
def settle(
    name: Annotated[str, typer.Argument(metavar="NAME", help="The prediction.")],
    *,
    step_s: Annotated[
        float | None, option("SECONDS", "What a step of the run took.", "--step-s", min=0)
    ] = None,
    traces: Annotated[str | None, option("PATH", "Or its profiler files, of every rank.")] = None,
    ledger: File = _HERE,
    json: options.AsJson = False,
) -> None:
    """Settle a kept prediction with what its run took."""
    if (step_s is None) == (traces is None):
        raise typer.BadParameter("give --step-s or --traces, and not both")
    measured_ns = (
        round(step_s * NS_PER_S)
        if step_s is not None
        else step_time_ns(api.load(traces or "").recording.measured)
    )
    done = read_ledger(ledger).with_settled(name, measured_ns, date=_today())
    write_ledger(ledger, done)
    Outputs(json).tell(done)


@app.command()
def show(
    *,
    software: Annotated[
        Path | None,
        option(
            "OUT.toml",
            "Write software of your own, with the factor that most settled runs tell.",
            dir_okay=False,
        ),
    ] = None,
    ledger: File = _HERE,
    outputs: Outputs,
) -> None:
    """Say how far off settled predictions were, and how many intervals held."""
    found = read_ledger(ledger)
    outputs.tell(found)
    if software is not None:
        write_whole(software, found.software_toml())
        typer.echo(f"wrote {software}", err=True)


def _today() -> str:
    return datetime.now(UTC).date().isoformat()
