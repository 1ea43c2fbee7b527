"""Unit grain beside kernel grain: how far the step is off, and how long both take.

    python bench/units.py                 every plan, and Llama 3 405B on 16,384 GPUs

Each plan's step is simulated kernel by kernel, and once more with one node per unit, timed on
fragments. Printed: the error of every plan, mean, worst and Spearman's rank correlation; for
Llama 3 405B the seconds of a simulation once fragments are made.
"""

from __future__ import annotations

import statistics
import sys
import time
from dataclasses import replace

import numpy as np
from estimate import PLAN as LLAMA_PLAN
from scipy.stats import spearmanr

from foretrace.analyze import windows
from foretrace.cost import CostModel, Inflation, step_costs
from foretrace.estimate import run_units, simulated_step
from foretrace.machine import load_machine
from foretrace.simulate import simulate
from foretrace.workload import (
    Overlap,
    Plan,
    Sharding,
    blocks_of_model,
    check_plan,
    layout,
    load_model,
    unit_layout,
)

TARGETS = "targets: mean 1 %, worst 3 %, Spearman 0.999; Llama 3 405B simulated in 3 ms"
MACHINE = "llama3-24k"
BASE = Plan(global_batch=64, sequence=4096, micro_batch=1)
OFF = Overlap(gradients=False, parameters=False, pipeline=False)
PIPED = {
    "1f1b": {"schedule": "1f1b"},
    "gpipe": {"schedule": "gpipe"},
    "interleaved": {"schedule": "interleaved", "num_chunks": 2},
    "zb-h1": {"schedule": "zb-h1"},
    "dualpipe": {"schedule": "dualpipe"},
}


def plans() -> list[tuple[str, Plan]]:
    """Models and plans: all schedules and levels of sharding, dense and with experts."""
    return [*piped(), *sharded(), *along_sequences(), *with_experts(), *large(), *launch_bound()]


def piped() -> list[tuple[str, Plan]]:
    """Every schedule, with one and with several data-parallel ranks."""
    found = []
    for name in ("llama3-8b", "gpt3-6.7b"):
        for options in PIPED.values():
            for data, sharding in ((1, Sharding.NONE), (4, Sharding.ZERO1), (4, Sharding.ZERO2)):
                plan = replace(BASE, tensor=2, pipeline=4, data=data, sharding=sharding, **options)
                plan = replace(plan, sequence=2048, sequence_parallel=name == "llama3-8b")
                found.append((name, plan))
    return found


def sharded() -> list[tuple[str, Plan]]:
    """Every level of sharding."""
    found = []
    for sharding in (Sharding.NONE, Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3):
        plan = replace(BASE, data=8, sharding=sharding)
        found += [("llama3-8b", replace(plan, data=data)) for data in (2, 8, 32)]
        found.append(("llama3.2-1b", replace(plan, overlap=OFF)))
        found.append(("gpt3-xl", replace(plan, tensor=2, sequence=2048)))
    return found


def along_sequences() -> list[tuple[str, Plan]]:
    """Context parallelism."""
    found = []
    for context, tensor in ((2, 1), (4, 2), (8, 4)):
        plan = replace(BASE, context=context, tensor=tensor, sequence=8192, data=2)
        found.append(("llama3-8b", plan))
        found.append(("llama3-8b", replace(plan, sharding=Sharding.ZERO3)))
        found.append(("llama3-8b", replace(plan, pipeline=2, schedule="1f1b")))
    return found


def with_experts() -> list[tuple[str, Plan]]:
    """Expert parallelism."""
    found = []
    for expert in (2, 4, 8):
        plan = replace(BASE, expert=expert, data=8, sharding=Sharding.ZERO1)
        piped = (replace(plan, pipeline=4, schedule=schedule) for schedule in ("1f1b", "dualpipe"))
        found += [("mixtral-8x7b", one) for one in (plan, *piped)]
    return found


def large() -> list[tuple[str, Plan]]:
    """Llama 3 70B."""
    plan = replace(BASE, tensor=8, data=2)
    gathered = replace(plan, tensor=4, pipeline=8, sharding=Sharding.ZERO3)
    piped = (replace(gathered, schedule=schedule) for schedule in ("1f1b", "gpipe", "zb-h1"))
    alone = replace(plan, data=8, sharding=Sharding.ZERO3)
    return [
        ("llama3-70b", one) for one in (replace(plan, pipeline=4, schedule="1f1b"), alone, *piped)
    ]


def launch_bound() -> list[tuple[str, Plan]]:
    """Kernels shorter than their launches."""
    found = []
    for sharding in (Sharding.NONE, Sharding.ZERO2, Sharding.ZERO3):
        plan = replace(BASE, data=4, sequence=256, sharding=sharding)
        found += [("gpt2", plan), ("gpt2", replace(plan, pipeline=4, schedule="1f1b"))]
    return found


def both(name: str, plan: Plan, model: CostModel) -> tuple[int, int, int, int]:
    """A step kernel by kernel and at unit grain, in ns; nodes of both."""
    shapes = load_model(name)
    check_plan(plan, shapes)
    blocks = blocks_of_model(shapes, plan)
    laid_out = layout(blocks, plan)
    kernels = simulated_step(laid_out.graph, model, Inflation())
    units = run_units(unit_layout(blocks, plan), model, Inflation())
    return (
        int(windows(kernels.timeline).duration_ns[0]),
        units.step_ns,
        laid_out.graph.num_nodes,
        units.laid_out.graph.num_nodes,
    )


def main() -> None:
    """Measure and print."""
    model = step_costs(load_machine(MACHINE))
    print(TARGETS)
    kernels, units = [], []
    for name, plan in plans():
        kernel_ns, unit_ns, num_kernels, num_units = both(name, plan, model)
        kernels.append(kernel_ns)
        units.append(unit_ns)
        what = (
            f"tp{plan.tensor} cp{plan.context} pp{plan.pipeline} dp{plan.data} ep{plan.expert} "
            f"{plan.schedule} {plan.sharding}"
        )
        print(
            f"{name:14}{what:44}{kernel_ns / 1e6:12,.2f} ms{unit_ns / kernel_ns - 1:+9.3%}"
            f"{num_kernels:12,}{num_units:10,}"
        )
        sys.stdout.flush()
    error = np.abs(np.array(units) / np.array(kernels) - 1)
    print(
        f"{len(error)} plans: mean {error.mean():.3%}, worst {error.max():.3%}, "
        f"Spearman {spearmanr(kernels, units).statistic:.6f}"
    )
    llama(model)


def llama(model: CostModel) -> None:
    """Llama 3 405B on 16,384 GPUs."""
    blocks = blocks_of_model(load_model("llama3-405b"), LLAMA_PLAN)
    kernels = simulated_step(layout(blocks, LLAMA_PLAN).graph, model, Inflation())
    begin_s = time.process_time()
    units = run_units(unit_layout(blocks, LLAMA_PLAN), model, Inflation())
    made_s = time.process_time() - begin_s
    graph, took_s = units.laid_out.graph, []
    for _ in range(11):
        begin_s = time.perf_counter()
        simulate(graph, units.duration_ns)
        took_s.append(time.perf_counter() - begin_s)
    kernel_ns = int(windows(kernels.timeline).duration_ns[0])
    print(
        f"llama3-405b on 16,384: {kernel_ns / 1e6:,.2f} ms, {units.step_ns / kernel_ns - 1:+.3%}; "
        f"{graph.num_nodes:,} nodes, made in {1e3 * made_s:.0f} ms, simulated in "
        f"{1e3 * statistics.median(took_s):.2f} ms"
    )


if __name__ == "__main__":
    main()
