from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import OperatorTable, chip_of, operators, roofline
from foretrace.graph import NodeKind
from foretrace.machine import Chip, load_chip
from foretrace.simulate import simulate
from tests.graphs import GraphBuilder

GEMM = "cutlass_80_tensorop_f16_s16816gemm_f16_128x128_nn"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<c10::Half>>"
HALF = '"types":["c10::Half","c10::Half"]}'
LARGE = '{"dims":[[4096,4096],[4096,4096]],' + HALF
SUM = '{"dims":[[1024,1024],[1024,1024]],' + HALF


@pytest.fixture(scope="module")
def chip() -> Chip:
    """A chip with round limits: 200 TFLOP/s in fp16, 1 TB/s, 25 GB/s to the host."""
    real = load_chip("a100-sxm-80gb")
    return replace(
        real,
        peak_by_dtype={"fp16": 200_000.0, "fp32": 20_000.0},
        memory_bytes_per_ns=1000.0,
        host_bytes_per_ns=25.0,
    )


def _table(name: str, operator: str, shapes: str, takes_ns: int) -> OperatorTable:
    build = GraphBuilder()
    build.add(
        NodeKind.KERNEL,
        lane="stream 7",
        name=name,
        operator=operator,
        shapes=shapes,
        takes_ns=takes_ns,
    )
    return operators(simulate(build.graph()))


def test_large_product_is_bound_by_compute(chip: Chip) -> None:
    takes_ns = 1_000_000

    (point,) = roofline(_table(GEMM, "aten::mm", LARGE, takes_ns), chip=chip).points

    assert point.flops == 2 * 4096**3
    assert point.intensity == pytest.approx(4096 / 3)
    assert point.bound == "compute"
    assert point.share == pytest.approx(2 * 4096**3 / takes_ns / 200_000)


def test_addition_is_bound_by_memory_and_held_against_vector_units(chip: Chip) -> None:
    (point,) = roofline(_table(ADD, "aten::add", SUM, 10_000), chip=chip).points

    assert point.num_bytes == 3 * 2 * 1024**2
    assert point.bound == "memory"
    assert point.share == pytest.approx(3 * 2 * 1024**2 / 10_000 / 1000)
    assert point.flops_limit_per_ns == 20_000  # fp16 sums run as fp32 on vector units


def test_copy_from_the_host_is_held_against_its_link(chip: Chip) -> None:
    table = _table("Memcpy HtoD (Pinned -> Device)", "aten::copy_", SUM, 100_000)

    (point,) = roofline(table, chip=chip).points

    assert point.memory_share == pytest.approx(2 * 1024**2 / 100_000 / 25)


def test_without_a_chip_there_are_rates_and_no_shares() -> None:
    found = roofline(_table(GEMM, "aten::mm", LARGE, 1_000_000))

    (point,) = found.points
    assert point.flops_per_ns > 0
    assert (point.share, point.bound, found.chip_name) == (None, "", None)
    assert found.to_polars()["share"].to_list() == [None]


def test_format_that_the_chip_does_not_know_has_no_share(chip: Chip) -> None:
    shapes = LARGE.replace("Half", "BFloat16")

    (point,) = roofline(_table(GEMM, "aten::mm", shapes, 1_000_000), chip=chip).points

    assert (point.compute_share, point.share) == (None, None)
    assert point.memory_share is not None


def test_kernels_without_shapes_or_operator_lower_what_is_covered() -> None:
    build = GraphBuilder()
    rows = [(ADD, "aten::add", SUM), (ADD, "aten::add", ""), (ADD, "", ""), (GEMM, "", "")]
    for name, operator, shapes in rows:
        build.add(
            NodeKind.KERNEL,
            lane="stream 7",
            name=name,
            operator=operator,
            shapes=shapes,
            takes_ns=100,
        )
    build.collective({rank: [] for rank in (0, 1)}, transfer_ns=1000)

    found = roofline(operators(simulate(build.graph())))

    assert found.covered == 0.25


def test_devices_that_differ_or_are_unknown_are_no_one_chip() -> None:
    known = chip_of(["NVIDIA A100-SXM4-80GB"] * 8)

    assert known is not None
    assert known.name == "a100-sxm-80gb"
    assert chip_of(["NVIDIA A100-SXM4-80GB", "Tesla V100-SXM2-32GB"]) is None
    assert chip_of(["abacus"]) is None
    assert chip_of([]) is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trace", "name"),
    [
        ("megatron-tp8", "a100-sxm-80gb"),
        ("h100-inference/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", "h100-sxm"),
        ("mi300-inference/Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz", "mi300x"),
    ],
)
def test_no_product_or_attention_of_a_trace_beats_its_chip(
    data_dir: Path, trace: str, name: str
) -> None:
    job = ft.load(data_dir / "traces" / trace)
    chip = chip_of(device for meta in job.metas for device in meta.device_names)

    found = roofline(operators(job.measured), chip=chip)

    assert found.chip_name == name
    assert found.covered > 0.5
    shares = [
        point.compute_share
        for point in found.points
        if point.kind in {"gemm", "attention", "convolution"} and point.compute_share is not None
    ]
    assert len(shares) > 2
    assert all(0 < share < 1 for share in shares)
    json.dumps(found.as_json())
