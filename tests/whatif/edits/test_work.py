from __future__ import annotations

import json
from typing import Any

import pytest

from foretrace.analyze import Selection, selection_of
from foretrace.base import ScenarioError
from foretrace.graph import Part
from foretrace.whatif import (
    Attention,
    CudaGraphs,
    DataLoading,
    Delay,
    Fuse,
    Lasts,
    MoveSync,
    Network,
    RemoveSync,
    Scenario,
    Sizes,
    Speed,
    WorkEdit,
)
from foretrace.workload import Plan

GEMM = Selection(named="gemm")
MS = 1_000_000

EDITS: list[tuple[WorkEdit, str]] = [
    (Speed(1.25, GEMM), "gemm x 1.25 as fast"),
    (Speed(0.5, GEMM), "gemm takes x 2 as long"),
    (Lasts(200_000, GEMM), "gemm takes 0.2 ms each"),
    (
        Delay(2 * MS, Selection(parts=(Part.DATA,), ranks=(1,))),
        "each block of all work data rank 1 begins 2 ms later on the host",
    ),
    (
        Delay(-2 * MS, GEMM, once_per_block=False, on_device=True),
        "gemm begins 2 ms sooner on the device",
    ),
    (Fuse(GEMM, 0.5), "gemm fused, x 0.5 of their time"),
    (
        Fuse(GEMM),
        "gemm fused, x 1 of their time (memory traffic that fusing saves is not known)",
    ),
    (
        Attention(flash=True),
        "attention as one fused kernel",
    ),
    (
        Attention(flash=False, of=GEMM, is_causal=True),
        (
            "attention as products and a softmax, costed from their shapes (without dropout, the "
            "memory of scores and the host time of more launches)"
        ),
    ),
    (
        CudaGraphs(),
        "all work launched as CUDA graphs (if it can be captured: shapes stay the same)",
    ),
    (
        RemoveSync(),
        "the host does not wait at all calls",
    ),
    (
        RemoveSync("cudaStream*", Selection(parts=(Part.LOSS,))),
        "the host does not wait at cudaStream* of all work loss",
    ),
    (
        MoveSync(2, "cudaStream*"),
        "the host waits at cudaStream* for what it waited for 2 steps before",
    ),
    (DataLoading(5 * MS), "data loading takes 5 ms"),
    (
        DataLoading(factor=0.5, ranks=(1, 3)),
        "data loading x 0.5 on rank 1,3",
    ),
    (
        Network(MS, 2.0, ("dp",)),
        "transfers of dp x 2 + 1 ms",
    ),
]


def scenario() -> Scenario:
    return Scenario(sizes=Sizes(), plan=Plan())


@pytest.mark.parametrize(("edit", "sentence"), EDITS, ids=[each[1] for each in EDITS])
def test_an_edit_is_kept_in_the_scenario_and_says_so(edit: WorkEdit, sentence: str) -> None:
    assert edit.applied(scenario()).changes == (edit,)
    assert edit.sentence(scenario()) == sentence


@pytest.mark.parametrize("edit", [each[0] for each in EDITS], ids=[each[1] for each in EDITS])
def test_an_edit_in_json_is_its_name_and_its_fields(edit: WorkEdit) -> None:
    found = json.loads(json.dumps(edit.as_json()))

    assert found.pop("edit") == type(edit).__name__
    again = {
        name: selection_of(each) if name == "of" else tuple(each) if type(each) is list else each
        for name, each in found.items()
    }
    assert type(edit)(**again) == edit


def test_edits_add_to_those_before_them() -> None:
    found = scenario()
    for edit in (Speed(2.0), CudaGraphs(GEMM)):
        found = edit.applied(found)

    assert found.changes == (Speed(2.0, Selection()), CudaGraphs(GEMM))


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
