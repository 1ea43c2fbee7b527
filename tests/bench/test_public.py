"""Public execution traces: every schema version is read, and nearly all of it is replayed."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from foretrace.bench import generate

PAIRS = ("linear", "resnet")
FILES = (
    "ddp2_et_1.0.2_rank0.json.gz",
    "resnet_1gpu_et_1.0.3.json.gz",
    "resnet_1gpu_et_1.1.1.json.tar.gz",
)
ENOUGH = 0.95


@pytest.mark.slow
@pytest.mark.parametrize("name", PAIRS)
def test_a_gpu_trace_is_covered_by_count_and_by_time(name: str, data_dir: Path) -> None:
    folder = data_dir / "traces/execution-traces"

    made = generate(folder / f"{name}_et.json.gz", kineto=folder / f"{name}_kineto.json.gz")

    coverage = made.program.coverage
    assert made.program.device == "cuda"
    assert coverage.share >= ENOUGH
    assert coverage.time_share is not None
    assert coverage.time_share >= ENOUGH


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
def test_every_schema_version_becomes_a_program(file: str, data_dir: Path) -> None:
    made = generate(data_dir / "traces/execution-traces" / file)

    ast.parse(made.text)
    assert made.program.coverage.share >= ENOUGH


def test_generated_kernels_are_left_out_and_named(data_dir: Path) -> None:
    made = generate(data_dir / "traces/execution-traces/pt2_et.json.tar.gz")

    reasons = {reason for _, reason, _, _ in made.program.coverage.unsupported}
    assert reasons == {"generated kernel"}
    assert "other(" in made.text
    assert "your_function" in made.text
