"""Every run of a table, predicted from runs that differ from it in one thing.

What an estimate does not know of a site comes from the one neighbour: its measured time, scaled by
the estimates of both. Nothing is fitted on the table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import permutations

import numpy as np

from foretrace.answer import Answer, Column, Plain, Sentences, Table, Told, Unit, columns_of
from foretrace.base import NS_PER_S, ModelError
from foretrace.cost import CostModel
from foretrace.estimate import estimate
from foretrace.machine import Machine
from foretrace.validate.runs.configuration import machine_of, model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.validate.runs.predict import costs_of
from foretrace.validate.runs.steps import few_microbatches, with_microbatches
from foretrace.validate.runs.table import PublishedRun
from foretrace.whatif import StepCurve, scaled_along, step_curve
from foretrace.workload import Plan, Transformer, plan_flops

_DEGREES = frozenset({"tp", "pp", "dp"})
_MICROBATCHES = "microbatches"
_MOST_REASONS = 5
_SHARES = {
    "predicted": "neighbour",
    "ratio": "plain ratio",
    "scratch": "scratch",
    "flops": "FLOPs",
    "wins": "nearer",
    "inside": "in",
}
_HOW_TO_READ = (
    "mean absolute errors, as shares of the measured step time",
    "neighbour: its measured time, scaled by two estimates and the likeliest launch time",
    "plain ratio: its measured time times the ratio of the estimates",
    "scratch: the estimate alone; FLOPs: measured time times the ratio of FLOPs per GPU",
    "nearer: pairs where the neighbour beats scratch",
    "in: measured times in their 80% interval; mean: every line counts alike",
)


@dataclass(frozen=True, kw_only=True)
class NeighbourPrediction(Plain):
    """One run, predicted from another; times in seconds, as tables of runs print them."""

    json_also = ("error",)

    id: str
    neighbour: str
    dimension: str  # what they differ in
    measured_s: float
    neighbour_s: float  # measured, of the neighbour
    predicted_s: float  # from the neighbour: `foretrace.whatif.scaled_along`
    low_s: float  # 10th percentile
    high_s: float  # 90th
    ratio_s: float  # the neighbour's, times the plain ratio of the two estimates
    scratch_s: float  # the estimate alone
    flops_s: float  # the neighbour's, times the ratio of FLOPs per GPU

    @property
    def error(self) -> float:
        """Predicted over measured time, less 1."""
        return self.predicted_s / self.measured_s - 1

    @property
    def is_inside(self) -> bool:
        """Whether the measured time lies in the 80% interval."""
        return self.low_s <= self.measured_s <= self.high_s


@dataclass(frozen=True, kw_only=True)
class DimensionErrors(Plain):
    """Mean absolute errors over pairs that differ in one thing, as shares of measured times."""

    dimension: str
    num_pairs: int
    predicted: float
    ratio: float
    scratch: float
    flops: float
    wins: float  # share of pairs in which the neighbour is nearer than scratch
    inside: float  # share of measured times in their 80% interval


@dataclass(frozen=True, repr=False)
class NeighboursReport(Answer):
    """Predictions of runs from their neighbours."""

    json_also = ("dimensions", "overall")

    rows: tuple[NeighbourPrediction, ...]
    num_runs: int  # that have a neighbour
    refused: tuple[str, ...]  # why runs were left out

    @property
    def dimensions(self) -> tuple[DimensionErrors, ...]:
        """Errors by what differs, in alphabetic order."""
        names = sorted({one.dimension for one in self.rows})
        return tuple(
            _errors(name, [one for one in self.rows if one.dimension == name]) for name in names
        )

    @property
    def overall(self) -> DimensionErrors | None:
        """The mean over all dimensions, each counting alike; `None` without pairs."""
        found = self.dimensions
        if not found:
            return None

        def mean(name: str) -> float:
            return float(np.mean([getattr(one, name) for one in found]))

        return DimensionErrors(
            dimension="mean",
            num_pairs=len(self.rows),
            predicted=mean("predicted"),
            ratio=mean("ratio"),
            scratch=mean("scratch"),
            flops=mean("flops"),
            wins=mean("wins"),
            inside=mean("inside"),
        )

    @property
    def headline(self) -> str:
        """How many runs there are to predict."""
        if not self.rows:
            return "no two runs of this table differ in one thing only: nothing to predict"
        return f"{self.num_runs} runs, each predicted from runs that differ in one thing"

    def parts(self) -> tuple[Told, ...]:
        """Errors by what differs, why runs were left out, and how to read it."""
        if not self.rows:
            return ()
        return (
            self._by_dimension(),
            Sentences.of("left out", self.refused[:_MOST_REASONS]),
            Sentences.of("how to read it", _HOW_TO_READ),
        )

    def tables(self) -> tuple[Table, ...]:
        """All pairs, then errors by what differs."""
        pairs = Table.of("rows", self.rows, *columns_of(NeighbourPrediction, "error"))
        return pairs, self._by_dimension()

    def _by_dimension(self) -> Table:
        overall = () if self.overall is None else (self.overall,)
        return Table.of(
            "dimensions",
            (*self.dimensions, *overall),
            Column("dimension", "differ in"),
            Column("num_pairs"),
            *(Column(key, title, Unit.SHARE) for key, title in _SHARES.items()),
        )


def _errors(dimension: str, rows: list[NeighbourPrediction]) -> DimensionErrors:
    measured = np.array([one.measured_s for one in rows])
    off = {
        name: np.abs(np.array([getattr(one, f"{name}_s") for one in rows]) / measured - 1)
        for name in ("predicted", "ratio", "scratch", "flops")
    }
    means = {name: float(each.mean()) for name, each in off.items()}
    return DimensionErrors(
        dimension=dimension,
        num_pairs=len(rows),
        wins=float(np.mean(off["predicted"] < off["scratch"])),
        inside=float(np.mean([one.is_inside for one in rows])),
        **means,
    )


@dataclass(frozen=True)
class NeighbourPair:
    """A run, and a neighbour that it is predicted from."""

    run: PublishedRun
    neighbour: PublishedRun
    dimension: str  # what they differ in; "tp for dp": two degrees, on as many GPUs


def neighbour_pairs(runs: Sequence[PublishedRun]) -> tuple[NeighbourPair, ...]:
    """Every two runs of one site that differ in one thing, both ways round.

    Widths (hidden, heads, feed-forward) count as one. Where a microbatch or a degree changes, so
    must the number of microbatches or the global batch; either may stay. Two degrees may change
    places on the same number of GPUs. Runs without a measured time, or without degrees, have no
    neighbours.
    """
    sites: dict[Hashable, list[PublishedRun]] = defaultdict(list)
    for run in runs:
        if run.measured_s and run.micro_batch and run.tp and run.pp and run.dp:
            sites[_site(run)].append(run)
    return tuple(pair for site in sites.values() for pair in _pairs(site))


def _site(run: PublishedRun) -> Hashable:
    """What neighbours have in common: where, with what software and in what formats they ran."""
    return (
        run.family,
        run.software,
        run.gpu,
        run.gpus_per_node,
        run.nvlink_domain,
        run.precision,
        run.sharding,
        run.schedule if run.schedule not in {"none", "1f1b"} else None,
        run.vp,
        run.ep,
        run.experts,
        run.top_k,
        run.moe_ffn,
        run.vocab,
        run.sequence_parallel,
        run.notes if run.description.stated_plan(run.texts).stated else None,
    )


def _pairs(runs: Sequence[PublishedRun]) -> Iterator[NeighbourPair]:
    things = {run.id: _things(run) for run in runs}
    for run, neighbour in permutations(runs, 2):
        dimension = _dimension(things[run.id], things[neighbour.id])
        if dimension is not None:
            yield NeighbourPair(run, neighbour, dimension)


def _things(run: PublishedRun) -> Mapping[str, Hashable]:
    return {
        "layers": run.layers,
        "hidden": (run.hidden, run.heads, run.kv_heads, run.head_dim, run.ffn),
        "tp": run.tp,
        "pp": run.pp,
        "dp": run.dp,
        "cp": run.cp,
        "microbatch": run.micro_batch,
        "sequence": run.seq_len,
        "recompute": run.recompute,
        "gpus": run.num_gpus,
        "batch": run.global_batch,
        _MICROBATCHES: run.global_batch / ((run.micro_batch or 1) * (run.dp or 1)),
    }


def _dimension(one: Mapping[str, Hashable], other: Mapping[str, Hashable]) -> str | None:
    """The one thing that two runs differ in; `None` if it is more, or nothing."""
    differing = {name for name, value in one.items() if value != other[name]}
    moved = differing - {"gpus", "batch", _MICROBATCHES}
    batch = differing & {"batch", _MICROBATCHES}
    if not moved:
        return _MICROBATCHES if len(batch) == 2 else None  # noqa: PLR2004
    if len(batch) == 2:  # noqa: PLR2004
        return None
    if len(moved) == 1:
        return next(iter(moved))
    if len(moved) == 2 and moved <= _DEGREES and "gpus" not in differing:  # noqa: PLR2004
        return " for ".join(sorted(moved, key=("tp", "pp", "dp").index))
    return None


def neighbours_report(
    runs: Sequence[PublishedRun], *, progress: Callable[[int, int], None] | None = None
) -> NeighboursReport:
    """Runs predicted from runs that differ in one thing, beside their estimate from scratch.

    Nothing is fitted on the table: what an estimate does not know of a site comes from the one
    neighbour.

    Args:
        runs: as `read_runs` gives them.
        progress: called with how many runs are estimated, and of how many.
    """
    pairs = neighbour_pairs(runs)
    wanted = {run.id: run for pair in pairs for run in (pair.run, pair.neighbour)}
    estimates = RunEstimates()
    found: dict[str, EstimatedRun] = {}
    refused: dict[str, None] = {}
    for done, run in enumerate(wanted.values(), start=1):
        try:
            found[run.id] = estimates.of(run)
        except (ModelError, ValueError) as err:  # the latter: places outside the machine
            refused[f"{run.id}: {err}"] = None
        if progress is not None:
            progress(done, len(wanted))
    rows = tuple(
        _predicted(pair, found[pair.run.id], found[pair.neighbour.id])
        for pair in pairs
        if pair.run.id in found and pair.neighbour.id in found
    )
    return NeighboursReport(rows, num_runs=len(found), refused=tuple(refused))


def _predicted(
    pair: NeighbourPair, run: EstimatedRun, neighbour: EstimatedRun
) -> NeighbourPrediction:
    measured_s, neighbour_s = pair.run.measured_s or 0.0, pair.neighbour.measured_s or 0.0
    scaled = scaled_along(neighbour_s * NS_PER_S, neighbour.curve, run.curve)
    return NeighbourPrediction(
        id=pair.run.id,
        neighbour=pair.neighbour.id,
        dimension=pair.dimension,
        measured_s=measured_s,
        neighbour_s=neighbour_s,
        predicted_s=scaled.step_ns / NS_PER_S,
        low_s=scaled.low_ns / NS_PER_S,
        high_s=scaled.high_ns / NS_PER_S,
        ratio_s=neighbour_s * run.step_s / neighbour.step_s,
        scratch_s=run.step_s,
        flops_s=neighbour_s * run.flops_per_rank / neighbour.flops_per_rank,
    )


@dataclass(frozen=True)
class EstimatedRun:
    """A run, estimated from its configuration alone."""

    curve: StepCurve
    step_s: float  # from scratch
    flops_per_rank: float  # of a step, recompute not counted


@dataclass(frozen=True)
class RunEstimates:
    """Estimates of runs; runs that differ in microbatches alone share two simulations."""

    known: dict[tuple[Transformer, Plan, str], tuple[StepCurve, float]] = field(
        default_factory=dict
    )
    models: dict[tuple[str, str, str], CostModel] = field(default_factory=dict)

    def of(self, run: PublishedRun) -> EstimatedRun:
        """One run, under its likeliest plan.

        Raises:
            ModelError: if it cannot be laid out or costed.
            ValueError: so too.
        """
        model, machine = model_of(run), machine_of(run)
        plan = plans_of(run, model).plans[0]
        costs = self._costs(run, machine)
        few, more = few_microbatches(plan)
        if plan.num_microbatches <= more:
            curve, step_ns = self._simulated(model, plan, machine, costs)
        else:
            short = self._simulated(model, with_microbatches(plan, few), machine, costs)
            long = self._simulated(model, with_microbatches(plan, more), machine, costs)
            times = (plan.num_microbatches - more) / (more - few)
            curve = _extrapolated(short[0], long[0], times)
            step_ns = long[1] + times * (long[1] - short[1])
        tokens = plan.global_batch * plan.sequence
        work = plan_flops(model, plan).training * tokens / plan.num_ranks
        return EstimatedRun(curve, step_ns / NS_PER_S, work)

    def _costs(self, run: PublishedRun, machine: Machine) -> CostModel:
        key = (machine.title, run.software, run.family)
        if key not in self.models:
            self.models[key] = costs_of(run, machine)
        return self.models[key]

    def _simulated(
        self, model: Transformer, plan: Plan, machine: Machine, costs: CostModel
    ) -> tuple[StepCurve, float]:
        key = (model, replace(plan, name=""), machine.title)
        if key not in self.known:
            done = estimate(model, key[1], machine, costs=costs, unmodelled=0.0)
            self.known[key] = step_curve(done), float(done.step_ns)
        return self.known[key]


def _extrapolated(short: StepCurve, long: StepCurve, times: float) -> StepCurve:
    """The longer step, and so many times what it has over the shorter."""
    families = {*short.critical_ns, *long.critical_ns}
    both = {
        one: (short.critical_ns.get(one, 0.0), long.critical_ns.get(one, 0.0)) for one in families
    }
    return StepCurve(
        long.step_ns + times * (long.step_ns - short.step_ns),
        {one: max(0.0, after + times * (after - before)) for one, (before, after) in both.items()},
    )
