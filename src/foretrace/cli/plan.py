"""`foretrace plan`: a plan made complete, as a file of its own or in other software's words."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from foretrace.base import written_beside
from foretrace.cli import options
from foretrace.cli import plan_options as plans
from foretrace.cli.outputs import Outputs
from foretrace.workload import (
    CONFIG_FORMATS,
    Transformer,
    completions,
    write_configuration,
)

Written = StrEnum("Written", {name: name for name in CONFIG_FORMATS})  # type: ignore[misc]


@plans.with_plan(*plans.ALL)
def plan(
    *,
    model: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="A model, a TOML file, or a config.json."),
    ] = None,
    plan: plans.PlanName = None,
    config: plans.Configs = None,
    gpus: plans.Gpus = None,
    stated: Mapping[str, object],
    written: Annotated[
        Written | None,
        typer.Option("--as", help="In whose words. Default: foretrace's own keys, as a table."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            *options.OUT, dir_okay=False, help="Write the text there, and print the rest."
        ),
    ] = None,
    json: options.AsJson = False,
) -> None:
    """Complete a plan, and write it as the flags or configuration of other training software."""
    configured = plans.configured(config)
    found_model = plans.model_of(model, configured)
    if found_model is None:
        raise typer.BadParameter("name a --model, or flags that describe one")
    draft = plans.draft_of(plan, stated, configured)
    plans.tell_notes(draft)
    found = completions(draft, found_model, gpus)
    if written is None:
        Outputs(json).tell(found)
        return
    shape = found_model if isinstance(found_model, Transformer) else None
    made = write_configuration(found.plan, written.value, shape)
    if output is not None:
        with written_beside(output) as beside:
            beside.write_text(made.text, encoding="utf-8")
        typer.echo(f"wrote {output}", err=True)
    if json or output is not None:
        Outputs(json).tell(made, top=None)
        return
    typer.echo(made.text, nl=False)
    for one in made.lost:
        typer.echo(f"without counterpart: {one}", err=True)
