"""Speed and size of layouts: seconds for a 16,384-GPU step, growth with ranks and with layers.

    python bench/estimate.py                 print, beside the stored baseline
    python bench/estimate.py --store         make this run the baseline

Llama 3 405B under TP 8 and PP 16, interleaved, with the optimizer's states divided. Every row runs
in a process of its own, whose largest resident size is the memory shown; what Python, numpy and
numba take by themselves is the row `nothing`. Times are seconds of one core, after imports and
after a small layout has loaded the compiled loops; folded rows are medians of `--repeat` runs.
`us per rank` and `us per layer` do not grow where time is linear.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from foretrace.cost import FittedCosts, graph_costs
from foretrace.machine import Machine, load_machine
from foretrace.simulate import simulate
from foretrace.workload import (
    Plan,
    Sharding,
    Transformer,
    blocks_of_model,
    layout,
    load_model,
)

BASELINE = Path(__file__).parent / "baselines" / "estimate.json"
TARGETS = (
    "targets: 16,384 folded laid out in 0.15 s, under 1 s in all, 1,024 unfolded under 60 s and "
    "8 GiB"
)
MICROBATCHES = 16
PLAN = Plan(
    tensor=8,
    pipeline=16,
    data=128,
    global_batch=128 * MICROBATCHES,
    sequence=8192,
    schedule="interleaved",
    num_chunks=7,
    sequence_parallel=True,
    sharding=Sharding.ZERO1,
    bucket_bytes=1_000_000_000,
)
SMALL = Plan(tensor=2, pipeline=2, global_batch=4)
# Data-parallel copies of 128 ranks each, and layers of a pipeline of 16 stages with one chunk.
COPIES = (1, 2, 4, 8)
LAYERS = (32, 64, 128, 256)
ROWS = (
    "nothing",
    "16,384 folded",
    *(f"{128 * copies:,} unfolded" for copies in COPIES),
    *(f"{layers} layers folded" for layers in LAYERS),
)
Row = dict[str, float]


def main() -> None:
    """Measure, print, and store or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    parser.add_argument("--row", choices=ROWS, help="measure one row here, print it as JSON")
    arguments = parser.parse_args()

    if arguments.row:
        print(json.dumps(row(arguments.row, arguments.repeat)))
        return
    rows = {name: row_apart(name, arguments.repeat) for name in ROWS}
    print_table(rows, stored())
    if arguments.store:
        BASELINE.parent.mkdir(exist_ok=True)
        BASELINE.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


def row_apart(name: str, repeat: int) -> Row:
    """One row, measured in a process of its own."""
    command = [sys.executable, __file__, "--row", name, "--repeat", str(repeat)]
    found = subprocess.run(command, check=True, capture_output=True, text=True)
    measured: Row = json.loads(found.stdout)
    return measured


def row(name: str, repeat: int) -> Row:
    """One row, measured here."""
    llama, machine = load_model("llama3-405b"), load_machine("llama3-24k")
    if not isinstance(llama, Transformer):
        raise TypeError("llama3-405b is expected to be a transformer")
    one_step(llama, SMALL, machine, folded=True)  # loads compiled loops and fitted costs
    if name == "nothing":
        return {"peak_bytes": peak_bytes()}
    number = int(name.split(maxsplit=1)[0].replace(",", ""))
    if name.endswith("layers folded"):
        plan = replace(PLAN, num_chunks=1, schedule="1f1b")
        return medians(replace(llama, num_layers=number), plan, machine, repeat=repeat)
    if name.endswith("unfolded"):
        copies = number // 128
        plan = replace(PLAN, data=copies, global_batch=copies * MICROBATCHES)
        measured = one_step(llama, plan, machine, folded=False)
        return {**measured, "ranks": number, "peak_bytes": peak_bytes()}
    return medians(llama, PLAN, machine, repeat=repeat)


def medians(model: Transformer, plan: Plan, machine: Machine, *, repeat: int) -> Row:
    """Median times of several folded steps."""
    found = [one_step(model, plan, machine, folded=True) for _ in range(repeat)]
    middle = {key: statistics.median(one[key] for one in found) for key in found[0]}
    return {**middle, "layers": model.num_layers, "peak_bytes": peak_bytes()}


def one_step(model: Transformer, plan: Plan, machine: Machine, *, folded: bool) -> Row:
    """Times of everything between a plan and a timeline; costs are those of every stage's rank."""
    begin_s = time.process_time()
    laid_out = layout(blocks_of_model(model, plan), plan, folded=folded)
    laid_s = time.process_time()
    graph = laid_out.graph
    duration_ns = graph_costs(graph, FittedCosts(machine)).duration_ns if folded else None
    costed_s = time.process_time()
    simulate(graph, duration_ns)
    end_s = time.process_time()
    return {
        "nodes": graph.num_nodes,
        "layout_s": laid_s - begin_s,
        "costs_s": costed_s - laid_s,
        "simulation_s": end_s - costed_s,
        "total_s": end_s - begin_s,
    }


def peak_bytes() -> int:
    """Largest resident size of this process so far."""
    kibibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return kibibytes * 1024


def stored() -> dict[str, Row]:
    """The baseline's rows."""
    if not BASELINE.exists():
        return {}
    rows: dict[str, Row] = json.loads(BASELINE.read_text())["rows"]
    return rows


def print_table(rows: dict[str, Row], baseline: dict[str, Row]) -> None:
    """Each row beside its baseline and the targets."""
    print(TARGETS)
    heads = ("nodes", "layout s", "costs s", "simulate", "total s", "baseline", "GiB")
    print(f"{'':20}" + "".join(f"{head:>11}" for head in heads) + f"{'us per ...':>20}")
    for name, one in rows.items():
        peak = f"{one['peak_bytes'] / 2**30:11.2f}"
        if "total_s" not in one:
            print(f"{name:20}" + " " * 66 + peak)
            continue
        old = baseline.get(name)
        before = f"{old['total_s']:11.3f}" if old else f"{'-':>11}"
        times = "".join(
            f"{one[key]:11.3f}" for key in ("layout_s", "costs_s", "simulation_s", "total_s")
        )
        print(f"{name:20}{one['nodes']:11,.0f}{times}{before}{peak}{per_unit(one):>20}")


def per_unit(one: Row) -> str:
    """Layout time over ranks, or over layers."""
    unit = "ranks" if "ranks" in one else "layers"
    return f"{1e6 * one['layout_s'] / one[unit]:,.0f} per {unit[:-1]}"


if __name__ == "__main__":
    main()
