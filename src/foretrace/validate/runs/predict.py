"""`predict_runs`: published runs, each predicted from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from foretrace.base import NS_PER_S, ModelError, SweepEngine, mapped
from foretrace.cost import CostModel, step_costs
from foretrace.machine import Machine
from foretrace.software import UNKNOWN_SOFTWARE, kernel_factors, load_software
from foretrace.validate.runs.calibration import all_widened, calibrated
from foretrace.validate.runs.configuration import machine_of, model_of
from foretrace.validate.runs.learning import models_left_out
from foretrace.validate.runs.logged_memory import logged_memory
from foretrace.validate.runs.plans import Planned, plans_of
from foretrace.validate.runs.results import RunPrediction, RunsReport, RunStatus
from foretrace.validate.runs.steps import Steps, few_microbatches, with_microbatches
from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import (
    Model,
    Plan,
    Transformer,
    footprint,
    plan_flops,
    schedule_of,
    with_fields,
)

_BYTES_PER_GIB = 1 << 30

CostsOf = Callable[[PublishedRun, Machine], CostModel]
_Key = tuple[Transformer, str, str, str]


def costs_of(run: PublishedRun, machine: Machine) -> CostModel:
    """The cost model of a run on its machine, with nothing that its own source taught."""
    software, architecture = run.described_software, machine.chip.architecture
    factors = kernel_factors(
        software, architecture, without=(run.family,), is_alone=run.num_gpus == 1
    )
    return step_costs(machine, factors)


def runs_report(
    runs: Sequence[PublishedRun],
    *,
    by_class: bool = False,
    unread: Sequence[str] = (),
    workers: int = 1,
    engine: SweepEngine = SweepEngine.PROCESSES,
    progress: Callable[[int, int], None] | None = None,
) -> RunsReport:
    """Every run predicted, and again with one constant for each kind of run.

    Args:
        runs: as `read_runs` gives them.
        by_class: predict twice more: with each run's software known by its class alone, and with
            nothing known of it.
        unread: rows of the table that could not be read, as `unread_rows` says why.
        workers: processes that predict at once.
        engine: where they run.
        progress: called after each run with how many are done, and of how many.
    """

    def predicted(asked: Sequence[PublishedRun]) -> tuple[RunPrediction, ...]:
        return all_widened(predict_runs(asked, workers=workers, engine=engine, progress=progress))

    rows = predicted(runs)
    classes = predicted([known_by_class(run) for run in runs]) if by_class else ()
    nothing = predicted([known_as(run, UNKNOWN_SOFTWARE) for run in runs]) if by_class else ()
    return RunsReport(
        rows,
        calibrated(rows),
        by_class=classes,
        by_nothing=nothing,
        unread=tuple(unread),
        left_models=models_left_out(runs, rows),
    )


def known_by_class(run: PublishedRun) -> PublishedRun:
    """The run with software of which the class alone is known: nothing that a source taught."""
    return known_as(run, run.described_software.family)


def known_as(run: PublishedRun, name: str) -> PublishedRun:
    """The run with its software taken for that description."""
    return replace(run, software_class=load_software(name))


def predict_runs(
    runs: Sequence[PublishedRun],
    *,
    costs: CostsOf = costs_of,
    workers: int = 1,
    engine: SweepEngine = SweepEngine.PROCESSES,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RunPrediction, ...]:
    """Every run, in the order given.

    Args:
        runs: of any sources.
        costs: what predicts durations on a run's machine with its software.
        workers: processes that predict at once.
        engine: where they run.
        progress: called with how many are done, and of how many.
    """
    groups: dict[tuple[object, ...], list[int]] = {}
    for at, run in enumerate(runs):  # runs alike share what was simulated
        alike = (run.model, run.layers, run.gpu, run.num_gpus, run.software[:4])
        groups.setdefault(alike, []).append(at)
    # The longest first, so that no process is left with one at the end.
    order = sorted(groups.values(), key=lambda rows: -sum(_weight(runs[at]) for at in rows))
    batches = [tuple(runs[at] for at in rows) for rows in order]
    found: dict[int, RunPrediction] = {}
    with mapped(workers, engine) as over:
        answers = over(partial(_predictions, costs=costs), batches)
        for rows, answered in zip(order, answers, strict=True):
            found.update(zip(rows, answered, strict=True))
            if progress is not None:
                progress(len(found), len(runs))
    return tuple(found[at] for at in range(len(runs)))


def _weight(run: PublishedRun) -> int:
    """About how much there is to simulate."""
    return (run.layers or 1) * (run.pp or 1) * (run.vp or 1)


def _predictions(runs: tuple[PublishedRun, ...], costs: CostsOf) -> list[RunPrediction]:
    known: dict[_Key, Steps] = {}
    return [_prediction(run, costs, known) for run in runs]


def _prediction(run: PublishedRun, costs: CostsOf, known: dict[_Key, Steps]) -> RunPrediction:
    nothing = _refused(run)
    try:
        model = model_of(run)
        machine = machine_of(run)
        planned = plans_of(run, model)
        key = (model, machine.title, run.described_software.name, run.family)
        if key not in known:
            known[key] = Steps(model, machine, costs(run, machine))
        found = _predicted(nothing, planned, known[key])
        if run.peak_memory_gib is None:
            return found
        memory = peak_gib(run, model, planned.plans[0], machine)
        return replace(found, predicted_memory_gib=memory)
    except (ModelError, ValueError) as err:  # the latter: places outside the machine
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
        status=RunStatus.REFUSED,
        why="",
        measured_memory_gib=run.peak_memory_gib,
        model=run.model,
        software_class=run.described_software.family,
        knowledge=run.described_software.knowledge.value,
    )


def _predicted(nothing: RunPrediction, planned: Planned, steps: Steps) -> RunPrediction:
    answer, *others = planned.plans
    time = steps.of(answer)
    ratios = [1.0, *(steps.shallow_ns(plan) / steps.shallow_ns(answer) for plan in others)]
    roofline = roofline_s(steps.model, answer, steps.machine)
    why = ""
    if planned.assumed:
        why = f"not printed: {', '.join(planned.assumed)}; spread over {len(ratios)} legal plans"
    return replace(
        nothing,
        predicted_s=time.step_ns / NS_PER_S,
        low_s=time.low_ns / NS_PER_S * min(ratios),
        high_s=time.high_ns / NS_PER_S * max(ratios),
        roofline_s=roofline,
        architecture=steps.machine.chip.architecture,
        products_s={name: ns / NS_PER_S for name, ns in time.products_ns.items()},
        status=RunStatus.ASSUMED if planned.assumed else RunStatus.PREDICTED,
        why=why,
    )


def roofline_s(model: Model, plan: Plan, machine: Machine) -> float | None:
    """Seconds of a step by the data sheet: its FLOPs at the peak, and its pipeline's bubble.

    What a calculator on the back of an envelope says, as something to beat: it is calibrated with
    as many constants. `None` if the chip's peak in that number format is not known.
    """
    peak = machine.chip.peak_flops_per_ns(plan.precision.products)
    if peak is None:
        return None
    counted = plan_flops(model, plan, recompute=plan.recompute)
    tokens = plan.global_batch * plan.sequence / plan.num_ranks
    busy_ns = (counted.training + counted.recompute) * tokens / peak
    bubble = (plan.pipeline - 1) / (plan.num_chunks * plan.num_microbatches)
    return busy_ns * (1 + bubble) / NS_PER_S


def peak_gib(run: PublishedRun, model: Transformer, plan: Plan, machine: Machine) -> float:
    """GiB that the run's software would log: PyTorch's statistics, which leave the context out.

    Time and memory agree on the plan but for number formats and kernels that only memory shows.

    Raises:
        WorkloadError: if memory of such a plan is not known.
    """
    logged = logged_memory(run.described_software)
    plan = with_fields(plan, logged.plan.stated)
    if logged.stores_products_format:
        plan = replace(plan, precision=replace(plan.precision, parameters=run.precision))
    _, more = few_microbatches(plan)
    plan = with_microbatches(plan, min(plan.num_microbatches, more))
    found = footprint(
        model,
        plan,
        schedule_of(plan),
        capacity=machine.chip.memory_bytes,
        chip=machine.chip,
        software=logged.account,
    )
    stage = found.stages[0] if logged.is_of_first_rank else found.peak
    return stage.allocated / _BYTES_PER_GIB
