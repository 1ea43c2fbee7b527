"""Llama 3 405B on 8,192 and 16,384 GPUs: one efficiency from the first row predicts the others.

Fixed beforehand: 8 chunks a stage (126 layers and two that are left out make 16 x 8), as many
microbatches in a row as stages, FLOPs counted causally; gradients reduced layer by layer once a
step; axes placed as the paper orders them; attention kernels made for Hopper, products as in
software of which nothing is known.

Source:
    Llama Team, "The Llama 3 Herd of Models", arXiv:2407.21783, table 4 and section 3.3.2.
"""

from __future__ import annotations

from typing import NamedTuple

import pytest

from foretrace.cost import step_costs
from foretrace.estimate import estimate
from foretrace.machine import load_machine
from foretrace.software import UNKNOWN_SOFTWARE, kernel_factors, load_software
from foretrace.workload import Axis, Implementation, Plan, Sharding, load_model

_NUM_CHUNKS = 8
_LAYER_GRADIENT_BYTES = 1_600_000_000  # of one layer's share on a rank, in fp32
# Kernels of FlashAttention 2 on Hopper reach 62.9% of what its own instructions do:
# arXiv:2501.12084, section 6.2.
_NATIVE_ATTENTION = 0.629


class Row(NamedTuple):
    """A row of table 4."""

    data: int
    context: int
    sequence: int
    sequences_per_data: int
    tflops: float


_ROWS = (
    Row(64, 1, 8_192, 32, 430.0),
    Row(128, 1, 8_192, 16, 400.0),
    Row(8, 16, 131_072, 16, 380.0),
)


def _plan(row: Row) -> Plan:
    return Plan(
        tensor=8,
        context=row.context,
        pipeline=16,
        data=row.data,
        global_batch=row.data * row.sequences_per_data,
        sequence=row.sequence,
        schedule="interleaved",
        num_chunks=_NUM_CHUNKS,
        sequence_parallel=True,
        sharding=Sharding.ZERO1,
        bucket_bytes=_LAYER_GRADIENT_BYTES,
        order=(Axis.TENSOR, Axis.CONTEXT, Axis.PIPELINE, Axis.DATA),
        implementation=Implementation(fuses_residuals=True),
    )


@pytest.fixture(scope="module")
def relative() -> list[float]:
    """Predicted over printed FLOP/s of rows 2 and 3, times the efficiency of row 1."""
    machine, model = load_machine("llama3-24k"), load_model("llama3-405b")
    products = kernel_factors(load_software(UNKNOWN_SOFTWARE), machine.chip.architecture)
    costs = step_costs(machine, {**products, "attention": _NATIVE_ATTENTION})
    found = [
        estimate(model, _plan(row), machine, costs=costs).flops_per_ns_per_rank / 1e3
        for row in _ROWS
    ]
    efficiency = _ROWS[0].tflops / found[0]
    return [
        efficiency * tflops / row.tflops for tflops, row in zip(found[1:], _ROWS[1:], strict=True)
    ]


def test_twice_the_gpus_within_three_percent(relative: list[float]) -> None:
    assert relative[0] == pytest.approx(1.0, abs=0.03)


def test_sixteen_times_the_sequence_within_five_percent(relative: list[float]) -> None:
    assert relative[1] == pytest.approx(1.0, abs=0.05)


def test_both_together_are_better_than_the_bubble_alone(relative: list[float]) -> None:
    def bubble(row: Row) -> float:
        return 1 + 15 / (_NUM_CHUNKS * row.sequences_per_data)

    alone = [bubble(_ROWS[0]) / bubble(row) * _ROWS[0].tflops / row.tflops - 1 for row in _ROWS[1:]]

    off = sum(abs(one - 1) for one in relative)
    assert off < sum(abs(one) for one in alone)
