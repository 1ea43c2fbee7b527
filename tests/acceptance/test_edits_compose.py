"""Edits as values: nothing changes nothing, order does not matter, an edit back is no edit."""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from foretrace.analyze import Selection
from foretrace.base import ScenarioError
from foretrace.graph import Part, Timeline, build_recording
from foretrace.trace import load_traces
from foretrace.whatif import (
    Baseline,
    Batch,
    CudaGraphs,
    DataLoading,
    Delay,
    Edit,
    Fuse,
    Layers,
    Network,
    Parallelism,
    PlanKeys,
    RemoveSync,
    Speed,
    Widths,
    baseline_of,
)
from foretrace.whatif.predict import predict
from tests.acceptance.edited_jobs import BelievedCosts, job
from tests.acceptance.recovery import recording_of_job
from tests.truth import make_job

pytestmark = pytest.mark.slow

GEMM = Selection(kernels="*gemm*")
EDITS: tuple[Edit, ...] = (
    Layers(16),
    Batch(num_microbatches=8),
    Batch(sequence=2048),
    Widths(feed_forward=32768),
    Parallelism(dp=4),
    Parallelism(pp=4),
    Parallelism(tp=4),
    PlanKeys({"sharding.bucket_bytes": 400_000_000}),
    Speed(1.25, GEMM),
    Delay(2_000_000, Selection(parts=(Part.LAYER,), ranks=(1,))),
    Network(factor=2.0, groups=("dp",)),
    DataLoading(factor=2.0),
    RemoveSync(),
    CudaGraphs(),
    Fuse(Selection(kernels="*cuCompute*"), 0.5),
)
IDENTITIES: tuple[tuple[Edit, ...], ...] = (
    (),
    (Layers(8),),
    (Parallelism(tp=2, dp=2, pp=2),),
    (Batch(num_microbatches=4),),
    (Batch(sequence=1024),),
    (Speed(1.0, GEMM),),
    (Network(),),
    (DataLoading(),),
    (Delay(0),),
)
INVERSES: tuple[tuple[Edit, ...], ...] = (
    (Layers(16), Layers(8)),
    (Parallelism(pp=4, dp=1), Parallelism(pp=2, dp=2)),
    (Parallelism(tp=4), Parallelism(tp=2)),
    (Batch(num_microbatches=8), Batch(num_microbatches=4)),
    (Batch(sequence=2048), Batch(sequence=1024)),
    (Widths(hidden=8192), Widths(hidden=4096)),
    (Speed(0.5, GEMM), Speed(2.0, GEMM)),
    (Speed(1.7, GEMM), Speed(1 / 1.7, GEMM)),
    (Network(factor=3.0), Network(factor=1 / 3.0)),
    (Delay(5_000), Delay(-5_000)),
)


@cache
def baseline() -> Baseline:
    """What is known of a job of tp 2, dp 2, pp 2 with 8 layers and 4 microbatches."""
    return baseline_of(recording_of_job(make_job(job())), costs=BelievedCosts())


def is_replay(edits: tuple[Edit, ...]) -> bool:
    """Whether the edited job is the replay, node by node to the nanosecond."""
    known = baseline()
    found = predict(known, edits)
    return np.array_equal(found.timeline.end_ns, known.replayed.end_ns) and np.array_equal(
        found.timeline.start_ns, known.replayed.start_ns
    )


@pytest.mark.parametrize("edits", IDENTITIES, ids=str)
def test_the_identity_edit_changes_nothing(edits: tuple[Edit, ...]) -> None:
    assert is_replay(edits)


@pytest.mark.parametrize("edits", INVERSES, ids=str)
def test_an_edit_and_its_inverse_give_the_base_back(edits: tuple[Edit, ...]) -> None:
    assert not is_replay(edits[:1])
    assert is_replay(edits)


@pytest.mark.parametrize("pair", list(combinations(EDITS, 2))[::4], ids=str)
def test_edits_of_different_things_commute(pair: tuple[Edit, Edit]) -> None:
    one, other = (predict(baseline(), edits) for edits in (pair, pair[::-1]))

    assert one.after == other.after or set(one.after.changes) == set(other.after.changes)
    assert np.array_equal(one.timeline.end_ns, other.timeline.end_ns)


@pytest.mark.parametrize("edit", EDITS, ids=str)
def test_every_edit_matters_and_explains_itself(edit: Edit) -> None:
    found = predict(baseline(), (edit,))

    (effect,) = found.effects
    assert effect.sentence
    assert "\n" not in effect.sentence
    assert found.step_ns == found.replayed_step_ns + effect.change_ns
    assert found.low_ns <= found.step_ns <= found.high_ns
    if not isinstance(edit, RemoveSync | CudaGraphs):  # the device bounds this job
        assert effect.change_ns


@pytest.mark.parametrize(
    ("edits", "words"),
    [
        ((Parallelism(tp=3),), "32"),
        ((Parallelism(pp=3),), "8"),
        ((Layers(7),), "7"),
        ((Batch(global_batch=9),), "9"),
        ((Parallelism(cp=2),), "cp"),
        ((Parallelism(schedule="zb-h1"),), "zb-h1"),
        ((Widths(heads=31),), "31"),
        ((Speed(2.0, Selection(kernels="*nothing of the kind*")),), "nothing of the kind"),
        ((Delay(1000, Selection(ranks=(99,))),), "99"),
        ((Parallelism(schedule="interleaved", chunks=3),), "3"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_with_its_numbers(edits: tuple[Edit, ...], words: str) -> None:
    with pytest.raises(ScenarioError, match=words) as caught:
        predict(baseline(), edits)

    assert "\n" not in str(caught.value)


def layers_ns(timeline: Timeline, rank: int) -> int:
    """From the first layer's first call to the last one's last; the host bounds this job."""
    graph = timeline.graph
    own = (graph.part == Part.LAYER) & (graph.rank == rank) & graph.is_host
    return int(timeline.end_ns[own].max() - timeline.start_ns[own].min())


def test_twice_the_layers_of_megatron_add_what_its_layers_take(data_dir: Path) -> None:
    paths = sorted((data_dir / "traces" / "megatron-tp8").glob("kineto_rank*.json.gz"))
    known = baseline_of(build_recording(load_traces(paths)))
    took_ns = [layers_ns(known.replayed, rank) for rank in range(8)]

    found = predict(known, (Layers(80),))

    now_ns = [layers_ns(found.timeline, rank) for rank in range(8)]
    assert now_ns == pytest.approx([2 * each for each in took_ns], rel=0.01)
    # Ranks' hosts differ by 5%. In the recording the slow ones began early and hid some of it; over
    # twice the layers they cannot, so the step grows by nearly what the slowest takes.
    assert max(took_ns) * 0.98 < found.change_ns < max(took_ns)
