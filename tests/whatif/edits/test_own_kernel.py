"""An operator that a user described, in the place of kernels of a job."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from foretrace import api
from foretrace.base import ModelError, ScenarioError
from foretrace.cost import FittedKernels, Operation, Source, described_costs
from foretrace.machine import load_chip
from foretrace.operators import parsed_operator
from foretrace.whatif import OwnKernel, edits_of
from foretrace.workload import PlanDraft

PRODUCT = "def mm(bf16(4096, 2048) A, bf16(2048, 8192) B) -> (C) { C(m, n) +=! A(m, k) * B(k, n) }"
SUM = "def add(fp32(4096, 4096) A, fp32(4096, 4096) B) -> (C) { C(i, j) = A(i, j) + B(i, j) }"
A100 = FittedKernels(load_chip("a100-sxm-80gb"))


def test_a_product_is_costed_as_one_and_the_rest_by_its_traffic() -> None:
    product = Operation("gemm", "library", "bf16", (1, 4_096, 8_192, 2_048))
    found = described_costs(parsed_operator(PRODUCT), A100)
    assert np.array_equal(found.duration_ns, A100.operation_costs([product]).duration_ns)
    added = described_costs(parsed_operator(SUM), A100)
    least_ns = 3 * 4 * 4_096**2 / A100.chip.memory_bytes_per_ns
    assert least_ns < added.duration_ns[0] < 1.5 * least_ns


def test_selected_kernels_take_what_it_takes(tmp_path: Path) -> None:
    path = tmp_path / "mm.txt"
    path.write_text(PRODUCT, encoding="utf-8")
    stated = {"global_batch": 8, "micro_batch": 1, "sequence": 1024}
    base = api.estimate("llama3.2-1b", PlanDraft().with_keys(stated), "dgx-a100")
    (edit,) = edits_of({"kernel": [f"{path}=attention"]}, "a test")
    assert isinstance(edit, OwnKernel)
    found = base.edit(edit).predict()

    lasts_ns = described_costs(edit.operator, A100).duration_ns[0]
    changed = found.costs.duration_ns != base.costs.duration_ns
    assert changed.any()
    assert (found.costs.duration_ns[changed] == lasts_ns).all()
    assert set(found.costs.source[changed].tolist()) == {Source.FITTED}
    assert found.effects[0].sentence.startswith("attention as mm: 137 GFLOP, ")
    with pytest.raises(ScenarioError, match="take the place of the same work"):
        base.edit(edit, *edits_of({"kernel": [f"{path}=all"]}, "a test")).predict()


def test_what_is_not_understood_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mm.txt"
    path.write_text(PRODUCT.replace("B(k, n)", "B(k)"), encoding="utf-8")
    with pytest.raises(ModelError, match=r"mm.txt, line 1: B has 2 dimensions.*\n.*\n *\^"):
        edits_of({"kernel": [f"{path}=gemm"]}, "a test")
    with pytest.raises(ScenarioError, match="names no work"):
        edits_of({"kernel": [str(path)]}, "a test")
    with pytest.raises(ModelError, match="cannot be read"):
        edits_of({"kernel": [f"{tmp_path}/none.txt=gemm"]}, "a test")
