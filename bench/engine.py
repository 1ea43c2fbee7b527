"""Speed of the engines on one core, and size of the static one: nodes per second, bytes per node.

    python bench/engine.py                 print, beside the stored baseline
    python bench/engine.py --store         make this run the baseline

Graphs of 10 million nodes and 2 edges per node, made here. Their predecessors are `local`
(among the 16 nodes before, as along a host thread or a stream), `window` (among the 20,000
before, about what a multi-rank graph has between its lanes) or `random` (anywhere before, the
worst case: nearly every read misses the caches). `shared cores` is the engine for hosts whose
threads share cores: a tenth as many nodes, on 8 threads of 4 ranks that wait for each other now
and then, on 2 cores. Times are medians, in process, after imports
and compilation; `memory passes` gives them in units of one numpy pass over the durations, which
compares better between machines than seconds do.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np

from foretrace.analyze import Intervals
from foretrace.base import Int64s
from foretrace.graph import NO_COLLECTIVE, Collectives, EdgeKind, ExecutionGraph, Lane, NodeKind
from foretrace.simulate import Cores, simulate, simulate_shared

BASELINE = Path(__file__).parent / "baselines" / "engine.json"
SPREAD_BY_SHAPE = {"local": 16, "window": 20_000, "random": None}
NUM_THREADS = 8
TARGET_NODES_PER_S = 30e6
TARGET_BYTES_PER_NODE = 100
Row = dict[str, float]


def main() -> None:
    """Measure, print, and store or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=10_000_000)
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    arguments = parser.parse_args()

    rows = {
        shape: engine_row(arguments.nodes, shape, arguments.repeat) for shape in SPREAD_BY_SHAPE
    }
    rows["shared cores"] = shared_row(arguments.nodes // 10, arguments.repeat)
    rows["union of spans"] = union_row(arguments.nodes, arguments.repeat)
    print_table(rows, stored(arguments.nodes))
    if arguments.store:
        BASELINE.parent.mkdir(exist_ok=True)
        BASELINE.write_text(json.dumps({"nodes": arguments.nodes, "rows": rows}, indent=2) + "\n")


def engine_row(num_nodes: int, shape: str, repeat: int) -> Row:
    """One simulation of one graph."""
    graph = random_graph(num_nodes, SPREAD_BY_SHAPE[shape])
    timeline = simulate(graph)  # compiles
    median_s = median_time_s(lambda: simulate(graph), repeat)
    columns = [getattr(graph, field.name) for field in fields(graph)]
    graph_bytes = sum(column.nbytes for column in columns if isinstance(column, np.ndarray))
    return {
        "nodes_per_s": num_nodes / median_s,
        "edges_per_node": graph.num_edges / num_nodes,
        "bytes_per_node": graph_bytes / num_nodes,
        "timeline_bytes_per_node": (timeline.start_ns.nbytes + timeline.end_ns.nbytes) / num_nodes,
        "memory_passes": median_s / memory_pass_s(graph.measured_ns, repeat),
    }


def shared_row(num_nodes: int, repeat: int) -> Row:
    """One simulation of threads that share two cores."""
    graph = threads_graph(num_nodes)
    cores = Cores.of(2)
    simulate_shared(graph, None, cores)  # compiles
    median_s = median_time_s(lambda: simulate_shared(graph, None, cores), repeat)
    return {
        "nodes_per_s": num_nodes / median_s,
        "edges_per_node": graph.num_edges / num_nodes,
        "memory_passes": median_s / memory_pass_s(graph.measured_ns, repeat),
    }


def union_row(num_spans: int, repeat: int) -> Row:
    """Union of as many spans as nodes, unsorted as two streams one after the other."""
    rng = np.random.default_rng(1)
    start_ns = np.concatenate([np.cumsum(rng.integers(1, 2000, num_spans // 2)) for _ in range(2)])
    end_ns = start_ns + rng.integers(0, 2000, len(start_ns))
    Intervals.union_of(start_ns, end_ns)  # compiles
    median_s = median_time_s(lambda: Intervals.union_of(start_ns, end_ns), repeat)
    return {
        "nodes_per_s": len(start_ns) / median_s,
        "memory_passes": median_s / memory_pass_s(start_ns, repeat),
    }


def random_graph(num_nodes: int, spread: int | None) -> ExecutionGraph:
    """A graph of 0 to 4 edges per node, 2 on average, up to `spread` nodes back."""
    rng = np.random.default_rng(0)
    degree = np.minimum(rng.integers(0, 5, num_nodes, dtype=np.int64), np.arange(num_nodes))
    owner = np.repeat(np.arange(num_nodes, dtype=np.int64), degree)
    reach = owner if spread is None else np.minimum(owner, spread)
    back = 1 + (rng.random(len(owner)) * reach).astype(np.int64)
    predecessor = np.maximum(owner - back, 0).astype(np.int32)
    return ExecutionGraph(
        kind=np.full(num_nodes, NodeKind.KERNEL, dtype=np.uint8),
        rank=np.zeros(num_nodes, dtype=np.int32),
        lane=np.zeros(num_nodes, dtype=np.int32),
        name=np.zeros(num_nodes, dtype=np.int32),
        signature=np.full(num_nodes, -1, dtype=np.int32),
        step=np.zeros(num_nodes, dtype=np.int32),
        operator=np.full(num_nodes, -1, dtype=np.int32),
        operator_signature=np.full(num_nodes, -1, dtype=np.int32),
        part=np.zeros(num_nodes, dtype=np.uint8),
        phase=np.zeros(num_nodes, dtype=np.uint8),
        layer=np.full(num_nodes, -1, dtype=np.int16),
        microbatch=np.full(num_nodes, -1, dtype=np.int16),
        collective=np.full(num_nodes, NO_COLLECTIVE, dtype=np.int32),
        measured_ns=rng.integers(0, 100_000, num_nodes),
        inflation=np.ones(num_nodes, dtype=np.float32),
        first_edge=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(degree))),
        predecessor=predecessor,
        edge_kind=np.full(len(owner), EdgeKind.STREAM, dtype=np.uint8),
        lag_ns=np.full(len(owner), 1000, dtype=np.int32),
        names=("kernel",),
        lanes=(Lane(rank=0, is_device=True, process=-1, device=0, number=7),),
        step_names=("step",),
        collectives=Collectives.of(()),
        constants=(),
    )


def threads_graph(num_nodes: int) -> ExecutionGraph:
    """Host work of threads in turn; each node follows its thread's last, one in eight another's."""
    rng = np.random.default_rng(2)
    node = np.arange(num_nodes, dtype=np.int64)
    follows = node >= NUM_THREADS
    waits = follows & (rng.random(num_nodes) < 1 / 8)
    other = node - NUM_THREADS + rng.integers(1, NUM_THREADS, num_nodes)
    source = np.concatenate([node[follows] - NUM_THREADS, other[waits]])
    target = np.concatenate([node[follows], node[waits]])
    order = np.argsort(target, kind="stable")
    plain = random_graph(num_nodes, 1)
    return replace(
        plain,
        kind=np.full(num_nodes, NodeKind.HOST_SEGMENT, dtype=np.uint8),
        rank=(node % NUM_THREADS // 2).astype(np.int32),
        lane=(node % NUM_THREADS).astype(np.int32),
        first_edge=np.searchsorted(target[order], np.arange(num_nodes + 1)).astype(np.int64),
        predecessor=source[order].astype(np.int32),
        edge_kind=np.full(len(order), EdgeKind.HOST_ORDER, dtype=np.uint8),
        lag_ns=np.zeros(len(order), dtype=np.int32),
        lanes=tuple(
            Lane(rank=thread // 2, is_device=False, process=-1, device=-1, number=thread)
            for thread in range(NUM_THREADS)
        ),
    )


def memory_pass_s(values: Int64s, repeat: int) -> float:
    """Median time of one numpy addition over an array, into another."""
    out = np.empty_like(values)
    return median_time_s(lambda: np.add(values, 1, out=out), repeat)


def median_time_s(run: Callable[[], object], repeat: int) -> float:
    """Median wall time of several runs."""
    times_s = []
    for _ in range(repeat):
        begin_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - begin_s)
    return statistics.median(times_s)


def stored(num_nodes: int) -> dict[str, Row]:
    """The baseline's rows, if it is of as many nodes."""
    if not BASELINE.exists():
        return {}
    baseline = json.loads(BASELINE.read_text())
    rows: dict[str, Row] = baseline["rows"]
    return rows if baseline["nodes"] == num_nodes else {}


def print_table(rows: dict[str, Row], baseline: dict[str, Row]) -> None:
    """Each row beside its baseline and the targets."""
    print(
        f"targets: {TARGET_NODES_PER_S / 1e6:.0f} M nodes/s, "
        f"{TARGET_BYTES_PER_NODE} bytes per node with edges and timeline"
    )
    print(f"{'':16}{'M nodes/s':>10}{'baseline':>10}{'passes':>8}{'baseline':>10}{'B/node':>8}")
    for name, row in rows.items():
        old = baseline.get(name)
        old_speed = f"{old['nodes_per_s'] / 1e6:10.1f}" if old else f"{'-':>10}"
        old_passes = f"{old['memory_passes']:10.1f}" if old else f"{'-':>10}"
        size = row.get("bytes_per_node", 0) + row.get("timeline_bytes_per_node", 0)
        shown_size = f"{size:8.1f}" if size else f"{'-':>8}"
        print(
            f"{name:16}{row['nodes_per_s'] / 1e6:10.1f}{old_speed}"
            f"{row['memory_passes']:8.1f}{old_passes}{shown_size}"
        )


if __name__ == "__main__":
    main()
