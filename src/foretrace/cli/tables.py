"""`foretrace tables`: where a recommender's embedding tables stand, for the shortest step."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from foretrace import api
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli.collector import collector_paused
from foretrace.cli.options import option
from foretrace.cli.outputs import Outputs
from foretrace.cli.progress import activity
from foretrace.cli.settings import machine_folders, model_folders
from foretrace.machine import load_machine
from foretrace.workload import TableScheme, load_model

_SCHEMES = ",".join(TableScheme)


@plans.with_plan("micro_batch", "global_batch", "precision")
def tables(
    *,
    model: Annotated[str, option("NAME", "A recommender, or a TOML file.")],
    machine: options.Machine,
    costs: options.Costs = None,
    gpus: Annotated[int, option("N", "GPUs to use.", min=1)],
    plan: plans.PlanName = None,
    stated: Mapping[str, object],
    ids: plans.Ids = None,
    schemes: Annotated[str, option("LIST", "Ways to divide a table.")] = _SCHEMES,
    tiers: Annotated[str, option("LIST", "Memory of tables: hbm, host, ssd.")] = "hbm",
    time: Annotated[float, option("SECONDS", "Stop with the best so far.", min=0.1)] = 8.0,
    out: Annotated[
        Path | None,
        option("PLAN.json", "Write the sharding plan of TorchRec.", *options.OUT, dir_okay=False),
    ] = None,
    outputs: Outputs,
) -> None:
    """Place a recommender's embedding tables on GPUs so that its step is short.

    Schemes, pieces, ranks, memory and cached rows of every table are chosen; the step is simulated.
    """
    draft = plans.draft_of(plan, stated)
    with activity() as doing, collector_paused():
        found = api.tables(
            load_model(model, model_folders()),
            load_machine(machine, machine_folders(costs)),
            num_ranks=gpus,
            plan=draft,
            ids=ids,
            schemes=_listed(schemes),
            tiers=_listed(tiers),
            time_s=time,
            progress=doing.now,
        )
        if out is not None:
            api.write_tables(out, found)
    outputs.tell(found, wrote=(out,))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
