"""Activations of a layer are those that Korthikanti et al. count, arXiv 2205.05198, section 4."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.workload import (
    MEGATRON,
    Implementation,
    Plan,
    Recompute,
)
from foretrace.workload.footprint.parts import layer_bytes
from tests.models import transformer

_DROPPING = replace(MEGATRON, has_dropout=True)
_PLAIN = Plan(
    micro_batch=2,
    global_batch=2,
    sequence=2048,
    implementation=Implementation(attention="plain"),
)


def counted(plan: Plan) -> float:
    """Bytes of a layer in units of s * b * h, without the statistics of norms.

    The paper leaves those out as small: two fp32 numbers a token and norm.
    """
    model = transformer("gpt3-175b")
    kept = layer_bytes(model, plan, _DROPPING, layer=model.layers[0]).kept
    total = sum(each.num_bytes for each in kept if "statistics" not in each.label)
    return total / (plan.sequence * plan.micro_batch * model.hidden)


_SCORES = 5 * 96 * 2048 / 12288  # 5 a s / h of GPT-3 175B


@pytest.mark.parametrize(
    ("plan", "expected"),
    [
        (_PLAIN, 34 + _SCORES),
        (replace(_PLAIN, tensor=8), 10 + 24 / 8 + _SCORES / 8),
        (replace(_PLAIN, tensor=8, sequence_parallel=True), (34 + _SCORES) / 8),
        (
            replace(_PLAIN, tensor=8, sequence_parallel=True, recompute=Recompute.SELECTIVE),
            34 / 8,
        ),
        (replace(_PLAIN, recompute=Recompute.FULL), 2),
    ],
    ids=["alone", "tensor", "tensor and sequence", "selective", "full"],
)
def test_a_layer_keeps_what_table_2_of_the_paper_says(plan: Plan, expected: float) -> None:
    assert counted(plan) == pytest.approx(expected, rel=1e-9)
