"""Search held against what others published: rankings of measured plans, and published plans.

    python bench/ranked.py measured RUNS.csv DESCRIPTION.toml
    python bench/ranked.py calibrated RUNS.csv DESCRIPTION.toml
    python bench/ranked.py neighbours RUNS.csv DESCRIPTION.toml
    python bench/ranked.py turned RUNS.csv DESCRIPTION.toml
    python bench/ranked.py published RUNS.csv DESCRIPTION.toml [WORD...]

`measured`: plans of the same model, sequences and GPUs that somebody timed, in the order predicted
and in that measured: Spearman's coefficient, and how much longer the plan predicted first takes
than the best (regret). `calibrated`: the same of all rows but every tenth, to which six constants
of the site are fitted. `neighbours`: each row from one row of the same site (of those that differ
in one thing, the one with the narrowest interval) that belongs to another job, another model, fewer
layers, other GPUs, a smaller batch or another width; nothing is fitted. `turned`: pairs of rows of
which one does more of the same work in less time. `published`: the plan of a row whose name has
one of the words, or a preset of that name, in the space of all tp, pp, cp, chunks, microbatch and
sharding with GPUs, batch and all else as there: the gap to the best found, and how many plans can
be before it.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
from numpy.typing import NDArray
from scipy.stats import spearmanr

from experiments.site_constants import fitted_constants, site_run, site_step_s
from foretrace.base import WorkloadError
from foretrace.cost import Inflation, Remembered
from foretrace.estimate import run_units, software_costs
from foretrace.machine import Machine, load_machine
from foretrace.search import Limits, SearchOptions, SpaceLimits
from foretrace.search.modelled import ModelGround
from foretrace.search.search import searched_on
from foretrace.search.space import columns_of, space_over
from foretrace.software import load_software
from foretrace.validate import (
    NeighbourPrediction,
    PublishedRun,
    neighbours_report,
    predict_runs,
    read_description,
    read_runs,
)
from foretrace.validate.runs.configuration import machine_of, model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.workload import (
    Plan,
    PlanDraft,
    Recompute,
    Transformer,
    blocks_of_model,
    load_model,
    load_plan,
    unit_layout,
)

_TAUGHT = 10  # of so many rows one teaches
_LEAST = 5  # plans of one job, from which on their order says something
_PRESETS = ("llama3-405b-8k-8k-gpus", "llama3-405b-8k-16k-gpus", "llama3-405b-128k-16k-gpus")


def measured(path: Path, description: Path) -> None:
    """Orders of plans of the same job."""
    runs = read_runs(path, read_description(description))
    _tell((run, row.predicted_s) for run, row in zip(runs, predict_runs(runs), strict=True))


def calibrated(path: Path, description: Path) -> None:
    """Orders of plans whose site is known by every tenth of them."""
    runs = read_runs(path, read_description(description))
    sites = [site_run(run, Recompute.NONE) for run in runs]
    constants = fitted_constants(sites[::_TAUGHT])
    print(constants)
    _tell(
        (run, site_step_s(site, constants))
        for at, (run, site) in enumerate(zip(runs, sites, strict=True))
        if at % _TAUGHT
    )


def neighbours(path: Path, description: Path) -> None:
    """Orders of plans whose site is known by one run of something else each."""
    runs = read_runs(path, read_description(description))
    by_id = {run.id: run for run in runs}
    rows = neighbours_report(runs).rows
    for what, is_other in _OTHERS.items():
        nearest: dict[str, NeighbourPrediction] = {}
        for row in rows:
            if is_other(by_id[row.id], by_id[row.neighbour]):
                before = nearest.setdefault(row.id, row)
                if row.high_s / row.low_s < before.high_s / before.low_s:
                    nearest[row.id] = row
        off = np.mean([abs(row.error) for row in nearest.values()])
        print(f"from {what}, {off:.1%} off in the mean:")
        _tell((by_id[name], row.predicted_s) for name, row in nearest.items())


def turned(path: Path, description: Path) -> None:
    """Rows that differ in one size alone, and say that more of it took less time."""
    rows: dict[tuple[object, int, int], tuple[float, str]] = {}
    for run in read_runs(path, read_description(description)):
        if run.micro_batch and run.dp and run.hidden and run.measured_s:
            count = run.global_batch // (run.micro_batch * run.dp)
            plan = (run.num_gpus, run.tp, run.pp, run.dp, run.layers, count)
            rows[plan, run.hidden, run.micro_batch] = run.measured_s, run.id
    for what, (width, sequences) in (("sequences of a microbatch", (1, 2)), ("width", (2, 1))):
        pairs = [
            (more[0] / one[0], one[1], more[1])
            for (plan, hidden, micro), one in rows.items()
            if (more := rows.get((plan, width * hidden, sequences * micro)))
        ]
        short = sorted(pair for pair in pairs if pair[0] < 1)
        print(f"twice the {what}: {len(pairs)} pairs of rows, less time in {len(short)}")
        for ratio, less, longer in short[:1]:
            print(f"    {longer} beside {less}: {ratio - 1:+.1%}")


def _model(run: PublishedRun) -> tuple[object, ...]:
    return run.model, run.layers, run.hidden


def _job(run: PublishedRun) -> tuple[object, ...]:
    return *_model(run), run.num_gpus, run.global_batch, run.seq_len


def _has_less(run: PublishedRun, neighbour: PublishedRun) -> bool:
    alike = _model(run) == _model(neighbour) and run.num_gpus == neighbour.num_gpus
    return alike and neighbour.global_batch < run.global_batch


# What a run is known by: whether another one counts as such.
_OTHERS: Mapping[str, Callable[[PublishedRun, PublishedRun], bool]] = {
    "another job": lambda run, other: _job(run) != _job(other),
    "another model": lambda run, other: _model(run) != _model(other),
    "fewer layers": lambda run, other: (other.layers or 0) < (run.layers or 0),
    "other GPUs": lambda run, other: run.num_gpus != other.num_gpus,
    "a smaller batch": _has_less,
    "another width": lambda run, other: run.hidden != other.hidden,
}


def _tell(predicted: Iterable[tuple[PublishedRun, float | None]]) -> None:
    jobs: dict[object, list[tuple[float, float]]] = defaultdict(list)
    told: list[tuple[float, float]] = []
    for run, predicted_s in predicted:
        if run.measured_s and predicted_s:
            jobs[_job(run)].append((predicted_s, run.measured_s))
            told.append((predicted_s, run.measured_s))
    print(f"{len(told)} rows: Spearman {spearmanr(*np.array(told).T).statistic:.3f}")
    hidden = sorted({job[2] for job in jobs})  # type: ignore[index]
    for size in (None, *hidden):
        of_size = [own for job, own in jobs.items() if size in (None, job[2])]  # type: ignore[index]
        many = [np.array(own) for own in of_size if len(own) >= _LEAST]
        if many:
            _tell_jobs("all" if size is None else f"hidden {size}", many)


def _tell_jobs(what: str, many: list[NDArray[np.float64]]) -> None:
    own = [spearmanr(*one.T).statistic for one in many]
    regret = [one[one[:, 0].argmin(), 1] / one[:, 1].min() - 1 for one in many]
    print(
        f"{what}: {len(many)} jobs of {_LEAST} plans or more: Spearman mean {np.mean(own):.3f}, "
        f"median {np.median(own):.3f}, least {min(own):.3f}; regret mean {np.mean(regret):.2%}, "
        f"median {np.median(regret):.2%}, most {max(regret):.1%}, "
        f"none in {np.mean(np.array(regret) == 0):.0%}"
    )


def cases(
    path: Path, description: Path, words: list[str]
) -> Iterator[tuple[str, Transformer, Plan, Machine]]:
    """Published plans of dense models, on their machines."""
    for name in _PRESETS:
        if any(word in name for word in words):
            model = cast("Transformer", load_model("llama3-405b"))
            yield name, model, load_plan(name).plan(), load_machine("llama3-24k")
    for run in read_runs(path, read_description(description)):
        if any(word in run.id for word in words):
            try:
                model = model_of(run)
                yield run.id, model, plans_of(run, model).plans[0], machine_of(run)
            except WorkloadError as err:
                print(f"{run.id}: {err}")


def published(name: str, model: Transformer, plan: Plan, machine: Machine) -> None:
    """Where a plan stands in its space."""
    costs = Remembered(software_costs(machine, load_software("megatron")))
    draft = PlanDraft().with_keys({"recompute": plan.recompute.value, "ep": plan.expert})
    base = replace(plan, layers_of_chunk=None, contiguous=None)
    space = space_over(base, draft, SpaceLimits.of(model), plan.num_ranks)
    ground = ModelGround(
        model,
        machine,
        spaces=(space,),
        draft=draft,
        software=None,
        costs=costs,
        inflation=Inflation(),
    )
    found = searched_on(ground, options=SearchOptions(limits=Limits(time_s=_TIME_S)))
    layout = unit_layout(blocks_of_model(model, plan), plan)
    own_ns = run_units(layout, costs, ground.inflation).step_ns
    best_ns = found.best.unit_ns or found.best.step_ns
    listed = ground.listing(None).more()
    quick = ground.bounds(listed.plans)
    near = [
        one
        for one, bound in zip(listed.plans, quick, strict=True)
        if isinstance(bound, int) and bound < own_ns
    ]
    before = sum(ground.run_ns(one) < own_ns for one in near[:_MOST_RUN])
    print(
        f"{name}: {own_ns / 1e9:.3f} s, best {best_ns / 1e9:.3f} s ({own_ns / best_ns - 1:+.1%}; "
        f"gap {found.gap if found.gap is None else f'{found.gap:.1%}'}), at most {before} of "
        f"{len(listed.plans)} plans before it ({before / len(listed.plans):.1%})"
    )
    best, theirs = columns_of(found.best.plan), columns_of(plan)
    print("   ", {key: (theirs[key], best[key]) for key in best if best[key] != theirs[key]})
    sys.stdout.flush()


_TIME_S, _MOST_RUN = 90.0, 3_000


_RANKED = {one.__name__: one for one in (measured, calibrated, neighbours, turned)}


def main() -> None:
    """Measure and print."""
    what, path, description, *words = sys.argv[1:]
    if what in _RANKED:
        _RANKED[what](Path(path), Path(description))
        return
    for case in cases(Path(path), Path(description), words):
        published(*case)


if __name__ == "__main__":
    main()
