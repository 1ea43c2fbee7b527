"""Time of predictions: what all of one recording share, and each edit after that.

    python bench/whatif.py                 print, beside the stored baseline
    python bench/whatif.py --store         make this run the baseline

Generated jobs of 8 and of 64 ranks, three steps each (the larger takes a minute to make), and
public traces where `FORETRACE_DATA` names their folder. `baseline` is from a recording to what
predictions start from; `the first` is a prediction of twice the microbatches on a fresh baseline,
which makes what later ones share; the others are medians on one baseline. Seconds of one core, in
process, after imports and after a small job has loaded the compiled loops. `ns per node` is of the
predicted graph: it does not grow where time is linear. `simulations` divides by one static
simulation of that graph, which compares better between machines than seconds do.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from foretrace.base import ScenarioError
from foretrace.graph import Recording, build_recording
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from foretrace.whatif import (
    Baseline,
    Batch,
    Edit,
    Layers,
    Parallelism,
    Prediction,
    Speed,
    baseline_of,
    predict,
)
from foretrace.workload import Plan

ROOT = Path(__file__).parent.parent
BASELINE = Path(__file__).parent / "baselines" / "whatif.json"
TARGETS = "targets: 8 ranks well under 1 s, 64 ranks x 3 steps under 3 s for each prediction"
PUBLIC = ("megatron-tp8", "v100-ddp2-rank1")
SMALL, LARGE = "8 ranks", "64 ranks"
Row = dict[str, float]
Rows = dict[str, Row]  # by what was timed
Found = TypeVar("Found")


def main() -> None:
    """Measure, print, and store or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="leave out the 64 ranks")
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    arguments = parser.parse_args()

    baseline: dict[str, Rows] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    found: dict[str, Rows] = {}
    print(TARGETS)
    for name, recording in recordings(with_large=not arguments.small):
        found[name] = measured(recording, arguments.repeat)
        print_table(name, found[name], baseline.get(name, {}))
    if arguments.store:
        BASELINE.write_text(json.dumps(baseline | found, indent=2) + "\n")


def recordings(*, with_large: bool) -> Iterator[tuple[str, Recording]]:
    """What there is to predict from, by name."""
    sys.path.insert(0, str(ROOT))
    from tests.acceptance.edited_jobs import job  # beside src, not installed
    from tests.truth import JobConfig, make_job, write

    def recorded(config: JobConfig) -> Recording:
        with tempfile.TemporaryDirectory() as folder:
            return build_recording(load_traces(write(make_job(config), Path(folder))))

    small = recorded(job())
    predict(baseline_of(small), [Layers(4)])  # loads compiled loops
    yield SMALL, small
    data = os.environ.get("FORETRACE_DATA")
    for name in PUBLIC if data else ():
        yield name, build_recording(load_traces(Path(str(data)) / "traces" / name))
    if with_large:
        yield LARGE, recorded(job(tp=4, dp=4, pp=4, layers=16))


def edits_of(baseline: Baseline) -> dict[str, Edit]:
    """One of each kind, about twice of what was recorded."""
    plan: Plan = baseline.before.plan
    layers = sum(len(each) for each in baseline.program.layers_of_stage)
    return {
        "speed": Speed(1.25),
        "layers": Layers(2 * max(layers, 1)),
        "microbatches": Batch(num_microbatches=2 * plan.num_microbatches),
        "data parallel": Parallelism(dp=2 * plan.data),
        "pipeline": Parallelism(pp=2 * plan.pipeline),
        "tensor parallel": Parallelism(tp=2 * plan.tensor),
        "sequence": Batch(sequence=2 * plan.sequence),
    }


def measured(recording: Recording, repeat: int) -> Rows:
    """Seconds of the baseline, of the first prediction and of one of each kind."""
    baseline_s, baseline = median_of(lambda: baseline_of(recording), repeat)
    rows = {"baseline": {"seconds": baseline_s, "nodes": recording.graph.num_nodes}}
    edits = edits_of(baseline)
    first_s = []
    for _ in range(repeat):
        fresh = baseline_of(recording)
        begin_s = time.process_time()
        found = predict(fresh, [edits["microbatches"]])
        first_s.append(time.process_time() - begin_s)
    rows["the first"] = row_of(statistics.median(first_s), found)
    for name, edit in edits.items():
        try:
            seconds, found = median_of(lambda edit=edit: predict(baseline, [edit]), repeat)  # type: ignore[misc]
        except ScenarioError:
            continue  # what this recording cannot show
        rows[name] = row_of(seconds, found)
    return rows


def row_of(seconds: float, found: Prediction) -> Row:
    """What a prediction took, beside one simulation of its graph."""
    graph = found.timeline.graph
    simulation_s, _ = median_of(lambda: simulate(graph, found.costs.duration_ns), 5)
    return {
        "seconds": seconds,
        "nodes": graph.num_nodes,
        "simulations": seconds / max(simulation_s, 1e-9),
    }


def median_of(run: Callable[[], Found], repeat: int) -> tuple[float, Found]:
    """Median processor time of several runs after a first one, and what the last one gave."""
    found = run()
    times_s = []
    for _ in range(repeat):
        begin_s = time.process_time()
        found = run()
        times_s.append(time.process_time() - begin_s)
    return statistics.median(times_s), found


def print_table(name: str, rows: Rows, baseline: Rows) -> None:
    """Each prediction beside its baseline."""
    print(f"\n{name}: {rows['baseline']['nodes']:,.0f} nodes")
    heads = ("seconds", "baseline", "nodes", "ns per node", "simulations")
    print(f"  {'':16}" + "".join(f"{head:>13}" for head in heads))
    for what, row in rows.items():
        old = baseline.get(what)
        before = f"{old['seconds']:13.3f}" if old else f"{'-':>13}"
        per_node = 1e9 * row["seconds"] / row["nodes"]
        times = f"{row['simulations']:13.0f}" if "simulations" in row else f"{'-':>13}"
        taken = f"{row['seconds']:13.3f}{before}{row['nodes']:13,.0f}"
        print(f"  {what:16}{taken}{per_node:13,.0f}{times}")


if __name__ == "__main__":
    main()
