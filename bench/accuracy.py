"""How far replays are from what was measured: the tables of docs/replays.md.

python bench/accuracy.py                      # our example; public traces if they are there
python bench/accuracy.py --truth              # and generated jobs of known truth, 8 and 64 ranks
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from foretrace.analyze import collective_times, steps  # noqa: E402  after the path
from foretrace.graph import (  # noqa: E402
    Ablation,
    NodeKind,
    Recording,
    build_recording,
    without,
)
from foretrace.simulate import simulate  # noqa: E402
from foretrace.trace import load_traces  # noqa: E402
from foretrace.validate import (  # noqa: E402
    MIN_STEPS,
    ReplaySummary,
    other_step_report,
    replay_report,
)

EXAMPLE = ROOT / "examples/cpu-llama-tp2-dp2/traces"


@dataclass(frozen=True)
class Case:
    """One recording of the table."""

    name: str
    files: str  # glob below the traces' folder
    is_recorded_alone: bool  # one rank of several: the others are ghosts


PUBLIC = (
    Case(
        "megatron-tp8, 8 ranks, forward",
        "megatron-tp8/kineto_rank*.json.gz",
        is_recorded_alone=False,
    ),
    Case("a100-resnet, rank 0 of 2", "a100-resnet-ddp2-rank0/*.json.gz", is_recorded_alone=True),
    Case("v100-ddp2, rank 1 of 2", "v100-ddp2-rank1/*.json.gz", is_recorded_alone=True),
    Case("a100-dlrm, rank 3 of 8", "a100-dlrm-rank3-of-8/*.json.gz", is_recorded_alone=True),
    Case("v100-single", "v100-single/*.json.gz", is_recorded_alone=False),
    Case(
        "v100-resnet50, slow loader",
        "v100-resnet50-dataloader/*3089861*.json.gz",
        is_recorded_alone=False,
    ),
    Case(
        "v100-resnet50, fast loader",
        "v100-resnet50-dataloader/*3566756*.json.gz",
        is_recorded_alone=False,
    ),
    Case(
        "resnet, no step marks", "execution-traces/resnet_kineto.json.gz", is_recorded_alone=False
    ),
    Case(
        "linear, no step marks", "execution-traces/linear_kineto.json.gz", is_recorded_alone=False
    ),
)


def main() -> None:
    """Print the tables as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / "../shared/data")
    parser.add_argument("--truth", action="store_true", help="generated jobs too (a minute)")
    options = parser.parse_args()
    recordings = list(_recordings(options.data / "traces"))
    _print_replays(recordings)
    _print_null_models(recordings[0])
    _print_other_steps(recordings)
    if options.truth:
        _print_truth()


def _recordings(folder: Path) -> Iterator[tuple[Case, Recording]]:
    if folder.is_dir():
        for case in PUBLIC:
            yield case, build_recording(load_traces(sorted(folder.glob(case.files))))
    else:
        print(f"no public traces at {folder}: only our own example\n")
    example = Case("our example, 4 ranks, CPU", "", is_recorded_alone=False)
    yield example, build_recording(load_traces(EXAMPLE))


def _print_replays(recordings: list[tuple[Case, Recording]]) -> None:
    print(
        "| trace | steps | end of step: mean, worst | component | kernel starts p95 | collectives |"
    )
    print("|---|---|---|---|---|---|")
    for case, recording in recordings:
        report = replay_report(recording, null_models=())
        collectives = "split"
        if not recording.graph.collectives:
            collectives = "none"
        elif case.is_recorded_alone:
            collectives = "estimated"
        print(
            f"| {case.name} | {len(recording.graph.step_names)} | {_errors(report.summary)} | "
            f"{collectives} |"
        )
    print()


def _errors(summary: ReplaySummary) -> str:
    starts = summary.p95_kernel_start_error_percent
    return (
        f"{_percent(summary.mean_step_error_percent)}, "
        f"{_percent(summary.worst_step_error_percent)} | "
        f"{_percent(summary.worst_component_error_percent)} | {_percent(starts)}"
    )


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2g} %" if abs(value) >= 1e-4 else "0 %"  # noqa: PLR2004


