from __future__ import annotations

from typing import Any

import pytest

from foretrace.base import ScenarioError
from foretrace.graph import Part
from foretrace.whatif import (
    Attention,
    CudaGraphs,
    DataLoading,
    Delay,
    Edit,
    Fuse,
    Lasts,
    MoveSync,
    Network,
    RemoveSync,
    Scenario,
    Selection,
    Sizes,
    Speed,
)
from foretrace.whatif.changes.change import (
    AttentionKernel,
    Delayed,
    DurationChange,
    Fused,
    Graphed,
    Loading,
    SlowerNetwork,
    Takes,
    Times,
    Unsynchronised,
)
from foretrace.workload import Plan

GEMM = Selection(family="gemm")
MS = 1_000_000

EDITS: list[tuple[Edit, DurationChange, str]] = [
    (Speed(1.25, GEMM), Times(GEMM, 0.8), "gemm x 1.25 as fast"),
    (Speed(0.5, GEMM), Times(GEMM, 2.0), "gemm takes x 2 as long"),
    (Lasts(200_000, GEMM), Takes(GEMM, 200_000), "gemm takes 0.2 ms each"),
    (
        Delay(2 * MS, Selection(part=Part.DATA, ranks=(1,))),
        Delayed(Selection(part=Part.DATA, ranks=(1,)), 2 * MS, once_per_block=True),
        "each block of all work data rank 1 begins 2 ms later on the host",
    ),
    (
        Delay(-2 * MS, GEMM, once_per_block=False, on_device=True),
        Delayed(GEMM, -2 * MS, on_device=True),
        "gemm begins 2 ms sooner on the device",
    ),
    (Fuse(GEMM, 0.5), Fused(GEMM, 0.5), "gemm fused, x 0.5 of their time"),
    (
        Fuse(GEMM),
        Fused(GEMM, 1.0),
        "gemm fused, x 1 of their time (memory traffic that fusing saves is not known)",
    ),
    (
        Attention(flash=True),
        AttentionKernel(is_fused=True),
        "attention as one fused kernel, costed from its shapes",
    ),
    (
        Attention(flash=False, of=GEMM, is_causal=True),
        AttentionKernel(is_fused=False, selection=GEMM, is_causal=True),
        (
            "attention as products and a softmax, costed from their shapes (without dropout, the "
            "memory of scores and the host time of more launches)"
        ),
    ),
    (
        CudaGraphs(),
        Graphed(Selection()),
        "all work launched as CUDA graphs (if it can be captured: shapes stay the same)",
    ),
    (
        RemoveSync(),
        Unsynchronised(Selection()),
        "the host does not wait at all calls",
    ),
    (
        RemoveSync("cudaStream*", Selection(part=Part.LOSS)),
        Unsynchronised(Selection(part=Part.LOSS), "cudaStream*"),
        "the host does not wait at cudaStream* of all work loss",
    ),
    (
        MoveSync(2, "cudaStream*"),
        Unsynchronised(Selection(), "cudaStream*", 2),
        "the host waits at cudaStream* for what it waited for 2 steps before",
    ),
    (DataLoading(5 * MS), Loading(5 * MS), "data loading takes 5 ms"),
    (
        DataLoading(factor=0.5, ranks=(1, 3)),
        Loading(None, 0.5, (1, 3)),
        "data loading x 0.5 on rank 1,3",
    ),
    (
        Network(MS, 2.0, ("dp",)),
        SlowerNetwork(("dp",), MS, 2.0),
        "transfers of dp x 2 + 1 ms",
    ),
]


def scenario() -> Scenario:
    return Scenario(sizes=Sizes(), plan=Plan())


@pytest.mark.parametrize(("edit", "change", "sentence"), EDITS, ids=[each[2] for each in EDITS])
def test_an_edit_adds_its_change_and_says_so(
    edit: Edit, change: DurationChange, sentence: str
) -> None:
    assert edit.applied(scenario()).changes == (change,)
    assert edit.sentence(scenario()) == sentence


def test_edits_add_to_those_before_them() -> None:
    found = scenario()
    for edit in (Speed(2.0), CudaGraphs(GEMM)):
        found = edit.applied(found)

    assert found.changes == (Times(Selection(), 0.5), Graphed(GEMM))


@pytest.mark.parametrize(
    ("make", "arguments"),
    [
        (Speed, {"factor": 0}),
        (Speed, {"factor": float("inf")}),
        (Speed, {"factor": float("nan")}),
        (Lasts, {"duration_ns": -1}),
        (Fuse, {"of": GEMM, "factor": -0.1}),
        (MoveSync, {"steps": 0}),
        (MoveSync, {"steps": 1.5}),
        (DataLoading, {"duration_ns": -1}),
        (DataLoading, {"factor": float("nan")}),
        (DataLoading, {"duration_ns": 5, "factor": 2.0}),
        (Network, {"factor": -1.0}),
    ],
)
def test_what_no_time_can_be_is_refused(make: Any, arguments: dict[str, object]) -> None:
    with pytest.raises(ScenarioError):
        make(**arguments)
