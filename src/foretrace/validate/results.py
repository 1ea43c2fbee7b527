"""What a replay is held against, and how far it is from it; frozen values, JSON by `as_json`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import fmean, median
from typing import TYPE_CHECKING, ClassVar

from foretrace.analyze import COMPONENTS, SHOWN_PARTS, Parts
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
    component_text,
    duration_text,
    percent_text,
    plain,
    plain_fields,
    signed_percent_text,
)
from foretrace.graph import Ablation, Clock, EdgeConstant, EdgeKind, Finding
from foretrace.validate.verdict import ReplayVerdict

if TYPE_CHECKING:  # what replays need not load
    from foretrace.estimate import SharedLinks

NULL_MODEL_TEXT = {
    Ablation.DEVICE: "the host's chain alone: nothing waits for the device",
    Ablation.RENDEZVOUS: "recorded collective times; ranks do not wait for each other",
    Ablation.INTER_STREAM: "streams do not wait for each other",
}
EDGE_TEXT = {
    "HOST_ORDER": "host call to the next",
    "THREAD": "host thread to another",
    "LAUNCH": "launch call to device",
    "QUEUE": "launch queue to blocked launch",
    "WAKE": "device to waiting host",
    "STREAM": "next on the same stream",
    "INTER_STREAM": "stream to stream, from ids",
    "PROGRAMMATIC": "next on the stream, begun early",
    "GRAPH": "next in the same CUDA graph",
    "INTER_STREAM_INFERRED": "stream to stream, inferred",
    "ARRIVAL": "arrival at a collective",
    "TRANSFER": "last arrival to transfer",
    "GHOST": "unrecorded rank to the next",
    "ISSUE": "host call to collective's worker",
    "STATED": "as a file of dependencies states",
}
_ORIGINS = {
    "recorded_host": ("host work", "recorded: calls and the time between"),
    "recorded_device": ("device work", "recorded: kernels, copies and fills"),
    "split": ("transfers", "recorded collectives, waits taken out"),
    "estimated": ("estimated", "ranks not recorded, transfers with them"),
    "constant": ("constants", "launch latency, hand-over, wake-up"),
}


@dataclass(frozen=True)
class ErrorDistribution:
    """Absolute errors of many starts, in ns."""

    median_ns: int
    p95_ns: int
    count: int  # starts compared; 0: nothing to compare, the errors are 0


@dataclass(frozen=True)
class RankReplay(Plain):
    """One step on one rank: measured beside replayed."""

    rank: int
    measured_ns: int  # step: host mark to the later of host end and last device operation
    replayed_ns: int
    host_measured_ns: int  # the host's mark alone
    host_replayed_ns: int
    measured_parts: Parts
    replayed_parts: Parts
    kernel_start_error: ErrorDistribution  # each start relative to the step's begin on this rank
    collective_measured_ns: int  # sum over the step's collectives, arrival to finish
    collective_replayed_ns: int

    def as_json(self) -> Json:
        """Builtins only; the four parts side by side under `components`."""
        measured, replayed = self.measured_parts.as_json(), self.replayed_parts.as_json()
        return {
            "rank": self.rank,
            "measured_ns": self.measured_ns,
            "replayed_ns": self.replayed_ns,
            "host_measured_ns": self.host_measured_ns,
            "host_replayed_ns": self.host_replayed_ns,
            "components": {
                part: {"measured_ns": measured[part], "replayed_ns": replayed[part]}
                for part in COMPONENTS
            },
            "kernel_start_error_ns": {
                "median": self.kernel_start_error.median_ns,
                "p95": self.kernel_start_error.p95_ns,
                "count": self.kernel_start_error.count,
            },
            "collective_ns": {
                "measured_ns": self.collective_measured_ns,
                "replayed_ns": self.collective_replayed_ns,
            },
        }


@dataclass(frozen=True)
class StepReplay(Plain):
    """One step on all ranks that recorded it."""

    name: str
    ranks: tuple[RankReplay, ...]


@dataclass(frozen=True)
class ReplaySummary:
    """The errors of one replay in a few numbers, in percent of what was measured.

    Errors of a step's length, of its parts and of kernel starts are in percent of that step on
    that rank; errors of collective time in percent of that rank's collective time in that step.
    """

    mean_step_error_percent: float  # mean over steps and ranks of |replayed - measured|
    worst_step_error_percent: float
    mean_host_error_percent: float  # the same for the host's mark
    worst_component_error_percent: float  # largest |error| of one part of one step on one rank
    worst_component: str  # which part that is; one of `COMPONENTS`
    component_error_percent: dict[str, float]  # part -> its largest |error| on any step and rank
    median_kernel_start_error_percent: float  # largest median of any step and rank
    p95_kernel_start_error_percent: float  # largest p95 of any step and rank
    worst_collective_error_percent: float | None  # None: no collectives
    mean_collective_error_percent: float | None
    mean_step_bias_percent: float  # mean of replayed - measured: below 0 the replay is too short
    measured_parts: Parts  # all steps and ranks together
    replayed_parts: Parts


@dataclass(frozen=True)
class DurationMix:
    """What the replayed steps rest on: shares of the critical path that sum to 1.

    Walked back from each step's end on each rank to its begin, over all ranks it depends on.
    """

    recorded_host: float  # host work, as recorded
    recorded_device: float  # kernels, copies and fills, as recorded
    split: float  # transfers: what remains of a recorded collective after the last arrival
    estimated: float  # transfers with a missing rank, and the missing ranks' own time
    constant: float  # one number per kind of edge: launch latency, hand-over, wake-up


@dataclass(frozen=True)
class NullModel:
    """The same replay without one class of dependency."""

    ablation: Ablation
    summary: ReplaySummary


@dataclass(frozen=True)
class LinksOfReplay(Plain):
    """The replay on a machine's links, which transfers that meet divide."""

    step_time_ns: int
    use: SharedLinks
    notes: tuple[str, ...]  # what is not as the machine states


