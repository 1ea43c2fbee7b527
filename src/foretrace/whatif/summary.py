"""A prediction in words: its subject, its figures, its reasons; computes nothing."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from foretrace.analyze import SHOWN_PARTS
from foretrace.answer import (
    Fact,
    Unit,
    bytes_text,
    cell_text,
    component_text,
    count_text,
    duration_text,
    number_text,
    signed_percent_text,
)
from foretrace.base import key_text
from foretrace.workload import plan_table

if TYPE_CHECKING:
    from foretrace.whatif.prediction import Memory, Prediction
    from foretrace.whatif.scenario import Scenario

_SCALED = "scaled"
_METHODS = {
    "arranged": "arranged from recorded work",
    _SCALED: "scaled by the ratio of two estimates",
    "estimated": "estimated from model, plan and machine",
}
# Where a prediction means more by a source than an estimate does.
ORIGINS = {
    "measured": "recorded as it is, or times a factor that was stated",
    "scaled": "recorded at another size, in another group or on another machine",
    "hand-overs": "launches, wake-ups, between streams",
}


@dataclass(frozen=True)
class DifferenceRow:
    """One part of the step, before and after."""

    name: str  # as `Comparison` labels it
    text: str
    before_ns: int
    after_ns: int

    @property
    def difference_ns(self) -> int:
        """After minus before."""
        return self.after_ns - self.before_ns


def subject_text(found: Prediction) -> str:
    """Grid, layers, batch and machine, before and after: `4 ranks -> 8 ranks; 2 layers; ...`."""
    sides = [
        (_grid(one), _layers(one), _batch(one), _machine(one))
        for one in (found.before, found.after)
    ]
    texts = [
        before if before == after else f"{before} -> {after}"
        for before, after in zip(*sides, strict=True)
        if before or after
    ]
    return "; ".join(texts)


def figures(found: Prediction) -> tuple[Fact, ...]:
    """The figures that matter, the change first."""
    return tuple(_facts(found))


def _facts(found: Prediction) -> Iterator[Fact]:
    yield Fact(
        "change of the step",
        signed_percent_text(found.percent),
        f"{cell_text(found.change_ns, Unit.SIGNED_MS)} ms, "
        f"{_METHODS.get(found.method, found.method)}",
        is_first=True,
    )
    yield Fact("before", duration_text(found.replayed_step_ns), before_text(found))
    yield Fact(
        "after",
        duration_text(found.step_ns),
        f"middle 80 %: {duration_text(found.low_ns)} to {duration_text(found.high_ns)}",
    )
    before, after = found.before.plan, found.after.plan
    if (before.global_batch, before.num_ranks) != (after.global_batch, after.num_ranks):
        yield Fact(
            "throughput",
            f"{number_text(found.throughput)} x",
            f"as many sequences per second, {number_text(found.throughput_per_rank)} x per rank",
        )
    if found.memory is not None:
        yield _memory(found.memory)


def before_text(found: Prediction) -> str:
    """What the step before is: a replay beside what was measured, or an estimate."""
    if not found.measured_step_ns:
        return "estimated"
    error = found.replayed_step_ns / found.measured_step_ns - 1
    return (
        f"replayed, {signed_percent_text(100 * error)} from the measured "
        f"{duration_text(found.measured_step_ns)}"
    )


def _memory(memory: Memory) -> Fact:
    change = memory.change_bytes
    sign = "-" if change < 0 else "+"
    after = memory.after
    text = f"{sign}{bytes_text(abs(change))}" if change else "as before"
    if after.margin is not None:
        left = bytes_text(abs(after.margin))
        text += f"; fits, {left} to spare" if after.fits else f"; DOES NOT FIT, {left} too much"
    return Fact("memory, fullest rank", bytes_text(after.peak.total), text)


def difference_rows(found: Prediction) -> tuple[DifferenceRow, ...]:
    """The parts of a breakdown and the step; none of a recording without steps."""
    if found.comparison is None:
        return ()
    view = found.comparison.view("component")
    rows = [view.row(name) for name in SHOWN_PARTS]
    sides = found.comparison.before, found.comparison.after
    return (
        *(
            DifferenceRow(
                row.label, component_text(row.label), row.before.step_ns, row.after.step_ns
            )
            for row in rows
        ),
        DifferenceRow("step", "step", *(side.mean_ns for side in sides)),
    )


def reason_texts(found: Prediction) -> tuple[str, ...]:
    """Why the step is longer or shorter, the largest first.

    An estimate's operators bear other names than a recording's kernels, so that between the two
    only classes of work can be told.
    """
    if found.comparison is None:
        return ()
    if found.method != _SCALED:
        return tuple(one.sentence for one in found.comparison.reasons)
    return tuple(
        f"{row.label}: {cell_text(row.difference_ns, Unit.SIGNED_MS)} ms"
        for row in found.comparison.view("class").rows
        if row.difference_ns
    )


def edited_rows(found: Prediction) -> tuple[tuple[str, str, str], ...]:
    """Sizes, plan and machine where they differ: what, before, after."""
    before, after = (_keys(one) for one in (found.before, found.after))
    return tuple(
        (key, before.get(key, "-"), after.get(key, "-"))
        for key in dict.fromkeys((*before, *after))
        if before.get(key) != after.get(key)
    )


def _keys(scenario: Scenario) -> dict[str, str]:
    sizes = {
        name: f"{size:,}"
        for name, size in dataclasses.asdict(scenario.sizes).items()
        if size is not None
    }
    plan = {
        f"{table}.{key}": key_text(value)
        for table, entries in plan_table(scenario.plan).items()
        for key, value in entries.items()
    }
    machine = {} if scenario.machine is None else {"machine": scenario.machine.name}
    return sizes | plan | machine


def short_sentence(sentence: str) -> str:
    """An edit's sentence up to what it cannot know."""
    return sentence.partition(" (")[0]


def _grid(one: Scenario) -> str:
    plan = one.plan
    axes = {
        "tp": plan.tensor,
        "cp": plan.context,
        "pp": plan.pipeline,
        "dp": plan.data,
        "ep": plan.expert,
    }
    sizes = " x ".join(f"{name} {size}" for name, size in axes.items() if size > 1)
    ranks = plan.num_ranks
    return f"{count_text(ranks, 'rank')}{f' ({sizes})' if sizes else ''}"


def _layers(one: Scenario) -> str:
    return "" if one.sizes.layers is None else count_text(one.sizes.layers, "layer")


def _batch(one: Scenario) -> str:
    many = one.plan.num_microbatches
    return f"{many:,} microbatch{'' if many == 1 else 'es'}"


def _machine(one: Scenario) -> str:
    return "" if one.machine is None else one.machine.name
