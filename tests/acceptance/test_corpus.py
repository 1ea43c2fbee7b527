"""Every public trace is replayed or refused with a sentence; training traces to within 0.5%."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretrace.analyze import StepTable, steps
from foretrace.base import Float64s, Int64s, ModelError
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Recording, build_recording, verify
from foretrace.simulate import simulate
from foretrace.trace import load_traces
from foretrace.validate import replay_report

MAX_STEP_ERROR_PERCENT = 0.5
TRAINING = {  # file -> steps that it holds
    "a100-dlrm-rank3-of-8/control.json.gz": 6,
    "a100-resnet-ddp2-rank0/nccl_data.json.gz": 3,
    "cuda-sync-events/alexnet/benchmark_result_2869224_1695835535_trace.json.gz": 1,
    "execution-traces/linear_kineto.json.gz": 1,
    "execution-traces/resnet_kineto.json.gz": 1,
    "odd-files/mi250_minitoy_train_ROCm6_2_kineto.json.gz": 2,
    "odd-files/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz": 1,
    "odd-files/sampled_rank-0.json.gz": 2,
    "v100-ddp2-rank1/df_index_resolver.json.gz": 5,
    "v100-resnet50-dataloader/worker0.1623143089861.pt.trace.json.gz": 6,
    "v100-resnet50-dataloader/worker0.1623143566756.pt.trace.json.gz": 6,
    "v100-single/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz": 5,
}


def recording_of(path: Path) -> Recording:
    recording = build_recording(load_traces([path]))
    verify(recording.graph)
    return recording


@pytest.mark.parametrize("file", sorted(TRAINING))
def test_every_step_of_a_training_trace_ends_when_it_did(data_dir: Path, file: str) -> None:
    recording = recording_of(data_dir / "traces" / file)

    report = replay_report(recording, null_models=())

    assert len(report.steps) == TRAINING[file]
    for each in report.steps:
        for rank in each.ranks:
            error = abs(rank.replayed_ns / rank.measured_ns - 1)
            assert 100 * error <= MAX_STEP_ERROR_PERCENT, (each.name, rank.rank)
    assert report.mix.recorded_host + report.mix.recorded_device > 0


@pytest.mark.slow
def test_every_file_is_replayed_or_refused_with_a_sentence(data_dir: Path) -> None:
    root = data_dir / "traces"
    refused: dict[str, str] = {}
    paths = [path for path in sorted(root.rglob("*")) if path.is_file()]
    for path in paths:
        try:
            recording = recording_of(path)
        except ModelError as error:
            refused[str(path.relative_to(root))] = str(error)
            continue
        replayed = simulate(recording.graph)
        assert (replayed.end_ns >= replayed.start_ns).all(), path

    assert len(paths) - len(refused) >= 30
    # What has no timestamps is no trace; everything with timestamps is replayed.
    assert {name.partition("/")[0] for name in refused} == {
        "chakra",
        "execution-traces",
        "megatron-tp8",
    }
    assert all(Path(name).name in sentence for name, sentence in refused.items())
    assert not any("kineto" in name for name in refused)


class Queue:
    """The single-GPU trace whose device is a step behind its host."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self.graph = recording.graph
        self.is_kernel = self.graph.kind == NodeKind.KERNEL

    def faster_ns(self, duration_ns: Int64s) -> Int64s:
        """All kernels 20% faster."""
        return np.where(self.is_kernel, np.rint(duration_ns * 0.8).astype(np.int64), duration_ns)

    def periods_ns(self, graph: ExecutionGraph, duration_ns: Int64s) -> Float64s:
        """Time from each step's end to the next one's: what a training run pays per step."""
        table: StepTable = steps(simulate(graph, duration_ns))
        return np.diff(table.end_ns).astype(np.float64)

    def with_blocked_launches_as_work(self) -> tuple[ExecutionGraph, Int64s]:
        """What a tool without a launch queue replays: launches as recorded, nothing waited for."""
        graph = self.graph
        is_kept = graph.edge_kind != EdgeKind.QUEUE
        targets = graph.edge_target[is_kept]
        without_queue = replace(
            graph,
            first_edge=np.searchsorted(targets, np.arange(graph.num_nodes + 1)),
            predecessor=graph.predecessor[is_kept],
            edge_kind=graph.edge_kind[is_kept],
            lag_ns=graph.lag_ns[is_kept],
        )
        is_launch = graph.kind == NodeKind.LAUNCH
        return without_queue, np.where(is_launch, self.recording.recorded_ns, graph.measured_ns)


@pytest.fixture(scope="module")
def queue(data_dir: Path) -> Queue:
    (path,) = (data_dir / "traces" / "v100-single").glob("*.json.gz")
    return Queue(recording_of(path))


def test_faster_kernels_shorten_a_step_whose_launches_block(queue: Queue) -> None:
    measured_ns = queue.graph.measured_ns

    before_ns = queue.periods_ns(queue.graph, measured_ns)
    after_ns = queue.periods_ns(queue.graph, queue.faster_ns(measured_ns))

    assert (after_ns / before_ns < 0.82).all()
    assert (after_ns / before_ns > 0.79).all()


def test_blocked_launches_replayed_as_work_would_hide_that(queue: Queue) -> None:
    graph, recorded_ns = queue.with_blocked_launches_as_work()

    before_ns = queue.periods_ns(graph, recorded_ns)
    after_ns = queue.periods_ns(graph, queue.faster_ns(recorded_ns))

    # By the last step the host, held up by nothing but its own recorded waiting, is the limit.
    assert after_ns[-1] / before_ns[-1] > 0.95


def test_the_queue_is_measured_not_assumed(queue: Queue) -> None:
    (finding,) = [each for each in queue.recording.findings if each.topic == "launch queue"]
    depth = int(finding.text.split("about ")[1].split()[0].replace(",", ""))

    assert 1_015 <= depth <= 1_025
    is_queue = queue.graph.edge_kind == EdgeKind.QUEUE
    assert int(is_queue.sum()) > 1_000
