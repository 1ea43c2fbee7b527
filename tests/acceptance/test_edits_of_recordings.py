"""Every kind of edit of every public recording: it goes where it must, or is refused in a sentence.

What an edited recording truly takes is known of none of these; which way it changes is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from foretrace.base import ScenarioError
from foretrace.graph import ExecutionGraph, NodeKind, build_recording, verify
from foretrace.trace import load_traces
from foretrace.whatif import Baseline, Edit, Prediction, baseline_of, edits_of, predict

pytestmark = pytest.mark.slow

# Files of one job each, and kinds of edits that it must answer.
_ANY = {"identity", "microbatch", "faster device", "delay", "slower rank"}
RECORDINGS = {
    "a100-resnet-ddp2-rank0/*": _ANY
    | {"layers", "microbatches", "dp", "zero1", "large buckets", "small buckets", "no overlap"}
    | {"recompute", "slower network", "graphs", "fused"},
    "a100-dlrm-rank3-of-8/*": _ANY
    | {"layers", "microbatches", "dp", "no overlap", "recompute", "slower network", "no loading"},
    "v100-ddp2-rank1/*": _ANY
    | {"layers", "microbatches", "dp", "no overlap", "recompute", "slower network"},
    "v100-single/*": _ANY | {"layers", "microbatches", "recompute", "graphs", "fused"},
    "v100-resnet50-dataloader/*3089861*": _ANY
    | {"layers", "microbatches", "recompute", "graphs", "fused", "no loading"},
    "megatron-tp8/kineto*": _ANY
    | {"layers", "microbatches", "sequence", "hidden", "feed-forward", "vocabulary", "heads"}
    | {"dp", "pp", "half the tp", "slower network", "graphs"},
    "h100-inference/Qwen*": _ANY
    | {"layers", "microbatches", "sequence", "hidden", "feed-forward", "heads", "later waits"},
    "mi300-inference/Qwen*": _ANY | {"layers", "microbatches", "sequence", "hidden"},
    "cuda-sync-events/alexnet/*": _ANY | {"layers", "microbatches", "graphs"},
    "cuda-sync-events/cuda_event_sync/*": _ANY,
    "execution-traces/linear_kineto*": _ANY | {"layers", "microbatches", "graphs", "recompute"},
    "odd-files/mi250*": _ANY,
    "odd-files/mtia*": _ANY,
    "odd-files/rank_non_gpu*": _ANY,
    "odd-files/sampled*": _ANY,
    "odd-files/triton*": _ANY,
}
LONGER, SHORTER, SAME, EITHER = "longer", "shorter", "same", "either"
_SLACK = 0.003  # of a step: what a queue's or a stream's other order may do
_LETTERS = 600  # of a refusal

_Keys = dict[str, object]
# What is stated, from what was recorded, and which way a step goes.
EDITS: dict[str, tuple[Callable[[Baseline], _Keys], str]] = {
    "identity": (lambda _: {}, SAME),
    "layers": (lambda known: {"layers": 2 * (known.before.sizes.layers or 1)}, LONGER),
    "microbatches": (lambda known: {"microbatches": 2 * _microbatches(known)}, LONGER),
    "microbatch": (lambda known: {"micro_batch": 2 * known.before.plan.micro_batch}, LONGER),
    "sequence": (lambda known: {"sequence": 2 * known.before.plan.sequence}, LONGER),
    "hidden": (lambda known: {"hidden": 2 * (known.before.sizes.hidden or 64)}, LONGER),
    "feed-forward": (lambda known: {"ffn": 2 * (known.before.sizes.feed_forward or 64)}, LONGER),
    "vocabulary": (lambda known: {"vocabulary": 2 * (known.before.sizes.vocabulary or 64)}, LONGER),
    "heads": (lambda known: {"heads": 2 * (known.before.sizes.heads or 2)}, LONGER),
    "dp": (lambda known: {"dp": 2 * known.before.plan.data}, LONGER),
    "pp": (lambda known: {"pp": 2 * known.before.plan.pipeline}, EITHER),
    "tp": (lambda known: {"tp": 2 * known.before.plan.tensor}, EITHER),
    "half the tp": (lambda known: {"tp": max(known.before.plan.tensor // 2, 1)}, EITHER),
    "cp": (lambda _: {"cp": 2}, EITHER),
    "ep": (lambda _: {"ep": 2}, EITHER),
    "zero1": (lambda _: {"sharding": "zero1"}, EITHER),
    "zero3": (lambda _: {"sharding": "zero3"}, EITHER),
    "recompute": (lambda _: {"recompute": "full"}, LONGER),
    "large buckets": (lambda _: {"set": {"sharding.bucket_bytes": 100_000_000}}, EITHER),
    "small buckets": (lambda _: {"set": {"sharding.bucket_bytes": 1_000_000}}, EITHER),
    "no overlap": (lambda _: {"set": {"overlap.gradients": False}}, LONGER),
    "faster device": (lambda _: {"speed": {"all": 2.0}}, SHORTER),
    "faster products": (lambda _: {"speed": {"gemm": 2.0}}, SHORTER),
    "slower rank": (lambda known: {"slow_rank": {_first_rank(known): 1.5}}, LONGER),
    "delay": (lambda _: {"delay": {"all": "2 ms"}}, LONGER),
    "slower network": (lambda _: {"transfers": {"all": 2}}, LONGER),
    "fused": (lambda _: {"fuse": {"elementwise": 0.5}}, SHORTER),
    "graphs": (lambda _: {"cuda_graphs": True}, SHORTER),
    "no waits": (lambda _: {"remove_sync": True}, SHORTER),
    "later waits": (lambda _: {"move_sync": True}, SHORTER),
    "no loading": (lambda _: {"data_loading": "0 ms"}, SHORTER),
    "plain attention": (lambda _: {"attention": "plain"}, EITHER),
}
# Edits that give the device more to do, whoever bounds the step.
_MORE_WORK = ("layers", "microbatches", "sequence", "hidden", "feed-forward")


def _microbatches(known: Baseline) -> int:
    return known.before.plan.num_microbatches


def _first_rank(known: Baseline) -> str:
    return str(min(known.program.pieces_by_rank))


@cache
def ground_in(folder: Path, pattern: str) -> Baseline:
    """What is known of a public recording."""
    return baseline_of(build_recording(load_traces(sorted(folder.glob(pattern)))))


def edits_to(known: Baseline, name: str) -> tuple[Edit, ...]:
    """Edits of one kind."""
    keys, _ = EDITS[name]
    return edits_of(keys(known), "the test")


def device_work_ns(graph: ExecutionGraph, duration_ns: np.ndarray) -> float:
    """Kernels and copies of one rank, on average."""
    is_work = graph.is_of(NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET)
    return float(duration_ns[is_work].sum()) / len(graph.ranks)


def check_direction(known: Baseline, found: Prediction, name: str) -> None:
    """The step goes where the edit must take it."""
    ratio = found.step_ns / known.replayed_step_ns
    _, direction = EDITS[name]
    if direction == LONGER:
        assert ratio >= 1 - _SLACK
    if direction == SHORTER:
        assert ratio <= 1 + _SLACK
    if direction == SAME:
        assert found.step_ns == known.replayed_step_ns
    if name in _MORE_WORK:
        recorded = known.program.graph
        work_ns = device_work_ns(found.graph, found.costs.duration_ns)
        assert work_ns > 1.01 * device_work_ns(recorded, recorded.measured_ns)


@pytest.mark.parametrize("name", list(EDITS))
@pytest.mark.parametrize("recording", list(RECORDINGS))
def test_an_edit_goes_where_it_must_or_is_refused(
    data_dir: Path, recording: str, name: str
) -> None:
    folder, _, pattern = recording.rpartition("/")
    known = ground_in(data_dir / "traces" / folder, pattern)

    try:
        found = predict(known, edits_to(known, name))
    except ScenarioError as err:
        assert name not in RECORDINGS[recording], str(err)  # noqa: PT017  either way is right
        assert 0 < len(str(err)) <= _LETTERS  # noqa: PT017
        assert "\n" not in str(err)  # noqa: PT017
        return

    verify(found.graph)
    assert math.isfinite(found.step_ns)
    assert 0 < found.low_ns <= found.step_ns <= found.high_ns
    assert all(len(note) <= _LETTERS for note in found.notes)
    check_direction(known, found, name)
