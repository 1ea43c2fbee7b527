"""Time of each analysis on a public trace of eight ranks, and on a graph of two million nodes.

    python bench/analyses.py TRACES             print, beside the stored baseline
    python bench/analyses.py TRACES --store     make this run the baseline

TRACES is the folder of the eight files of one step. The large graph is that step again and again,
each rank's next one begun by the end of its last. Times are medians, in process, after imports and
compilation, of the replayed timeline.
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

from foretrace.analyze import (
    breakdown,
    compare,
    critical_path,
    diagnosis,
    effect,
    idle,
    operators,
    sensitivity,
    slack_ns,
    stragglers,
    what_helps,
)
from foretrace.base import Int64s
from foretrace.graph import (
    Collectives,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    Timeline,
    build_recording,
)
from foretrace.simulate import simulate
from foretrace.trace import load_traces

BASELINE = Path(__file__).parent / "baselines" / "analyses.json"
TARGET_S = {"trace": 1.0, "large": 10.0}  # all analyses together
NODES_OF_LARGE = 2_000_000
ANALYSES: dict[str, Callable[[Timeline, str], object]] = {
    "critical path": lambda timeline, step: critical_path(timeline, step=step),
    "critical path as JSON": lambda timeline, step: critical_path(timeline, step=step).as_json(),
    "slack": lambda timeline, step: slack_ns(timeline, step=step),
    "sensitivity": lambda timeline, step: sensitivity(timeline, step=step),
    "what helps": lambda timeline, step: what_helps(sensitivity(timeline, step=step)),
    "one change": lambda timeline, step: effect(timeline, "host=0.8", step=step),
    "breakdown": lambda timeline, _: breakdown(timeline),
    "idle causes": lambda timeline, _: idle(timeline),
    "stragglers": lambda timeline, _: stragglers(timeline),
    "diagnosis": lambda timeline, _: diagnosis(timeline),
    "operators": lambda timeline, step: operators(timeline, step=step),
    "compare with itself": lambda timeline, _: compare(timeline, timeline),
}
Row = dict[str, float]


def main() -> None:
    """Measure, print, and store or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    arguments = parser.parse_args()

    graph = build_recording(load_traces(arguments.traces)).graph
    times = NODES_OF_LARGE // graph.num_nodes + 1
    rows = {
        "trace": measured(simulate(graph), arguments.repeat),
        "large": measured(simulate(repeated(graph, times)), arguments.repeat),
    }
    print_table(rows, json.loads(BASELINE.read_text()) if BASELINE.exists() else {})
    if arguments.store:
        BASELINE.write_text(json.dumps(rows, indent=2) + "\n")


def measured(timeline: Timeline, repeat: int) -> Row:
    """Seconds of each analysis of the last step, which all of the graph leads to."""
    step = timeline.graph.step_names[-1]
    return {"nodes": timeline.graph.num_nodes} | {
        name: median_time_s(lambda run=run: run(timeline, step), repeat)  # type: ignore[misc]
        for name, run in ANALYSES.items()
    }


def repeated(graph: ExecutionGraph, times: int) -> ExecutionGraph:
    """The graph's step this many times in a row, on every rank."""
    count = graph.num_nodes
    columns = {
        field.name: np.tile(getattr(graph, field.name), times)
        for field in fields(graph)
        if isinstance(getattr(graph, field.name), np.ndarray) and field.name != "first_edge"
    }
    which = np.repeat(np.arange(times), count)
    begins = np.flatnonzero(columns["kind"] == NodeKind.RANK_START)
    begins = begins[begins >= count]
    last = last_of_rank(graph)
    before = (which[begins] - 1) * count + last[columns["rank"][begins]]
    degree = np.tile(np.diff(graph.first_edge), times)
    degree[begins] += 1
    first_edge = np.concatenate(([0], np.cumsum(degree)))
    is_new = np.zeros(first_edge[-1], np.bool_)
    is_new[first_edge[begins]] = True
    offset = np.repeat(np.arange(times), graph.num_edges) * count
    edges = {
        name: np.zeros(len(is_new), column.dtype)
        for name, column in columns.items()
        if name in {"predecessor", "edge_kind", "lag_ns"}
    }
    edges["predecessor"][~is_new] = columns["predecessor"] + offset
    edges["predecessor"][is_new] = before
    edges["edge_kind"][~is_new] = columns["edge_kind"]
    edges["edge_kind"][is_new] = EdgeKind.HOST_ORDER
    edges["lag_ns"][~is_new] = columns["lag_ns"]
    columns["measured_ns"][begins] = 0
    columns["step"] = np.where(columns["step"] >= 0, which, -1).astype(np.int32)
    columns["collective"] = np.where(
        columns["collective"] >= 0, columns["collective"] + which * len(graph.collectives), -1
    ).astype(np.int32)
    return replace(
        graph,
        **{**columns, **edges},
        first_edge=first_edge,
        step_names=tuple(f"step {number}" for number in range(times)),
        collectives=Collectives.of([*graph.collectives] * times),
    )


def last_of_rank(graph: ExecutionGraph) -> Int64s:
    """Each rank's last end mark; int64[ranks]."""
    ends = graph.nodes_of(NodeKind.STEP_END)
    last = np.zeros(max(graph.ranks) + 1, np.int64)
    np.maximum.at(last, graph.rank[ends], ends)
    return last


def median_time_s(run: Callable[[], object], repeat: int) -> float:
    """Median wall time of several runs, after one that compiles."""
    run()
    times_s = []
    for _ in range(repeat):
        begin_s = time.perf_counter()
        run()
        times_s.append(time.perf_counter() - begin_s)
    return statistics.median(times_s)


def print_table(rows: dict[str, Row], baseline: dict[str, Row]) -> None:
    """Each analysis beside its baseline."""
    for name, row in rows.items():
        print(f"{name}: {row['nodes']:,.0f} nodes, target {TARGET_S[name]:.0f} s for all analyses")
        for analysis, time_s in row.items():
            if analysis != "nodes":
                old = baseline.get(name, {}).get(analysis)
                shown = f"{1e3 * old:10.1f}" if old else f"{'-':>10}"
                print(f"  {analysis:24}{1e3 * time_s:10.1f} ms{shown} before")


if __name__ == "__main__":
    main()
