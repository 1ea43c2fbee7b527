"""Blocks against a recorded forward pass of Megatron: GPT of 40 layers on 8 tensor ranks."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretrace.cost import FittedKernels, operation_of
from foretrace.machine import load_chip
from foretrace.operators import parsed_shapes
from foretrace.workload import Group, Implementation, ModelBlocks, Plan, Precision, blocks_of_model
from tests.models import transformer
from tests.workload.blocks.counting import exchanges, operators, parts

LAYERS, FORMAT = 40, "fp16"


@pytest.fixture(scope="module")
def recorded(data_dir: Path) -> list[dict[str, Any]]:
    path = data_dir / "traces" / "megatron-tp8" / "kineto_rank0.json.gz"
    if not path.is_file():
        pytest.skip(f"{path.name} of megatron-tp8 is not there")
    with gzip.open(path) as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    return events


@pytest.fixture(scope="module")
def blocks() -> ModelBlocks:
    """Sizes as the recording's shapes say: 8 heads of 64 a rank, 4 sequences of 2048."""
    gpt = transformer("gpt3-6.7b")
    model = replace(
        gpt,
        num_layers=LAYERS,
        vocabulary=51_200,
        attention=replace(gpt.attention, num_heads=64, num_kv_heads=64, head_size=64),
    )
    plan = Plan(
        tensor=8,
        micro_batch=4,
        sequence=2048,
        precision=Precision(products=FORMAT, activations=FORMAT, parameters=FORMAT),
        implementation=Implementation(attention="plain", fuses_loss=False, fuses_residuals=True),
    )
    return blocks_of_model(model, plan)


def _matrices(dims: list[list[int]]) -> list[list[int]]:
    """The operands of a product: the last two of two or more dimensions."""
    return [one for one in dims if len(one) > 1][-2:]


def test_products_are_those_of_the_recording(
    recorded: list[dict[str, Any]], blocks: ModelBlocks
) -> None:
    names = ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm")
    want = Counter(
        tuple(map(tuple, _matrices(event["args"]["Input Dims"])))
        for event in recorded
        if event.get("name") in names and "Input Dims" in event.get("args", {})
    )

    found: Counter[tuple[tuple[int, ...], ...]] = Counter()
    for one in parts(blocks):
        for operator in operators(one.forward):
            shapes = parsed_shapes(operator.signature)
            if operator.name in names and shapes is not None:
                found[tuple(tensor.shape for tensor in shapes.single[-2:])] += 1

    assert found == want


def test_all_reduces_are_those_of_the_recording(
    recorded: list[dict[str, Any]], blocks: ModelBlocks
) -> None:
    kernels = Counter(
        event["name"].split("_")[3]
        for event in recorded
        if event.get("cat") == "kernel" and event["name"].startswith("ncclDevKernel_AllReduce")
    )

    sent = [one for part in parts(blocks) for one in exchanges(part.forward)]

    assert {one.group for one in sent} == {Group.TENSOR}
    assert Counter({"fp16": "f16", "fp32": "f32"}[one.dtype] for one in sent) == kernels
    assert {one.num_bytes for one in sent if one.dtype == FORMAT} == {8192 * 4096 * 2}


def test_operators_on_the_device_are_as_many_but_for_added_biases(
    recorded: list[dict[str, Any]], blocks: ModelBlocks
) -> None:
    device = [event for event in recorded if event.get("cat") == "kernel"]

    found = sum(len(part.forward.items) for part in parts(blocks))

    # Megatron's own linear layer adds the bias of queries, keys and values in a kernel of its
    # own, and makes the mask anew in a few dozen small ones.
    assert len(device) - LAYERS == pytest.approx(found, rel=0.06)


def test_costs_add_up_to_the_recorded_work_within_a_twentieth(
    recorded: list[dict[str, Any]], blocks: ModelBlocks
) -> None:
    measured_us = sum(
        event["dur"]
        for event in recorded
        if event.get("cat") == "kernel" and "nccl" not in event["name"]
    )
    operations = [
        operation_of(one.name, one.signature)
        for part in parts(blocks)
        for one in operators(part.forward)
    ]

    costs = FittedKernels(load_chip("a100-sxm-80gb")).operation_costs(operations)

    assert costs.duration_ns.sum() / 1e3 == pytest.approx(measured_us, rel=0.05)
