"""`foretrace balance`: is packing worth it for a dataset, and which packer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from foretrace import api
from foretrace.api import STUDY_MACHINE, STUDY_MODEL
from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.plan_options import with_plan
from foretrace.cli.progress import activity
from foretrace.cli.settings import machine_folders, model_folders
from foretrace.machine import load_machine
from foretrace.report import gain_plot, write_answer_page
from foretrace.workload import load_model


@with_plan("tp", "cp", "pp", "dp")
def balance(
    *,
    documents: Annotated[
        str,
        option(
            "FILE|lognormal:MU,SIGMA[,LONGEST]",
            "A tokenised dataset's index (.idx, .arrow, .parquet), a list of lengths (.csv, "
            ".txt, .npy), or a law.",
        ),
    ],
    window: Annotated[int, option("N", "Tokens of the context window.", min=128, max=2**24)],
    microbatches: Annotated[
        int, option("N", "Of a step of one copy of the model.", min=1, max=4096)
    ] = 4,
    model: Annotated[str, option("NAME", "A model, a TOML file, or a config.json.")] = STUDY_MODEL,
    machine: Annotated[str, option("NAME", "A machine or a TOML file.")] = STUDY_MACHINE,
    costs: options.Costs = None,
    stated: Mapping[str, object],
    longest: Annotated[
        int | None, option("N", "Tokens of the longest microbatch. Default: 1.5 windows.", min=1)
    ] = None,
    steps: Annotated[int, option("N", "Steps to pack and simulate.", min=16, max=100_000)] = 200,
    seed: options.Seed = 0,
    report: options.Page = None,
    outputs: Outputs,
) -> None:
    """Tell what packing documents of unequal length gains, and which packer gains most.

    Without a plan: tp 8, cp 2, pp 4 in two chunks; with any part of one, degrees left out are 1.
    """
    with activity() as doing:
        doing.now("packing documents")
        found = api.balance(
            documents,
            window=window,
            num_microbatches=microbatches,
            model=load_model(model, model_folders()),
            plan=stated,
            machine=load_machine(machine, machine_folders(costs)),
            longest=longest,
            num_steps=steps,
            seed=seed,
            progress=doing.advance,
        )
        if report is not None:
            drawings = (("gain by length of the window", gain_plot(found)),)
            write_answer_page(report, f"Packing {found.documents}", found, drawings=drawings)
    outputs.tell(found, wrote=(report,))
