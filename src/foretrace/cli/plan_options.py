"""Keys of a plan as options, the same for every command that is told one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, TypeAlias

import typer

from foretrace.cli import options
from foretrace.cli.options import option
from foretrace.cli.settings import model_folders, plan_folders
from foretrace.workload import (
    CONFIG_FORMATS,
    JobConfiguration,
    Model,
    PlanDraft,
    draft_of_configuration,
    load_model,
    load_plan,
    model_of_configuration,
    parsed_keys,
    read_configuration,
    together,
)

# Option, key in a plan's file, type, metavar, help.
_KEYS: tuple[tuple[str, str, type, str, str], ...] = (
    ("tp", "tp", int, "N", "Ranks that divide each layer."),
    ("cp", "cp", int, "N", "Ranks that divide each sequence."),
    ("pp", "pp", int, "N", "Pipeline stages."),
    ("dp", "dp", int, "N", "Copies of the model."),
    ("ep", "ep", int, "N", "Ranks that divide the experts."),
    ("global_batch", "global_batch", int, "N", "Sequences of a step, over all ranks."),
    ("micro_batch", "micro_batch", int, "N", "Sequences of one pass."),
    ("sequence", "batch.sequence", int, "N", "Tokens of a sequence."),
    ("schedule", "schedule", str, "NAME", "Order of passes, or its file."),
    ("chunks", "chunks", int, "N", "Parts of the model on each stage."),
    ("sharding", "sharding.level", str, "LEVEL", "none, zero1, zero2 or zero3."),
    ("recompute", "recompute", str, "WHAT", "none, selective or full."),
    ("precision", "precision.products", str, "FORMAT", "Of products: bf16, fp8, ..."),
)
UNEVEN = "Uneven work"  # a heading of help
ALL = tuple(name for name, *_ in _KEYS)
_SET = option(
    "KEY=VALUE",
    "Any other key of a plan, as in overlap.gradients=false; may be given again.",
    "--set",
    heading=options.MODEL_AND_PLAN,
)
ModelName: TypeAlias = Annotated[
    str | None,
    option(
        "NAME",
        "A model, a TOML file, or a config.json of Hugging Face.",
        "--model",
        heading=options.MODEL_AND_PLAN,
    ),
]
SoftwareName: TypeAlias = Annotated[
    str | None,
    option(
        "NAME",
        "What runs it, or a TOML file: `foretrace software list`. Default: nobody knows.",
        "--software",
        heading=options.MODEL_AND_PLAN,
    ),
]
PlanName: TypeAlias = Annotated[
    str | None,
    option(
        "NAME",
        "A plan or a TOML file; other options beat it.",
        "--plan",
        heading=options.MODEL_AND_PLAN,
    ),
]
Configs: TypeAlias = Annotated[
    list[str] | None,
    option(
        "TEXT|FILE",
        "The flags or configuration of other training software, which state plan and model; "
        "may be given again. FILE.py:FUNCTION for one in Python.",
        "--config",
        *(f"--{name}" for name in CONFIG_FORMATS),
        heading=options.MODEL_AND_PLAN,
    ),
]
Gpus: TypeAlias = Annotated[
    int | None,
    option(
        "N",
        "GPUs to use, from which dp follows. Default: of a lone host all.",
        "--gpus",
        heading=options.MODEL_AND_PLAN,
        min=1,
    ),
]

Ids: TypeAlias = Annotated[
    str | None,
    options.option(
        "even|zipf:A|FILE",
        "How often rows of tables are looked up: all alike, by Zipf's law (A,B,... for each "
        "table), or counts (.csv of table, row, count; .npz). Default: even.",
        "--ids",
        heading=UNEVEN,
    ),
]


def with_plan(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A command with these keys of a plan, and `--set` for others, in the place of `stated`.

    Args:
        names: of `ALL`.
    """
    chosen = [one for one in _KEYS if one[0] in names]
    told = [
        options.keyword(
            name, Annotated[kind | None, option(metavar, words, heading=options.MODEL_AND_PLAN)]
        )
        for name, _, kind, metavar, words in chosen
    ]
    told.append(options.keyword("set_keys", Annotated[list[str] | None, _SET]))

    def stated(given: dict[str, Any]) -> dict[str, object]:
        values = {key: given[name] for name, key, *_ in chosen if given[name] is not None}
        return {**values, **parsed_keys(given["set_keys"] or ())}

    return options.with_options("stated", told, stated)


def configured(texts: Sequence[str] | None) -> JobConfiguration | None:
    """What configurations of other software say together; `None`: there is none."""
    return together([read_configuration(text) for text in texts]) if texts else None


def draft_of(
    name: str | None, stated: Mapping[str, object], found: JobConfiguration | None = None
) -> PlanDraft:
    """What a plan's file states, what a configuration does, and what the command line does."""
    draft = PlanDraft() if name is None else load_plan(name, plan_folders())
    if found is not None:
        own = draft_of_configuration(found)
        notes = (*draft.notes, *own.notes)
        draft = replace(own, stated={**draft.stated, **own.stated}, notes=notes)
    return draft.with_keys(stated)


def model_of(name: str | None, found: JobConfiguration | None) -> Model | None:
    """The model of that name, else the one that a configuration states; `None`: neither."""
    if name is not None:
        return load_model(name, model_folders())
    return None if found is None else model_of_configuration(found, model_folders())


def tell_notes(draft: PlanDraft | None) -> None:
    """Say what was not understood of a plan's configuration, where the answer does not."""
    for note in () if draft is None else draft.notes:
        typer.echo(f"note: {note}", err=True)