@dataclass(frozen=True, repr=False)
class ReplayReport(Answer):
    """A replay held against its recording."""

    json_names: ClassVar = {"mix": "duration_mix", "edge_kinds": ""}

    verdict: ReplayVerdict
    steps: tuple[StepReplay, ...]
    summary: ReplaySummary
    null_models: tuple[NullModel, ...]
    mix: DurationMix
    constants: tuple[EdgeConstant, ...]
    clocks: tuple[Clock, ...]
    findings: tuple[Finding, ...]
    step_time_ns: int  # the job's step time, measured
    replayed_step_time_ns: int
    unprofiled_step_ns: dict[int, int]  # rank -> median step time without profiler, if recorded
    edge_kinds: frozenset[EdgeKind]  # that the graph has
    links: LinksOfReplay | None = None  # `None`: every transfer takes as long as recorded

    @property
    def rows(self) -> tuple[RankReplay, ...]:
        """Every step on every rank."""
        return tuple(rank for step in self.steps for rank in step.ranks)

    @property
    def measured_ns(self) -> float:
        """Mean over steps and ranks."""
        return fmean(row.measured_ns for row in self.rows)

    @property
    def replayed_ns(self) -> float:
        """Mean over steps and ranks."""
        return fmean(row.replayed_ns for row in self.rows)

    @property
    def unprofiled_ns(self) -> float | None:
        """Step without the profiler, median over ranks; None: not recorded."""
        return median(self.unprofiled_step_ns.values()) if self.unprofiled_step_ns else None

    @property
    def profiler_cost_percent(self) -> float | None:
        """How much longer the job's step is than without the profiler."""
        if not self.unprofiled_ns:
            return None
        return 100 * (self.step_time_ns - self.unprofiled_ns) / self.unprofiled_ns

    @property
    def headline(self) -> str:
        """How far the replay is from the measurement."""
        return (
            f"replayed {duration_text(self.replayed_step_time_ns)}, measured "
            f"{duration_text(self.step_time_ns)}: the step's end is "
            f"{percent_text(self.summary.mean_step_error_percent)} off in the mean"
        )

    def parts(self) -> tuple[Told, ...]:
        """Errors, components, null models, steps, and what the replay rests on."""
        findings = (f"{one.topic}: {one.text}" for one in self.findings)
        return (
            Sentences.of("verdict", self.verdict.sentences),
            Facts(tuple(self._facts())),
            *self._links_parts(),
            self.components_table(),
            self.null_models_table(),
            self.steps_table(),
            self.origins_table(),
            self.constants_table(),
            Sentences.of("what the recording lacks", findings),
        )

    def _links_parts(self) -> Iterator[Told]:
        if self.links is not None:
            yield self.links.use.table()
            yield Sentences.of("links", self.links.notes)

    def tables(self) -> tuple[Table, ...]:
        """The steps, then what else is told."""
        own = self.steps_table()
        return own, *(one for one in super().tables() if one.key != own.key)

    def _facts(self) -> Iterator[Fact]:
        summary = self.summary
        remark = "of the job, measured with the profiler on"
        yield Fact("step time", duration_text(self.step_time_ns), remark)
        remark = "rebuilt from dependencies alone"
        yield Fact("replayed step time", duration_text(self.replayed_step_time_ns), remark)
        if self.links is not None:
            more_ns = self.links.step_time_ns - self.replayed_step_time_ns
            remark = (
                f"{more_ns:+,} ns: where transfers meet as they did, each goes on as recorded"
                if more_ns
                else "the same to the nanosecond: transfers meet as they did"
            )
            yield Fact("on shared links", duration_text(self.links.step_time_ns), remark)
        remark = "mean over ranks and steps: what errors and shares are of"
        yield Fact("own step of a rank", duration_text(self.measured_ns), remark)
        worst = percent_text(summary.worst_step_error_percent)
        mean = percent_text(summary.mean_step_error_percent)
        yield Fact("error of the step's end", mean, f"mean; worst {worst}", is_first=True)
        yield Fact(
            "error of a component",
            percent_text(summary.worst_component_error_percent),
            f"worst, of the step: {component_text(summary.worst_component)}",
        )
        starts = percent_text(summary.p95_kernel_start_error_percent)
        yield Fact("error of kernel starts", starts, "95th percentile, of the step")
        yield self.unprofiled_fact()

    def unprofiled_fact(self) -> Fact:
        """The step without the profiler."""
        name, cost = "step without profiler", self.profiler_cost_percent
        if self.unprofiled_ns is None or cost is None:
            remark = "foretrace.record measures it beside the trace"
            return Fact(name, "not recorded", remark, is_missing=True)
        remark = f"median over ranks; with it {signed_percent_text(cost)}"
        return Fact(name, duration_text(self.unprofiled_ns), remark)

    def component_means(self) -> tuple[tuple[str, float, float], ...]:
        """Every part as readers see them, measured and replayed, in ns; means over all rows."""
        return tuple(
            (
                name,
                fmean(row.measured_parts.shown()[name] for row in self.rows),
                fmean(row.replayed_parts.shown()[name] for row in self.rows),
            )
            for name in SHOWN_PARTS
        )

    def components_table(self) -> Table:
        """The step's parts, then the step."""
        step_ns = max(self.measured_ns, 1.0)
        means = (*self.component_means(), ("own step", self.measured_ns, self.replayed_ns))
        return Table.of(
            "components",
            means,
            Column("component", "", Unit.WORD, lambda row: component_text(row[0])),
            Column("measured_ns", value=lambda row: row[1]),
            Column("replayed_ns", value=lambda row: row[2]),
            Column("share", "of own steps", value=lambda row: row[1] / step_ns),
            Column("error", unit=Unit.SIGNED_SHARE, value=lambda row: (row[2] - row[1]) / step_ns),
            title="measured and replayed",
            is_strong=lambda row: row[0] == "own step",
        )

    def null_models_table(self) -> Table:
        """The replay, then each null model, with their errors in percent."""
        found: list[tuple[str, str, ReplaySummary]] = [("this replay", "", self.summary)]
        found += [
            (f"without {one.ablation.value}", NULL_MODEL_TEXT[one.ablation], one.summary)
            for one in self.null_models
        ]
        return Table.of(
            "null-models",
            found,
            Column("model", "", Unit.WORD, lambda row: row[0]),
            Column("leaves_out", "what is missing", value=lambda row: row[1], shown=Shown.WIDE),
            *(
                Column(f"{key}_percent", title, value=_percent_of(key))
                for key, title in (
                    ("mean_step_error", "end"),
                    ("worst_step_error", "worst"),
                    ("worst_component_error", "component"),
                    ("p95_kernel_start_error", "starts"),
                    ("worst_collective_error", "collect."),
                )
            ),
            title="errors beside null models",
            is_strong=lambda row: row[0] == "this replay",
            note=(
                "End, worst: of the step's end, mean and worst. Component: worst of a part of the "
                "step. Starts: 95th percentile of kernel starts. In percent of the step on that "
                "rank; collectives in percent of the rank's collective time."
            ),
        )

    def steps_table(self) -> Table:
        """Every step on every rank."""
        rows = [(step.name, rank) for step in self.steps for rank in step.ranks]
        files = Shown.FILES
        parts = (
            Column(f"{part}_{side}_ns", value=_part_of(side, part), shown=files)
            for part in COMPONENTS
            for side in ("measured", "replayed")
        )
        return Table.of(
            "steps",
            rows,
            Column("step", unit=Unit.WORD, value=lambda row: row[0]),
            Column("rank", value=lambda row: row[1].rank),
            Column("measured_ns", value=lambda row: row[1].measured_ns),
            Column("replayed_ns", value=lambda row: row[1].replayed_ns),
            Column("error", unit=Unit.SIGNED_SHARE, value=lambda row: _step_error(row[1])),
            Column("host_measured_ns", "host ms", value=lambda row: row[1].host_measured_ns),
            Column("host_replayed_ns", value=lambda row: row[1].host_replayed_ns, shown=files),
            *parts,
            Column("kernel_start_error_median_ns", value=_start_error("median_ns"), shown=files),
            Column("kernel_start_error_p95_ns", "starts p95 ms", value=_start_error("p95_ns")),
            Column(
                "collective_measured_ns",
                value=lambda row: row[1].collective_measured_ns,
                shown=files,
            ),
            Column(
                "collective_replayed_ns",
                value=lambda row: row[1].collective_replayed_ns,
                shown=files,
            ),
            title="every step on every rank",
            max_rows=16,
        )

    def origins_table(self) -> Table:
        """What the replayed time rests on, largest meaning first."""
        return Table.of(
            "rests-on",
            [(*text, getattr(self.mix, key)) for key, text in _ORIGINS.items()],
            Column("what", "", Unit.WORD, lambda row: row[0]),
            Column("share", value=lambda row: row[2]),
            Column("meaning", "", value=lambda row: row[1]),
            title="the replayed time rests on",
            shown=Shown.EVERYWHERE,
        )

    def constants_table(self) -> Table:
        """The constants that edges of the graph carry."""
        used = [one for one in self.constants if one.kind in self.edge_kinds]
        return Table.of(
            "constants",
            used,
            Column("edge", "time along an edge", value=lambda one: EDGE_TEXT[one.kind.name]),
            Column("lag_ns", "constant", Unit.NS),
            Column("low_ns", "10th", Unit.NS, lambda one: one.low_ns if one.num_samples else None),
            Column(
                "high_ns", "90th", Unit.NS, lambda one: one.high_ns if one.num_samples else None
            ),
            Column("num_samples"),
            title="constants along edges",
            note="Without samples the constant is the stated default."
            if any(not one.num_samples for one in used)
            else "",
        )

    def as_json(self) -> Json:
        """Builtins only; what `foretrace replay --json` prints."""
        null_models = {one.ablation.value: plain(one.summary) for one in self.null_models}
        found = plain_fields(self) | {"null_models": null_models}
        if self.links is None:
            del found["links"]
        return found


