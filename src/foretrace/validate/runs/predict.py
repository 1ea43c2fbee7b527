"""`predict_runs`: published runs, each predicted from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from foretrace.base import ModelError
from foretrace.cost import CostModel
from foretrace.machine import Machine
from foretrace.validate.runs.kernels import costs_of
from foretrace.validate.runs.machines import machine_of
from foretrace.validate.runs.models import model_of
from foretrace.validate.runs.plans import Planned, plans_of
from foretrace.validate.runs.results import RunPrediction, Status
from foretrace.validate.runs.roofline import roofline_s
from foretrace.validate.runs.steps import StepTime, step_of
from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import Plan, Transformer

_NS_PER_S = 1e9
_BYTES_PER_GIB = 1 << 30

CostsOf = Callable[[PublishedRun, Machine], CostModel]


def predict_runs(
    runs: Sequence[PublishedRun],
    *,
    costs: CostsOf = costs_of,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RunPrediction, ...]:
    """Every run, in the order given.

    Args:
        runs: of any sources.
        costs: what predicts durations on a run's machine with its software.
        progress: called after each run with how many are done, and of how many.
    """
    found: list[RunPrediction] = []
    for run in runs:
        found.append(prediction_of(run, costs))
        if progress is not None:
            progress(len(found), len(runs))
    return tuple(found)


def prediction_of(run: PublishedRun, costs: CostsOf = costs_of) -> RunPrediction:
    """One run; what cannot be laid out is refused, with the reason."""
    nothing = _refused(run)
    try:
        model = model_of(run)
        machine = machine_of(run)
        planned = plans_of(run, model)
        return _predicted(nothing, model, planned, _Steps(model, machine, costs(run, machine)))
    except ModelError as err:
        return replace(nothing, why=str(err))


def _refused(run: PublishedRun) -> RunPrediction:
    return RunPrediction(
        id=run.id,
        source=run.family,
        software=run.software,
        gpu=run.gpu,
        precision=run.precision,
        num_gpus=run.num_gpus,
        has_experts=run.has_experts,
        measured_s=run.measured_s,
        predicted_s=None,
        low_s=None,
        high_s=None,
        roofline_s=None,
        status=Status.REFUSED,
        why="",
        measured_memory_gib=run.peak_memory_gib,
    )


@dataclass(frozen=True)
class _Steps:
    """Steps of one model on one machine."""

    model: Transformer
    machine: Machine
    costs: CostModel

    def of(self, plan: Plan) -> StepTime:
        """One step under a plan."""
        return step_of(self.model, plan, self.machine, self.costs)


def _predicted(
    nothing: RunPrediction, model: Transformer, planned: Planned, steps: _Steps
) -> RunPrediction:
    times = [steps.of(plan) for plan in planned.plans]
    answer, chosen = times[0], planned.plans[0]
    low_ns = min(one.low_ns for one in times)
    high_ns = max(one.high_ns for one in times)
    peak = answer.peak_bytes
    why = ""
    if planned.assumed:
        why = f"not printed: {', '.join(planned.assumed)}; spread over {len(times)} legal plans"
    return replace(
        nothing,
        predicted_s=answer.step_ns / _NS_PER_S,
        low_s=low_ns / _NS_PER_S,
        high_s=high_ns / _NS_PER_S,
        roofline_s=roofline_s(model, chosen, steps.machine),
        status=Status.ASSUMED if planned.assumed else Status.PREDICTED,
        why=why,
        predicted_memory_gib=None if peak is None else peak / _BYTES_PER_GIB,
    )