def _print_null_models(first: tuple[Case, Recording]) -> None:
    case, recording = first
    report = replay_report(recording)
    print(f"{case.name}:\n")
    print("| model | end of step | component | kernel starts p95 | collective time |")
    print("|---|---|---|---|---|")
    rows = [("replay", report.summary)]
    rows += [(f"without {model.ablation.value}", model.summary) for model in report.null_models]
    for name, summary in rows:
        cells = (
            summary.mean_step_error_percent,
            summary.worst_component_error_percent,
            summary.p95_kernel_start_error_percent,
            summary.worst_collective_error_percent,
        )
        print(f"| {name} | {' | '.join(_percent(cell) for cell in cells)} |")
    print(f"\nA delay of 5 ms in one rank's host, {case.name}:\n")
    _print_delay(recording)


def _print_delay(recording: Recording) -> None:
    """What a delay on one rank does to the others, with and without rendezvous."""
    graph = recording.graph
    # The rank that waits least for others is the one the others wait for.
    waits = collective_times(recording.measured).by_rank()
    rank = min(waits, key=lambda own: own.wait_ns).rank
    begin = int(np.flatnonzero((graph.kind == NodeKind.STEP_BEGIN) & (graph.rank == rank))[0])
    is_segment = (graph.kind == NodeKind.HOST_SEGMENT) & (graph.lane == graph.lane[begin])
    segment = int(np.flatnonzero(is_segment & (np.arange(graph.num_nodes) > begin))[0])
    print("| model | other ranks' steps become longer by |")
    print("|---|---|")
    for name, (model, duration_ns) in (
        ("replay", (graph, graph.measured_ns)),
        ("without rendezvous", without(recording, Ablation.RENDEZVOUS)),
    ):
        delayed_ns = duration_ns.copy()
        delayed_ns[segment] += 5_000_000
        before, after = (steps(simulate(model, ns)) for ns in (duration_ns, delayed_ns))
        longer_ms = (after.duration_ns - before.duration_ns)[before.rank != rank] / 1e6
        print(f"| {name} | {longer_ms.min():.2f} to {longer_ms.max():.2f} ms |")
    print()


def _print_other_steps(recordings: list[tuple[Case, Recording]]) -> None:
    print(
        "| trace | predicted from the other steps: mean, worst | their median time: mean, worst |"
    )
    print("|---|---|---|")
    for case, recording in recordings:
        if len(recording.graph.step_names) < MIN_STEPS:
            continue
        report = other_step_report(recording)
        print(
            f"| {case.name} | {report.mean_error_percent:.2f} %, "
            f"{report.worst_error_percent:.2f} % | {report.mean_naive_error_percent:.2f} %, "
            f"{report.worst_naive_error_percent:.2f} % |"
        )
    print()


def _print_truth() -> None:
    from tests.acceptance.recovery import Recovered, recording_of_job
    from tests.truth import (
        FileStyle,
        KernelFamily,
        MergedBuckets,
        SlowLink,
        SlowRank,
        acceptance_config,
        make_job,
        transitive_closure_contains,
    )

    print("| job | delaying edges found | edges found true | wait, median error | what-if, worst |")
    print("|---|---|---|---|---|")
    for num_ranks in (8, 64):
        for has_sync in (True, False):
            style = FileStyle(sync_events=has_sync)
            job = make_job(acceptance_config(num_ranks, style=style))
            found = Recovered(job, recording_of_job(job))
            edges, delaying = found.inter_stream_edges(), found.delaying_edges()
            recall = len(edges & delaying) / len(delaying)
            precision = float(np.mean(transitive_closure_contains(job, sorted(edges))))
            wait_ns = float(np.median(np.abs(found.wait_errors_ns())))
            last = num_ranks - 1
            what_ifs = (
                (KernelFamily("gemm", 0.7), found.scaled_ns(found.has_family("gemm"), 0.7)),
                (SlowRank(last, 1.1), found.scaled_ns(found.is_kernel_of(last), 1.1)),
                (SlowLink("dp", 2.0), found.scaled_ns(found.has_link("dp"), 2.0)),
                (SlowLink("tp", 2.0), found.scaled_ns(found.has_link("tp"), 2.0)),
                (MergedBuckets(0, 1), found.merged_buckets_ns(0, 1)),
            )
            worst = max(found.prediction_error(ns, job.after(change)) for change, ns in what_ifs)
            events = "with sync events" if has_sync else "without"
            print(
                f"| {num_ranks} ranks, {events} | {recall:.2%} | {precision:.2%} | "
                f"{wait_ns / 1e3:.2f} us | {worst:.3%} |"
            )
    print()


if __name__ == "__main__":
    main()