def _percent_of(key: str) -> Callable[[tuple[str, str, ReplaySummary]], float | None]:
    def of(row: tuple[str, str, ReplaySummary]) -> float | None:
        found: float | None = getattr(row[2], f"{key}_percent")
        return found

    return of


def _part_of(side: str, part: str) -> Callable[[tuple[str, RankReplay]], int]:
    def of(row: tuple[str, RankReplay]) -> int:
        found: int = getattr(getattr(row[1], f"{side}_parts"), f"{part}_ns")
        return found

    return of


def _start_error(name: str) -> Callable[[tuple[str, RankReplay]], int | None]:
    def of(row: tuple[str, RankReplay]) -> int | None:
        found: int = getattr(row[1].kernel_start_error, name)
        return found if row[1].kernel_start_error.count else None

    return of


def _step_error(row: RankReplay) -> float:
    return (row.replayed_ns - row.measured_ns) / max(row.measured_ns, 1)


@dataclass(frozen=True)
class StepPrediction(Plain):
    """One step on one rank, predicted from the other steps' durations."""

    json_names: ClassVar = {"step_name": "step"}
    json_also: ClassVar = ("error_percent",)

    step_name: str
    rank: int
    measured_ns: int
    predicted_ns: int
    naive_ns: int  # median of the other steps' measured times on this rank: no graph needed

    @property
    def error_percent(self) -> float:
        """Signed error of the prediction, in percent of the measured step."""
        return 100.0 * (self.predicted_ns - self.measured_ns) / max(self.measured_ns, 1)

    @property
    def naive_error_percent(self) -> float:
        """The same of `naive_ns`."""
        return 100.0 * (self.naive_ns - self.measured_ns) / max(self.measured_ns, 1)


@dataclass(frozen=True)
class OtherStepReport(Plain):
    """Each step predicted from durations of the others; rows by step, then rank.

    The graph of the predicted step is its own; only durations come from elsewhere.
    """

    rows: tuple[StepPrediction, ...]
    mean_error_percent: float  # mean of |error|
    worst_error_percent: float
    mean_naive_error_percent: float
    worst_naive_error_percent: float
    num_matched: int  # nodes whose counterpart stands in another step
    num_same_name: int  # no counterpart; median of the same name in other steps
    num_same_kind: int  # no such name; median of the same kind in other steps
    matched_time_share: float  # part of the predicted steps' node time that was matched
