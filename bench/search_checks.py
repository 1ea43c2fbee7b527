"""Search held against what needs no search: long forms of what its tests draw a few of.

python bench/search_checks.py columns      memory of 5,000 plans of 12 models, to the byte
python bench/search_checks.py bounds       bounds of 600 plans below their steps
python bench/search_checks.py exhaustive   ten small spaces, every plan simulated
python bench/search_checks.py tables       50 instances of 200 tables beside what none is below
python bench/search_checks.py recompute    what is computed again, beside PyTorch's `sac_ilp`

The last wants `pip install pulp pwlf` beside PyTorch.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import cast

sys.path.insert(0, str(Path(__file__).parents[1]))

from foretrace.base import WorkloadError
from foretrace.cost import Inflation, Remembered
from foretrace.estimate import software_costs, unit_programs
from foretrace.machine import load_machine, with_hosts
from foretrace.search import Limits, SearchOptions, SpaceLimits, StepBound, plan_space, searched
from foretrace.search.bound import Prices
from foretrace.search.table_annealing import annealed_families
from foretrace.search.table_floor import TableFloor, table_floor
from foretrace.workload import (
    MemoryTier,
    Norm,
    Plan,
    PlanDraft,
    PlanMemory,
    Transformer,
    check_plan,
    footprint,
    load_model,
    schedule_of,
)
from tests.search.table_program import solved_tables
from tests.search.test_bound import small_plans
from tests.search.test_tables import accounted, large
from tests.workload.footprint.test_many_plans import MODELS, legal_plans

_PLANS, _BOUNDED, _INSTANCES = 5_000, 100, 50
_TABLES_S, _WHOLE_S, _PROGRAM_S, _NEAR = 9.0, 20.0, 60.0, 0.03
_PEER_NEEDS = ("pulp", "pwlf")
# Model, layers of it, sequences and their tokens, on one GPU, norms; shares of what full recompute
# frees.
_TRAINED = (
    ("gpt2", 6, 8, 1024, Norm.LAYER),
    ("llama3.2-1b", 6, 2, 4096, Norm.LAYER),
    ("gpt3-medium", 6, 4, 2048, Norm.LAYER),
    ("llama3.2-1b", 6, 2, 4096, Norm.RMS),
)
_FREED = (0.2, 0.4, 0.6, 0.8)
_MACHINES = ("llama3-24k", "perlmutter-gpu")
_BOUNDED_MODELS = ("llama3.2-1b", "gpt2", "mixtral-8x7b")
# Model, machine, GPUs, and what is stated beside the batch.
_SPACES: tuple[tuple[str, str, int, Mapping[str, object]], ...] = (
    ("llama3.2-1b", "dgx-h100", 8, {}),
    ("llama3-8b", "dgx-h100", 8, {"cp": 1}),
    ("llama3-8b", "dgx-a100", 16, {"micro_batch": 1, "cp": 1}),
    ("gpt3-6.7b", "perlmutter-gpu", 8, {"batch.sequence": 2048, "cp": 1}),
    ("gpt2", "dgx-h100", 4, {"batch.sequence": 1024}),
    ("mixtral-8x7b", "h100-24k", 16, {"micro_batch": 1, "cp": 1, "tp": 4}),
    ("llama3-70b", "dgx-h100", 64, {"tp": 8, "micro_batch": 1}),
    ("qwen3-30b-a3b", "dgx-h100", 16, {"micro_batch": 1, "cp": 1, "tp": 2}),
    ("gpt3-175b", "llama3-24k", 64, {"tp": 8, "batch.sequence": 2048, "cp": 1}),
    ("llama3-8b", "llama3-24k", 32, {"tp": 4, "micro_batch": 1}),
)


def columns() -> None:
    """Memory counted for many plans at once, beside that of each plan alone."""
    count = -(-_PLANS // len(MODELS))
    different = 0
    for name in MODELS:
        model = _transformer(name)
        memory = PlanMemory(model)
        for plan, _ in zip(
            legal_plans(model, random.Random(f"{name} anew")), range(count), strict=False
        ):
            alone = footprint(model, plan, schedule_of(plan))
            different += memory.stage_bytes(plan).tolist() != [one.total for one in alone.stages]
    print(f"{count * len(MODELS)} plans of {len(MODELS)} models: {different} differ")


def bounds() -> None:
    """Both bounds beside the step at unit grain."""
    above, total, least = 0, 0, 1.0
    for name in _BOUNDED_MODELS:
        for machine in _MACHINES:
            model = _transformer(name)
            costs = Remembered(software_costs(load_machine(machine)))
            bound = StepBound(model, costs, Inflation())
            programs = unit_programs(model, costs, Inflation())
            for plan in small_plans(model, random.Random(f"{name} {machine}"), _BOUNDED):
                step_ns, run_ns = programs.step_ns(plan), bound.run_ns(plan)
                above += max(bound.quick_ns(plan), run_ns) > step_ns
                least, total = min(least, run_ns / step_ns), total + 1
    print(f"{total} plans: {above} with a bound above the step; the loosest is {least:.2f} of it")


def exhaustive() -> None:
    """The best of a search beside the best of all plans."""
    for name, machine, num_ranks, keys in _SPACES:
        sizes = {"global_batch": 64, "batch.sequence": 4096}
        model, draft = _transformer(name), PlanDraft().with_keys({**sizes, **keys})
        hardware = with_hosts(load_machine(machine), num_ranks)
        begin_s = time.process_time()
        limits = Limits(time_s=None, gap=0.0)
        found = searched(
            model, draft, hardware, num_ranks=num_ranks, options=SearchOptions(limits=limits)
        )
        took_s = time.process_time() - begin_s
        memory = PlanMemory(model, chip=hardware.chip)
        programs = unit_programs(model, Remembered(software_costs(hardware)), Inflation())
        steps = []
        for plan in plan_space(draft, SpaceLimits.of(model), num_ranks).plans():
            try:
                check_plan(plan, model)
            except WorkloadError:
                continue
            if memory.stage_bytes(plan).max() <= hardware.chip.memory_bytes:
                steps.append(programs.step_ns(plan))
        is_best = min(one.unit_ns or 0 for one in found.leaders) == min(steps)
        print(
            f"{name} on {num_ranks} of {machine}: {len(steps)} plans fit, {found.evaluated.units} "
            f"simulated in {took_s:.1f} s, gap {found.gap}; "
            f"all in {time.process_time() - begin_s - took_s:.0f} s: "
            f"{'the same best' if is_best else 'ANOTHER BEST'}"
        )
        sys.stdout.flush()


def tables() -> None:
    """Placements found in a few seconds, beside what no placement is below."""
    over = []
    for seed in range(_INSTANCES):
        account = accounted(*large(seed, 8), MemoryTier.HBM, MemoryTier.HOST)
        begin_s = time.process_time()
        floor = cast("TableFloor", table_floor(account))
        found = annealed_families(account, time.monotonic() + _TABLES_S)
        placement = found[0][1]
        took_s = time.process_time() - begin_s
        least_ns, what = floor.least_ns, "what none is below"
        if placement.value_ns > (1 + _NEAR) * least_ns:
            least_ns = cast("TableFloor", table_floor(account, whole_s=_WHOLE_S)).least_ns
        if placement.value_ns > (1 + _NEAR) * least_ns:
            least_ns = solved_tables(account, time_s=_PROGRAM_S).value_ns
            what = "what the integer program found"
        over.append(placement.value_ns / least_ns - 1 if placement.fits else float("inf"))
        print(f"{seed}: {over[-1]:+.2%} over {what}, in {took_s:.1f} s")
        sys.stdout.flush()
    near = sum(one <= _NEAR for one in over)
    print(f"{near} of {len(over)} within {_NEAR:.0%}; most {max(over):+.2%}")


def recompute() -> None:
    """Steps of the same module under the same budget, by what each of two chose."""
    if not all(find_spec(name) for name in _PEER_NEEDS):
        print(f"recompute: left out, as it needs {' and '.join(_PEER_NEEDS)}: pip install them")
        return
    from experiments.recompute_peer import RecomputePeers  # on demand: PyTorch, pulp

    costs = software_costs(load_machine("dgx-h100"))
    for name, layers, sequences, sequence, norm in _TRAINED:
        plan = Plan(global_batch=sequences, micro_batch=sequences, sequence=sequence)
        # As PyTorch runs a module that nothing compiled.
        eager = replace(
            plan.implementation, fuses_activations=False, fuses_norms=norm is not Norm.RMS
        )
        plan = replace(plan, implementation=eager)
        model = replace(_transformer(name), num_layers=layers, norm=norm)
        peers = RecomputePeers(model, plan, Prices(costs), costs)
        nothing, every = peers.ran(), peers.everything()
        freed = nothing.peak_bytes - every.peak_bytes
        print(
            f"{layers} layers of {name}, {norm} norms, {sequences} x {sequence}: nothing again "
            f"{nothing.peak_bytes / 1e9:.2f} GB, every layer {every.peak_bytes / 1e9:.2f} GB and "
            f"{every.step_ns / nothing.step_ns - 1:+.2%}"
        )
        for share in _FREED:
            budget = round(nothing.peak_bytes - share * freed)
            for whose, chosen in (
                ("foretrace", peers.ours(nothing, budget)),
                ("sac_ilp", peers.theirs(nothing, budget)),
            ):
                ran = chosen.ran
                longer = "-" if ran is None else f"{ran.step_ns / nothing.step_ns - 1:+.2%}"
                print(
                    f"  {share:.0%} freed: {whose} {longer} in {chosen.took_s:.2f} s: {chosen.what}"
                )
                sys.stdout.flush()


def _transformer(name: str) -> Transformer:
    return cast("Transformer", load_model(name))


_CHECKS: Mapping[str, Callable[[], None]] = {
    one.__name__: one for one in (columns, bounds, exhaustive, tables, recompute)
}


def main() -> None:
    """Check what is named, or everything."""
    for name in sys.argv[1:] or _CHECKS:
        _CHECKS[name]()


if __name__ == "__main__":
    main()
