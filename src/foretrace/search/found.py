"""`PlanSearch`: the best plan that was found, and how much better one could be that was not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from foretrace.answer import (
    Answer,
    Column,
    Fact,
    Facts,
    Json,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    bytes_text,
    count_text,
    duration_text,
    plain,
)
from foretrace.search.alone import Alone, alone_table
from foretrace.search.found_links import LinksTried, links_table
from foretrace.search.looked import Looked
from foretrace.search.objectives import Objective
from foretrace.search.space import Refusal, columns_of
from foretrace.search.versus import Versus, versus_table

_PLAN_COLUMNS = ("tp", "cp", "pp", "dp", "ep", "micro_batch", "schedule", "chunks", "sharding")
_MOST_REFUSALS = 8
# Of a chip's memory: devices hold 1 % less than their data sheets say (an A100 of 80 GiB tells its
# profiler 79.3), and allocators lose 4 % to holes (torchtitan's runs in docs/memory.md).
_NOT_COUNTED = 0.05

_WANTED = {
    Objective.STEP: "step",
    Objective.THROUGHPUT: "throughput",
    Objective.COST: "cost",
    Objective.GPUS: "GPUs",
    Objective.HEADROOM: "memory",
    Objective.P95: "95 % of steps",
    Objective.EFFECTIVE: "effective tokens",
    Objective.DAYS: "days",
}
_FIGURES = {
    Objective.THROUGHPUT: ("tokens per second", "{:,.0f}"),
    Objective.COST: ("price of a million tokens", "{:,.4g}"),
    Objective.GPUS: ("GPUs", "{:,.0f}"),
    Objective.EFFECTIVE: ("effective tokens per second", "{:,.0f}"),
    Objective.DAYS: ("days", "{:,.1f}"),
}
_KNOWN_FROM = {
    "measured": "recorded as it is",
    "table": "from a table of measurements",
    "scaled": "recorded at another size",
    "learnt": "of a model that your recordings taught",
    "fitted": "a fitted model's",
    "transferred": "of a model fitted to another chip",
    "roofline": "from the data sheet",
    "unknown": "not known",
}

_TITLES = {"micro_batch": "micro"}


class Stopped(StrEnum):
    """Why a search ended."""

    EXHAUSTED = "exhausted"  # no plan is left that could be better
    GAP = "gap"
    TIME = "time"
    INTERRUPTED = "interrupted"


@dataclass(frozen=True)
class Evaluated(Plain):
    """How many plans came how far."""

    listed: int
    is_whole: bool  # no plan of the space was left for want of time
    fit: int  # legal, within the constraints and within memory
    bounded: int  # by a closed form
    run: int  # bounded by running their schedule
    units: int  # simulated unit by unit
    kernels: int  # simulated kernel by kernel
    rank_works: int  # distinct works of a rank that were timed for all of them


@dataclass(frozen=True)
class Worth(Plain):
    """The best step with one variable held at a value."""

    variable: str
    value: str
    step_ns: int | None  # of the best plan that was simulated; `None`: none was
    bound_ns: int | None  # no plan with it is faster; `None`: not all of them have a bound
    num_plans: int


def value_table(
    columns: Mapping[int, Mapping[str, int | str]],
    times: Mapping[int, int],
    bounds: Mapping[int, int],
) -> tuple[Worth, ...]:
    """What each value of each variable that has several is worth; by variable, as they stand.

    Args:
        columns: of every plan.
        times: of the plans that were simulated, in ns.
        bounds: of those others that have one, in ns.
    """
    found = []
    names = next(iter(columns.values()), {})
    for name in names:
        plans_by_value: dict[int | str, list[int]] = {}
        for plan, row in columns.items():
            plans_by_value.setdefault(row[name], []).append(plan)
        if len(plans_by_value) < 2:  # noqa: PLR2004  nothing was to be chosen
            continue
        for value in sorted(plans_by_value, key=lambda one: (isinstance(one, str), one)):
            own = plans_by_value[value]
            steps = [times[plan] for plan in own if plan in times]
            known = [ns for plan in own if (ns := times.get(plan, bounds.get(plan))) is not None]
            lower = min(known) if len(known) == len(own) else None
            found.append(Worth(name, str(value), min(steps, default=None), lower, len(own)))
    return tuple(found)


@dataclass(frozen=True)
class SearchMoment(Plain):
    """How far a search was at a time."""

    time_s: float
    best_ns: int
    gap: float


@dataclass(frozen=True, repr=False)
class PlanSearch(Answer):
    """The best plan of a space, with what is known of those that were not simulated."""

    model: str
    machine: str
    objective: str
    objectives: tuple[Objective, ...]  # the first decides; the front is about all
    is_recorded: bool  # plans are arranged from pieces of a recording, not made of a model
    best: Looked
    leaders: tuple[Looked, ...]  # simulated kernel by kernel, the best first
    own: Looked | None  # the plan that was named to be held beside; `None`: none was
    default: Looked | None  # what `estimate` would assume; `None`: that cannot run
    # By which a plan of the space could be better at unit grain; `None`: not all have a bound.
    gap: float | None
    stopped: Stopped
    evaluated: Evaluated
    refusals: tuple[Refusal, ...]
    pareto: tuple[Looked, ...]  # of the simulated plans: step, memory and GPUs
    worth: tuple[Worth, ...]
    alone: tuple[Alone, ...]  # where that was asked for
    history: tuple[SearchMoment, ...]
    spent_s: float
    links: tuple[LinksTried, ...] = ()  # where several figures of links were searched under

    @property
    def grain_error(self) -> float:
        """The largest error of the unit grain beside the kernel grain, of the leaders."""
        both = [(one.unit_ns, one.step_ns) for one in self.leaders if one.unit_ns is not None]
        return max((abs(unit / kernel - 1) for unit, kernel in both), default=0.0)

    @property
    def headline(self) -> str:
        """The plan, its step, and the gap."""
        return f"{self.best.summary}: {duration_text(self.best.step_ns)} a step; {self.proof}"

    @property
    def proof(self) -> str:
        """What is known of the plans that were not simulated."""
        if not self.evaluated.is_whole:
            return "not every plan was looked at, so a better one may be left"
        if self.gap is None:
            return "not every plan has a bound yet, so a better one may be left"
        if self.gap == 0:
            return "no plan of this space is better"
        return f"no plan of this space is more than {100 * self.gap:.1f} % better"

    @property
    def note(self) -> str:
        """What the gap is of."""
        if self.is_recorded:
            return (
                "steps are arranged from recorded pieces, kernel by kernel; bounds are of recorded "
                "computation alone, so that communication widens the gap"
            )
        if self.best.step_parts is None:
            return (
                "the gap and the best step are of steps simulated unit by unit: kernel by kernel "
                "they would take too long, and there is no interval"
            )
        return (
            "the gap is of steps simulated unit by unit, which for the leaders is within "
            f"{100 * self.grain_error:.2f} % of kernel by kernel; both leave out what no cost "
            "model knows, which the interval has"
        )

    def parts(self) -> tuple[Told, ...]:
        """Figures, the leaders and the default beside each other, what variables are worth."""
        return (
            Facts(tuple(self._facts())),
            _plans("leaders", f"the best, {self._grain}", self._beside()),
            Sentences.of("beside each other", [one.sentence for one in self.beside]),
            versus_table(self.beside),
            alone_table(self.alone),
            links_table(self.links),
            _plans("pareto", self._front_title, self.pareto),
            Table.of(
                "worth",
                self.worth,
                Column("variable", unit=Unit.WORD),
                Column("value", unit=Unit.WORD),
                Column("step_ns", "best step, ms"),
                Column("bound_ns", "none below, ms"),
                Column("num_plans", "plans"),
                title="the best with one variable held",
            ),
            Table.of(
                "refusals",
                self.refusals[:_MOST_REFUSALS],
                Column("reason"),
                Column("count", unit=Unit.COUNT),
                Column("example", shown=Shown.FILES),
                title="plans that were left out",
            ),
            Table.of(
                "gap over time",
                self.history,
                Column("time_s", "s", Unit.NUMBER),
                Column("best_ns", "best step, ms"),
                Column("gap", unit=Unit.SHARE),
                shown=Shown.FILES,
            ),
        )

    def _facts(self) -> list[Fact]:
        best, seen = self.best, self.evaluated
        gap = "unknown" if self.gap is None else f"{100 * self.gap:.2f} %"
        found = [
            Fact("step", duration_text(best.step_ns), best.summary, is_first=True),
            Fact("gap", gap, f"{self.proof}; stopped: {self.stopped.value}"),
            Fact(
                "tokens per second",
                f"{best.tokens_per_s:,.0f}",
                f"{best.plan.global_batch:,} sequences of {best.plan.sequence:,} tokens a step",
            ),
            Fact(
                "looked at",
                count_text(seen.listed, "plan"),
                f"{seen.fit:,} can run and fit, {seen.run:,} were bounded by their schedule, "
                f"{seen.units:,} simulated{'' if self.is_recorded else ' unit by unit'}, "
                f"{seen.kernels:,} kernel by kernel; {self.spent_s:.0f} s",
            ),
        ]
        if best.p95_ns is not None:
            found.insert(1, Fact("95 % of steps", duration_text(best.p95_ns), "or shorter"))
        for name, value in (best.figures or {}).items():
            label, text = _FIGURES[Objective(name)]
            found.insert(1, Fact(label, text.format(value)))
        if best.recovery is not None:
            found.append(Fact("recovery", best.recovery.scheme.value, best.recovery.words))
        if best.sources is not None and len(best.sources) > 1:
            found.append(Fact("known from", *_sources_text(best.sources)))
        if best.peak_bytes is not None:
            found.insert(3, _memory(best.peak_bytes, best.capacity))
        return found

    def _beside(self) -> tuple[Looked, ...]:
        """The leaders, then the plan that was named and the default."""
        found = list(self.leaders)
        for other in (self.own, self.default):
            if other is not None and other.plan not in [one.plan for one in found]:
                found.append(other)
        return tuple(found)

    @property
    def _grain(self) -> str:
        """How the best were simulated."""
        is_by_units = any(one.step_parts is None for one in self.leaders)
        return "unit by unit where kernels are too many" if is_by_units else "kernel by kernel"

    @property
    def _front_title(self) -> str:
        if len(self.objectives) == 1:
            return "none is better in step, memory and GPUs"
        *most, last = (_WANTED[one] for one in self.objectives)
        return f"none is better in {', '.join(most)} and {last}"

    @property
    def _assumed(self) -> str:
        return "the recorded plan" if self.is_recorded else "the plan that `estimate` assumes"

    @property
    def beside(self) -> tuple[Versus, ...]:
        """The best beside the runner-up, the plan that was named, and the one that is assumed."""
        runner_up = self.leaders[1] if len(self.leaders) > 1 else None
        named = (
            ("the runner-up", runner_up),
            ("your plan", self.own),
            (self._assumed, self.default),
        )
        return tuple(
            Versus(name, self.best, other)
            for name, other in named
            if other is not None and other.plan != self.best.plan
        )

    def as_json(self) -> Json:
        """The best plan with its step, the gap, what was looked at, and why others were not."""
        return {
            "model": self.model,
            "machine": self.machine,
            "objective": self.objective,
            "objectives": [one.value for one in self.objectives],
            "from_recording": self.is_recorded,
            "best": self.best.as_json(),
            "gap": self.gap,
            "grain_error": self.grain_error,
            "stopped": self.stopped.value,
            "spent_s": self.spent_s,
            "evaluated": self.evaluated.as_json(),
            "leaders": plain(self.leaders),
            "own": None if self.own is None else self.own.as_json(),
            "default": None if self.default is None else self.default.as_json(),
            "beside": plain(self.beside),
            "pareto": plain(self.pareto),
            "refusals": plain(self.refusals),
            "worth": plain(self.worth),
            "alone": plain(self.alone),
            **({"links": plain(self.links)} if self.links else {}),
            "history": plain(self.history),
        }


def _memory(peak: int, capacity: int | None) -> Fact:
    """What the fullest stage takes, and whether much less is left than is not counted."""
    says = "on the fullest stage"
    if capacity is not None:
        left = capacity - peak
        says += f", of {bytes_text(capacity)}: {bytes_text(left)} to spare"
        if left < _NOT_COUNTED * capacity:
            says += (
                f", and what is not counted (holes of the allocator, NCCL) takes about "
                f"{_NOT_COUNTED:.0%}: --margin {_NOT_COUNTED:.0%} finds plans that leave it free"
            )
    return Fact("memory", bytes_text(peak), says)


def _sources_text(sources: Mapping[str, float]) -> tuple[str, str]:
    """The largest share, and what it and the others are."""
    (first, most), *others = sorted(sources.items(), key=lambda item: -item[1])
    told = (f"{100 * share:.0f} % {_KNOWN_FROM[name]}" for name, share in others)
    return f"{100 * most:.0f} %", ", ".join((_KNOWN_FROM[first], *told))


def _plans(key: str, title: str, rows: tuple[Looked, ...]) -> Table:
    def shown(name: str) -> Shown:
        """What tells the plans apart; a degree of 1, or the GPUs where all have as many, do not."""
        values = {_column(row, name=name) for row in rows}
        is_same = values <= {1} or (name == "gpus" and len(values) == 1)
        return Shown.WIDE if is_same else Shown.EVERYWHERE

    return Table.of(
        key,
        rows,
        Column("step_ns"),
        *(
            Column(
                name, _TITLES.get(name, ""), _unit(name), partial(_column, name=name), shown(name)
            )
            for name in (*_PLAN_COLUMNS, "recompute", "gpus")
        ),
        Column("peak_bytes", "memory"),
        *(
            Column(
                name.value,
                _FIGURES[name][0],
                Unit.NUMBER,
                partial(_figure, name=name.value),
                _shown_figure(name),
            )
            for name in _FIGURES
            if any(name.value in (row.figures or {}) for row in rows)
        ),
        *((Column("p95_ns", "95 % ms"),) if any(row.p95_ns for row in rows) else ()),
        Column("low_ns", "10 % ms"),
        Column("high_ns", "90 % ms"),
        title=title,
    )


def _column(row: Looked, *, name: str) -> int | str:
    return columns_of(row.plan)[name]


def _figure(row: Looked, *, name: str) -> float | None:
    return (row.figures or {}).get(name)


def _shown_figure(name: Objective) -> Shown:
    """The number of GPUs has a column already, and throughput is the batch over the step."""
    is_said = name in {Objective.GPUS, Objective.THROUGHPUT}
    return Shown.FILES if is_said else Shown.EVERYWHERE


def _unit(name: str) -> Unit:
    return Unit.WORD if name in {"schedule", "sharding", "recompute"} else Unit.COUNT
