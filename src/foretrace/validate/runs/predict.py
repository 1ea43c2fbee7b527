"""`predict_runs`: published runs, each predicted from its configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from multiprocessing import get_context

from foretrace.base import ModelError
from foretrace.cost import CostModel
from foretrace.machine import Machine
from foretrace.validate.runs.kernels import costs_of
from foretrace.validate.runs.machines import machine_of
from foretrace.validate.runs.memory import peak_gib
from foretrace.validate.runs.models import model_of
from foretrace.validate.runs.plans import Planned, plans_of
from foretrace.validate.runs.results import RunPrediction, Status
from foretrace.validate.runs.roofline import roofline_s
from foretrace.validate.runs.software import software_of
from foretrace.validate.runs.steps import Steps
from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import Transformer

_NS_PER_S = 1e9

CostsOf = Callable[[PublishedRun, Machine], CostModel]
_Key = tuple[Transformer, str, str, str]


def predict_runs(
    runs: Sequence[PublishedRun],
    *,
    costs: CostsOf = costs_of,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RunPrediction, ...]:
    """Every run, in the order given.

    Args:
        runs: of any sources.
        costs: what predicts durations on a run's machine with its software.
        workers: processes that predict at once.
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
    with _mapped(workers) as mapped:
        answers = mapped(partial(_predictions, costs=costs), batches)
        for rows, answered in zip(order, answers, strict=True):
            found.update(zip(rows, answered, strict=True))
            if progress is not None:
                progress(len(found), len(runs))
    return tuple(found[at] for at in range(len(runs)))


_Mapped = Callable[
    [Callable[[tuple[PublishedRun, ...]], list[RunPrediction]], list[tuple[PublishedRun, ...]]],
    Iterable[list[RunPrediction]],
]


@contextmanager
def _mapped(workers: int) -> Iterator[_Mapped]:
    if workers == 1:
        yield map
        return
    # A fork would copy the locks that numba and polars hold.
    context = get_context("spawn")
    with ProcessPoolExecutor(workers, mp_context=context) as pool:
        yield pool.map


def _weight(run: PublishedRun) -> int:
    """About how much there is to simulate."""
    return (run.layers or 1) * (run.pp or 1) * (run.vp or 1)


def _predictions(runs: tuple[PublishedRun, ...], costs: CostsOf) -> list[RunPrediction]:
    known: dict[_Key, Steps] = {}
    return [_prediction(run, costs, known) for run in runs]


def prediction_of(run: PublishedRun, costs: CostsOf = costs_of) -> RunPrediction:
    """One run; what cannot be laid out is refused, with the reason."""
    return _prediction(run, costs, {})


def _prediction(run: PublishedRun, costs: CostsOf, known: dict[_Key, Steps]) -> RunPrediction:
    nothing = _refused(run)
    try:
        model = model_of(run)
        machine = machine_of(run)
        planned = plans_of(run, model)
        key = (model, machine.title, software_of(run).name, run.family)
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
        status=Status.REFUSED,
        why="",
        measured_memory_gib=run.peak_memory_gib,
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
        predicted_s=time.step_ns / _NS_PER_S,
        low_s=time.low_ns / _NS_PER_S * min(ratios),
        high_s=time.high_ns / _NS_PER_S * max(ratios),
        roofline_s=roofline,
        architecture=steps.machine.chip.architecture,
        products_s=time.products_ns / _NS_PER_S,
        status=Status.ASSUMED if planned.assumed else Status.PREDICTED,
        why=why,
    )
