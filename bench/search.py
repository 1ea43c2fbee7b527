"""Search: how fast plans are listed and bounded, how tight bounds are, and how far a search comes.

    python bench/search.py                a minute: rates, and tightness
    python bench/search.py --whole        also Llama 3 405B on 16,384 GPUs, two minutes on two cores

Rates are plans in a second of processor time, of a process that collects no garbage, as the command
does. Plans at unit grain come after their bounds and ask the same costs, as in a search; the first
few of them pay for most of what the others share. Tightness is a bound over the step at unit grain,
of plans drawn from those that fit.
"""

from __future__ import annotations

import gc
import random
import statistics
import sys
import time
from collections.abc import Sequence
from typing import cast

from foretrace.base import WorkloadError
from foretrace.cost import CostModel, Inflation, Remembered
from foretrace.estimate import software_costs, unit_programs
from foretrace.machine import load_machine
from foretrace.search import Progress, SearchOptions, SpaceLimits, StepBound, plan_space, searched
from foretrace.workload import (
    Plan,
    PlanDraft,
    PlanMemory,
    Transformer,
    check_plan,
    load_model,
)

TARGETS = (
    "targets: 20,000 plans a second of legality and memory, 1,000 of bounds, 300 at unit grain; "
    "Llama 3 405B: gap 1 % in 2 minutes"
)
_SIMULATED, _FEW, _MOST_UNITS = 400, 40, 4_000


def listing(model: Transformer, machine: str, num_ranks: int, draft: PlanDraft) -> tuple[Plan, ...]:
    """Plans that can run and fit, with how many in a second get so far."""
    chip = load_machine(machine).chip
    memory = PlanMemory(model, chip=chip)
    plans = list(plan_space(draft, SpaceLimits.of(model), num_ranks).plans())
    legal = []
    begin_s = both_s = time.process_time()
    for plan in plans:
        try:
            check_plan(plan, model)
            legal.append(plan)
        except WorkloadError:
            pass
    _told("legality", len(plans), begin_s)
    begin_s = time.process_time()
    fit = [plan for plan in legal if memory.stage_bytes(plan).max() <= chip.memory_bytes]
    _told("memory", len(legal), begin_s)
    _told("both, of all plans", len(plans), both_s)
    return tuple(fit)


def rates(model: Transformer, machine: str, num_ranks: int, draft: PlanDraft) -> None:
    """Plans in a second through every rung below the units, and how tight bounds are."""
    costs = Remembered(software_costs(load_machine(machine)))
    fit = listing(model, machine, num_ranks, draft)
    bound = StepBound(model, costs, Inflation())
    begin_s = time.process_time()
    for plan in fit:
        bound.quick_ns(plan)
    _told(f"closed bound, {bound.num_timed} works timed", len(fit), begin_s)
    begin_s = time.process_time()
    for plan in fit:
        bound.quick_ns(plan)
    _told("closed bound again", len(fit), begin_s)
    drawn = random.Random(0).sample(fit, len(fit))
    small = [one for one in drawn if one.num_microbatches * one.pipeline <= _MOST_UNITS]
    tightness(bound, small[:_SIMULATED], model, costs)


def tightness(
    bound: StepBound, plans: Sequence[Plan], model: Transformer, costs: CostModel
) -> None:
    """Bounds over steps at unit grain."""
    begin_s = time.process_time()
    runs = [bound.run_ns(plan) for plan in plans]
    _told("bound of the schedule", len(plans), begin_s)
    programs = unit_programs(model, costs, Inflation(), schedules=bound.schedules)
    begin_s = time.process_time()
    steps = [programs.step_ns(plan) for plan in plans[:_FEW]]
    _told("unit grain, units new, the first", _FEW, begin_s)
    steps += [programs.step_ns(plan) for plan in plans[_FEW:]]
    _told("unit grain, units new", len(plans), begin_s)
    begin_s = time.process_time()
    steps = [programs.step_ns(plan) for plan in plans]
    _told("unit grain again", len(plans), begin_s)
    quick = [bound.quick_ns(plan) / step for plan, step in zip(plans, steps, strict=True)]
    run = [one / step for one, step in zip(runs, steps, strict=True)]
    print(
        f"tightness over {len(plans)} plans: closed median {statistics.median(quick):.3f}, of the "
        f"schedule median {statistics.median(run):.3f}, {min(run):.3f} to {max(run):.3f}"
    )


def _told(what: str, count: int, begin_s: float) -> None:
    took_s = time.process_time() - begin_s
    print(f"{what:36}{count:9,} plans{count / max(took_s, 1e-9):12,.0f} a second")
    sys.stdout.flush()


def whole(model: Transformer, draft: PlanDraft) -> None:
    """Llama 3 405B on 16,384 GPUs, with the gap as it falls."""
    seen, begin_s = 0, time.monotonic()

    def told(progress: Progress) -> None:
        nonlocal seen
        if progress.gap is not None and progress.done >= seen:
            seen = progress.done + 50
            print(f"  after {time.monotonic() - begin_s:3.0f} s: gap {100 * progress.gap:.2f} %")
            sys.stdout.flush()

    machine = load_machine("llama3-24k")
    found = searched(
        model, draft, machine, num_ranks=16_384, options=SearchOptions(workers=2, progress=told)
    )
    print(f"{found.headline}\n{found.evaluated}, {found.spent_s:.0f} s, {found.grain_error:.3%}")


def main() -> None:
    """Measure and print."""
    print(TARGETS)
    gc.disable()
    sizes = {"global_batch": 2048, "batch.sequence": 8192}
    model, draft = cast("Transformer", load_model("llama3-405b")), PlanDraft().with_keys(sizes)
    few = draft.with_keys({"tp": 8, "micro_batch": 1})
    listing(model, "llama3-24k", 16_384, draft)
    rates(model, "llama3-24k", 16_384, few)
    if "--whole" in sys.argv:
        whole(model, draft)


if __name__ == "__main__":
    main()
