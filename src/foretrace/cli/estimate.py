"""`foretrace estimate`: one step of a model under a plan on a machine, with nothing run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from foretrace import api
from foretrace.cli import options
from foretrace.cli.collector import collector_paused
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.settings import (
    machine_folders,
    model_folders,
    plan_folders,
    software_folders,
)
from foretrace.machine import load_machine
from foretrace.operators import ModuleProgram
from foretrace.software import software_called
from foretrace.workload import Convention, Model, PlanDraft, load_model, load_plan, parsed_keys


def estimate(
    *,
    machine: Annotated[
        str, typer.Option(metavar="NAME", help="A machine, a host, or a TOML file.")
    ],
    model: Annotated[
        str | None,
        typer.Option(
            metavar="NAME", help="A model, a TOML file, or a config.json of Hugging Face."
        ),
    ] = None,
    module: Annotated[
        str | None,
        typer.Option(
            metavar="FILE:FUNCTION", help="Instead of a model, what makes a PyTorch module."
        ),
    ] = None,
    plan: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A plan or a TOML file; other options beat it."),
    ] = None,
    software: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What runs it, or a TOML file: `foretrace software list`. Default: nobody knows.",
        ),
    ] = None,
    gpus: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="GPUs to use, from which dp follows if not given."),
    ] = None,
    tp: Annotated[
        int | None, typer.Option(metavar="N", help="Ranks that divide each layer.")
    ] = None,
    cp: Annotated[
        int | None, typer.Option(metavar="N", help="Ranks that divide each sequence.")
    ] = None,
    pp: Annotated[int | None, typer.Option(metavar="N", help="Pipeline stages.")] = None,
    dp: Annotated[int | None, typer.Option(metavar="N", help="Copies of the model.")] = None,
    ep: Annotated[
        int | None, typer.Option(metavar="N", help="Ranks that divide the experts.")
    ] = None,
    global_batch: Annotated[
        int | None, typer.Option(metavar="N", help="Sequences of a step, over all ranks.")
    ] = None,
    micro_batch: Annotated[
        int | None, typer.Option(metavar="N", help="Sequences of one pass.")
    ] = None,
    sequence: Annotated[int | None, typer.Option(metavar="N", help="Tokens of a sequence.")] = None,
    schedule: Annotated[
        str | None, typer.Option(metavar="NAME", help="Order of passes, or its file.")
    ] = None,
    chunks: Annotated[
        int | None, typer.Option(metavar="N", help="Parts of the model on each stage.")
    ] = None,
    sharding: Annotated[
        str | None, typer.Option(metavar="LEVEL", help="none, zero1, zero2 or zero3.")
    ] = None,
    recompute: Annotated[
        str | None, typer.Option(metavar="WHAT", help="none, selective or full.")
    ] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="FORMAT", help="Of products: bf16, fp8, ...")
    ] = None,
    set_keys: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Any other key of a plan, as in overlap.gradients=false; may be given again.",
        ),
    ] = None,
    convention: Annotated[
        Convention, typer.Option(help="How the model's FLOPs are counted.")
    ] = Convention.CAUSAL,
    price: Annotated[
        float | None, typer.Option(min=0, metavar="PRICE", help="Of one GPU for an hour.")
    ] = None,
    documents: Annotated[
        str | None,
        typer.Option(
            metavar="FILE|lognormal:MU,SIGMA",
            help="Documents of a dataset, as in `balance`: steps of them are told too.",
        ),
    ] = None,
    unfolded: Annotated[
        bool, typer.Option("--unfolded", help="Simulate every rank, not one of each role.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT", dir_okay=False, help="Write the simulated step; opens in Perfetto."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            metavar="OUT.html", dir_okay=False, help="Write one self-contained HTML page."
        ),
    ] = None,
    json: options.AsJson = False,
    csv: options.Csv = None,
    parquet: options.Parquet = None,
    table: options.TableName = None,
) -> None:
    """Estimate a training step from a model, a plan and a machine."""
    keys: dict[str, object] = {
        "tp": tp,
        "cp": cp,
        "pp": pp,
        "dp": dp,
        "ep": ep,
        "global_batch": global_batch,
        "micro_batch": micro_batch,
        "batch.sequence": sequence,
        "schedule": schedule,
        "chunks": chunks,
        "sharding.level": sharding,
        "recompute": recompute,
        "precision.products": precision,
        **parsed_keys(set_keys or ()),
    }
    draft = _draft(plan, keys)
    found_model = _model(model, module, draft)
    found_machine = load_machine(machine, machine_folders())
    with activity() as doing, collector_paused():
        doing.now("estimating")
        found = api.estimate(
            found_model,
            draft,
            found_machine,
            num_ranks=gpus,
            software=None if software is None else software_called(software, software_folders()),
            convention=convention,
            price_per_hour=price,
            documents=documents,
            folded=not unfolded,
            progress=doing.advance,
        )
        if trace is not None:
            doing.now(f"writing {trace}")
            api.write_estimate_trace(trace, found)
        if report is not None:
            doing.now(f"writing {report}")
            api.write_estimate_report(report, found)
    Outputs(json, csv, parquet, table).tell(found)
    for path in (trace, report):
        if path is not None:
            typer.echo(f"wrote {path}", err=True)


def _model(name: str | None, module: str | None, draft: PlanDraft) -> Model | ModuleProgram:
    """The model of that name, or what a module of the user's runs."""
    if name is not None and module is None:
        return load_model(name, model_folders())
    if module is not None and name is None:
        return api.captured_for(module, draft)
    raise typer.BadParameter("name a --model, or a --module, and not both")


def _draft(name: str | None, keys: Mapping[str, object]) -> PlanDraft:
    """What the plan's file states, and what the command line states instead."""
    draft = PlanDraft() if name is None else load_plan(name, plan_folders())
    return draft.with_keys(keys)
