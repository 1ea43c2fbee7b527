"""An estimate as tables of at most 80 columns, the numbers that matter first."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretrace.answer import bytes_text, duration_text, milliseconds_text, percent_text
from foretrace.cli.tables import plain_table, print_section, print_sentences, share_text
from foretrace.estimate import Estimate
from foretrace.report import (
    assumption_text,
    estimate_facts,
    estimate_subject,
    part_text,
    source_text,
)

MAX_FAMILIES = 6  # rows; `--json` has them all
MAX_PLANS = 16


def print_estimate(found: Estimate) -> None:
    """Print the estimate to stdout."""
    console = Console(highlight=False, soft_wrap=False)
    console.print(Text(found.model.name, "bold"), "on", estimate_subject(found), sep=" ")
    console.print(_headline(found))
    print_section(console, "where the time goes, mean over ranks", _parts(found))
    print_section(console, "memory, fullest stages first", _memory(found))
    print_section(console, "durations come from", _sources(found))
    print_section(console, "what widens the interval most", _families(found))
    if found.assumed is not None:
        print_sentences(console, "assumed", _assumptions(found))
        print_section(console, "legal plans that agree, the answer first", _plans(found))
    print_sentences(console, "notes", found.notes)


def _headline(found: Estimate) -> Table:
    table = plain_table("", "", "", text_columns=(0, 2))
    for fact in estimate_facts(found):
        style = "bold" if fact.is_first else ""
        table.add_row(Text(fact.name, style), Text(fact.value, style), fact.remark)
    return table


def _parts(found: Estimate) -> Table:
    table = plain_table("", "ms", "share", "least", "most", "")
    where = found.where
    for name, time_ns in where.mean.by_name().items():
        of_ranks = [row.parts.by_name().get(name, 0) for row in where.rows]
        table.add_row(
            part_text(name),
            milliseconds_text(time_ns),
            share_text(time_ns / where.step_ns),
            milliseconds_text(min(of_ranks)),
            milliseconds_text(max(of_ranks)),
        )
    table.add_row("step", milliseconds_text(where.step_ns), share_text(1.0), style="bold")
    return table


def _memory(found: Estimate) -> Table:
    heads = ("stage", "total", "params", "grads", "optimizer", "activations", "other")
    table = plain_table(*heads)
    memory = found.footprint
    if memory is None:
        return table
    fullest = sorted(memory.stages, key=lambda stage: (-stage.total, stage.stage))
    for stage in [*fullest[:2], *([fullest[-1]] if len(fullest) > 2 else [])]:  # noqa: PLR2004
        sizes = (stage.total, stage.parameters, stage.gradients, stage.optimizer)
        other = stage.buffers + stage.context
        table.add_row(str(stage.stage), *map(bytes_text, (*sizes, stage.activations, other)))
    return table


def _sources(found: Estimate) -> Table:
    table = plain_table("", "share", "", text_columns=(0, 2))
    for name, share in found.share_by_source.items():
        table.add_row(name, share_text(share), source_text(name))
    return table


def _families(found: Estimate) -> Table:
    table = plain_table("", "critical ms", "less", "more")
    for one in found.interval.families[:MAX_FAMILIES]:
        if one.low_ns + one.high_ns > 0:
            table.add_row(
                one.family,
                milliseconds_text(one.critical_ns),
                f"-{milliseconds_text(one.low_ns)}",
                f"+{milliseconds_text(one.high_ns)}",
            )
    return table


def _assumptions(found: Estimate) -> Iterator[str]:
    assumed = found.assumed
    if assumed is None:
        return
    many = len(assumed.alternatives)
    if many > 1:
        low, high = assumed.low_ns, assumed.high_ns
        yield (
            f"the step takes {duration_text(low)} to {duration_text(high)} under the {many} legal "
            f"plans, {percent_text(100 * (high - low) / found.step_ns)} of the answer apart"
        )
    for one in assumed.assumptions:
        yield assumption_text(one)


def _plans(found: Estimate) -> Table:
    assumed = found.assumed
    if assumed is None or len(assumed.alternatives) == 1:
        return plain_table()
    varied = [
        key
        for key in assumed.alternatives[0].values
        if len({str(one.values[key]) for one in assumed.alternatives}) > 1
    ]
    table = plain_table(*(key.partition(".")[2] for key in varied), "step", "memory", "")
    for one in assumed.alternatives[:MAX_PLANS]:
        table.add_row(
            *(str(one.values[key]).lower() for key in varied),
            duration_text(one.step_ns),
            "-" if one.peak_bytes is None else bytes_text(one.peak_bytes),
            "does not fit" if one.fits is False else "",
        )
    return table
