"""Speed and memory of Chakra files: a million nodes written and read.

    python bench/chakra.py                print, beside the stored baseline
    python bench/chakra.py --store        make this run the baseline
    python bench/chakra.py --nodes N      another size; no baseline

Cases: a generated graph of so many nodes on one rank (launches and kernels in turn, a collective
per hundred) written as one file; the file read whole; read in batches, whose memory must not grow
with it; and the graph made of it again. Every case has a process of its own, so that its peak
memory is its own; times are of one pass, after imports and compilation.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from foretrace.exchange import write_chakra
from foretrace.graph import (
    Collectives,
    EdgeConstant,
    EdgeKind,
    ExecutionGraph,
    Lane,
    NodeKind,
    chakra_recording,
)
from foretrace.trace import chakra_batches, read_chakra

BASELINE = Path(__file__).parent / "baselines" / "chakra.json"
MILLION = 1_000_000
SMALL = 2_000  # nodes of the pass that compiles
PER_COLLECTIVE = 100
CASES = ("write", "read", "read in batches", "graph")


def graph_of(num_nodes: int) -> ExecutionGraph:
    """Launches and what they start in turn, on one thread and one stream."""
    pairs = num_nodes // 2
    kind = np.tile(np.array([NodeKind.LAUNCH, NodeKind.KERNEL], np.uint8), pairs)
    kind[0] = NodeKind.RANK_START
    is_launch = np.arange(len(kind)) % 2 == 0
    # Every so many pairs the kernel is an arrival, a hub and a finish take two nodes behind it.
    previous_launch = np.maximum(np.arange(len(kind)) - 2, 0)
    rows = np.arange(len(kind))
    counts = np.where(rows == 0, 0, np.where(is_launch, 1, np.where(rows == 1, 1, 2)))
    first = np.append(0, np.cumsum(counts))
    predecessor = np.zeros(first[-1], np.int32)
    edge_kind = np.zeros(first[-1], np.uint8)
    launches = rows[is_launch & (rows > 0)]
    predecessor[first[launches]] = previous_launch[launches]
    kernels = rows[~is_launch]
    predecessor[first[kernels]] = kernels - 1
    edge_kind[first[kernels]] = EdgeKind.LAUNCH
    edge_kind[first[1]] = EdgeKind.STATED  # what follows the start is no launch's
    later = kernels[1:]
    predecessor[first[later] + 1] = later - 2
    edge_kind[first[later] + 1] = EdgeKind.STREAM
    names = (*(f"kernel_{at}<float, {at}>" for at in range(300)), "cudaLaunchKernel", "aten::mm")
    shapes = tuple(f'{{"dims":[[{at},1024],[1024,{at}]]}}' for at in range(500))
    nodes = len(kind)
    draw = np.random.default_rng(0)
    return ExecutionGraph(
        kind=kind,
        rank=np.zeros(nodes, np.int32),
        lane=(~is_launch).astype(np.int32),
        name=np.where(is_launch, 300, draw.integers(0, 300, nodes)).astype(np.int32),
        signature=np.full(nodes, -1, np.int32),
        step=np.zeros(nodes, np.int32),
        operator=np.full(nodes, 301, np.int32),
        operator_signature=(302 + draw.integers(0, 500, nodes)).astype(np.int32),
        part=np.full(nodes, 3, np.uint8),
        phase=np.full(nodes, 2, np.uint8),
        layer=(rows // PER_COLLECTIVE % 96).astype(np.int16),
        microbatch=np.zeros(nodes, np.int16),
        collective=np.full(nodes, -1, np.int32),
        measured_ns=draw.integers(500, 200_000, nodes),
        inflation=np.ones(nodes, np.float32),
        first_edge=first.astype(np.int64),
        predecessor=predecessor,
        edge_kind=edge_kind,
        lag_ns=np.zeros(len(predecessor), np.int32),
        names=(*names, *shapes),
        lanes=(Lane(0, False, 1, -1, 1), Lane(0, True, -1, 0, 7)),  # noqa: FBT003  a plain row
        step_names=("ProfilerStep#0",),
        collectives=Collectives.of(()),
        constants=tuple(EdgeConstant(kind, 0, 0, 0, 0) for kind in EdgeKind),
    )


def written(folder: Path, num_nodes: int) -> Callable[[], int]:
    """A pass that writes; the graph is made before."""
    graph = graph_of(num_nodes)
    return lambda: write_chakra(folder / "job", graph).num_nodes


def passes(case: str, folder: Path, num_nodes: int) -> Callable[[], int]:
    """A pass of a case; how many nodes it took."""
    path = folder / "job.0.et"
    if case == "write":
        return written(folder, num_nodes)
    if case == "read":
        return lambda: len(read_chakra(path).nodes)
    if case == "read in batches":
        return lambda: sum(len(batch) for batch in chakra_batches(path))
    trace = read_chakra(path)
    return lambda: len(chakra_recording([trace]).graph.kind)


def peak_bytes() -> int:
    """Most memory that this process has held."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(case: str, folder: Path, num_nodes: int) -> dict[str, float]:
    """One case, in this process."""
    with tempfile.TemporaryDirectory() as small:
        write_chakra(Path(small) / "job", graph_of(SMALL))
        passes(case, Path(small), SMALL)()
    run = passes(case, folder, num_nodes)
    before = peak_bytes()
    begin = time.perf_counter()
    count = run()
    taken = time.perf_counter() - begin
    return {"nodes_per_s": count / taken, "grown_mb": (peak_bytes() - before) / 1e6}


def main() -> None:
    """Run all cases and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=MILLION)
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--case", nargs=2, metavar=("CASE", "FOLDER"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.case:
        print(json.dumps(measured(asked.case[0], Path(asked.case[1]), asked.nodes)))
        return
    stored = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    rows: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            command = [sys.executable, __file__, "--nodes", str(asked.nodes)]
            ran = subprocess.run([*command, "--case", case, folder], capture_output=True,
                                 text=True, check=True)  # fmt: skip
            rows[case] = json.loads(ran.stdout)
            before = stored.get(case, {}).get("nodes_per_s") if asked.nodes == MILLION else None
            beside = f"   stored {before:10,.0f}" if before else ""
            print(f"{case:16} {rows[case]['nodes_per_s']:10,.0f} nodes/s"
                  f" {rows[case]['grown_mb']:8,.0f} MB more{beside}", flush=True)  # fmt: skip
        size = (Path(folder) / "job.0.et").stat().st_size
        print(f"file of {size / 1e6:,.0f} MB, {size / asked.nodes:,.0f} bytes a node")
    if asked.store and asked.nodes == MILLION:
        BASELINE.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
