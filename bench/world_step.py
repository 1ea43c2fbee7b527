"""Llama 3 run by one process as 1,024 ranks, held against an estimate of the same plan and machine.

`examples/llama-fsdp2-tp/train.py` runs under `foretrace run --device fake`; the estimate has the
plan that the script follows. Printed are both steps, their difference, and what operators and
collectives of either take on the device, the largest differences first.

    python bench/world_step.py [--size 8b 70b] [--steps 2]
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import foretrace as ft
from foretrace.graph import NodeKind, Timeline
from foretrace.machine import load_machine

SCRIPT = Path(__file__).parents[1] / "examples" / "llama-fsdp2-tp" / "train.py"
WORLD, MACHINE = 1024, "dgx-h100"
# What the script does: eager PyTorch, every operator its own kernel, nothing joined but norms,
# attention and the optimizer; exchanges of tensor parallelism are waited for at once.
PLAN = {
    "parallelism.tp": 8,
    "parallelism.sequence_parallel": True,
    "batch.global_batch": WORLD // 8,
    "batch.micro_batch": 1,
    "batch.sequence": 8192,
    "sharding.level": "zero3",
    "memory.recompute": "none",
    "overlap.tensor_backward": False,
    "implementation.copies_shards": True,
    "implementation.fuses_projections": False,
    "implementation.fuses_activations": False,
    "implementation.fuses_rotary": False,
    "implementation.fuses_loss": False,
}


def by_operator(timeline: Timeline) -> dict[str, tuple[int, int]]:
    """Operator or collective -> how many there are in the last step, and their ns."""
    graph = timeline.graph
    took = defaultdict[str, list[int]](list)
    spent_ns = timeline.end_ns - timeline.start_ns
    kernels = (graph.kind == NodeKind.KERNEL) & (graph.rank == 0) & (graph.step == graph.step.max())
    for node in np.flatnonzero(kernels).tolist():
        name = graph.operator[node] if graph.operator[node] >= 0 else graph.name[node]
        took[graph.names[name]].append(int(spent_ns[node]))
    ends = (graph.kind == NodeKind.FINISH) & (graph.rank == 0) & (graph.step == graph.step.max())
    for node in np.flatnonzero(ends).tolist():
        one = graph.collectives[graph.collective[node]]
        took[f"{one.kind.in_tables} of {len(one.ranks)}"].append(int(spent_ns[node]))
    return {name: (len(each), sum(each)) for name, each in took.items()}


def main() -> None:
    """Run both, and print what differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", nargs="+", default=["8b", "70b"])
    parser.add_argument("--steps", type=int, default=2)
    given = parser.parse_args()
    for size in given.size:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as out:
            found = ft.run(
                SCRIPT, ("--size", size), world=WORLD, out=out, machine=load_machine(MACHINE),
                steps=given.steps,
            )  # fmt: skip
        wall = time.monotonic() - begun
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        expected = ft.estimate(f"llama3-{size}", PLAN, MACHINE, num_ranks=WORLD)
        _say(
            f"{size}: {wall:.1f} s wall, {used.ru_utime + used.ru_stime:.1f} s of processors "
            f"by all ranks so far, {used.ru_maxrss / 2**20:.2f} GiB at most in one; step "
            f"{found.step_ns / 1e6:.1f} ms, estimate {expected.step_ns / 1e6:.1f} ms "
            f"({found.step_ns / expected.step_ns - 1:+.1%})"
        )
        ours, theirs = by_operator(found.timeline), by_operator(expected.timeline)
        rows = [(name, ours.get(name, (0, 0)), theirs.get(name, (0, 0))) for name in ours | theirs]
        for name, (num, ns), (num_there, ns_there) in sorted(
            rows, key=lambda row: -abs(row[1][1] - row[2][1])
        ):
            _say(f"  {name:45}{num:6}{ns / 1e6:10.2f} ms{num_there:6}{ns_there / 1e6:10.2f} ms")


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
