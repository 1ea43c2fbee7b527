"""Copies that serve products, and kernels that a line describes, found in a job's own work."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.analyze import selection_of
from foretrace.base import ScenarioError
from foretrace.cost import FittedKernels
from foretrace.graph import NodeKind, Timeline
from foretrace.machine import load_chip
from foretrace.simulate import simulate
from foretrace.whatif import OwnKernel
from foretrace.whatif.own_kernels import copied_contractions, own_kernel_rows
from tests.graphs import GraphBuilder

HEADS = [4, 8, 512, 64]  # as attention wants them; in memory lie 512 before 8
LINE = """def scores(bf16(32, 512, 64) Q, bf16(32, 512, 64) K) -> (S) {
    S(b, m, n) +=! Q(b, m, k) * K(b, n, k)
}"""


def shapes(*tensors: list[int], strides: list[list[int]] | None = None) -> str:
    said: dict[str, object] = {"dims": list(tensors), "types": ["c10::BFloat16"] * len(tensors)}
    return json.dumps(said | ({} if strides is None else {"strides": strides}))


class Step:
    """One step on one stream, kernel by kernel."""

    def __init__(self) -> None:
        self._build = GraphBuilder()
        self._begin = self._build.add(NodeKind.STEP_BEGIN, step="0")
        self._last = self._begin

    def kernel(self, name: str, takes_ns: int, *, operator: str, of: str, stream: int = 7) -> Step:
        after = [self._last]
        lane = f"stream {stream}"
        self._last = self._build.add(
            NodeKind.KERNEL, lane=lane, name=name, takes_ns=takes_ns, after=after, step="0",
            operator=operator, shapes=of,
        )  # fmt: skip
        return self

    def copy(self, takes_ns: int = 1_000, *, dims: list[int] = HEADS, stream: int = 7) -> Step:
        """Of a tensor whose second and third dimension change places."""
        _, second, third, fourth = dims
        even = [second * third * fourth, third * fourth, fourth, 1]
        uneven = [second * third * fourth, fourth, second * fourth, 1]
        of = shapes(dims, dims, strides=[even, uneven])
        return self.kernel("copy", takes_ns, operator="aten::copy_", of=of, stream=stream)

    def product(self, takes_ns: int = 10_000) -> Step:
        of = shapes([32, 512, 64], [32, 64, 512])
        return self.kernel("gemm", takes_ns, operator="aten::bmm", of=of)

    def timeline(self) -> Timeline:
        self._build.add(NodeKind.STEP_END, after=[self._last], step="0")
        return simulate(self._build.graph())


def test_copies_beside_a_product_are_what_a_product_through_strides_saves() -> None:
    step = Step().copy(1_000).copy(1_500).product().product()
    (row,) = copied_contractions(step.timeline())
    assert row.copied == "operand 0 2 1 3, operand 0 2 1 3"
    assert (row.shape, row.num_calls) == ("512 x 512 x 64, 32 at once", 1)
    assert (row.time_ns, row.copies_ns, row.worth_ns) == (10_000, 2_500, 2_500)
    assert row.gain == pytest.approx(1.25)
    assert row.worth_share == pytest.approx(2_500 / 22_500)


def test_a_result_that_is_copied_belongs_to_the_batched_product() -> None:
    inner = shapes([32, 512, 512], [32, 512, 64])
    step = Step().kernel("gemm", 7_000, operator="aten::bmm", of=inner).copy()
    step.kernel("gemm", 9_000, operator="aten::mm", of=shapes([2048, 512], [512, 512]))
    (row,) = copied_contractions(step.timeline())
    assert (row.copied, row.time_ns, row.worth_ns) == ("result 0 2 1 3", 7_000, 1_000)


def test_other_copies_are_left_alone() -> None:
    assert copied_contractions(Step().copy(dims=[4, 8, 512, 32]).product().timeline()) == ()
    assert copied_contractions(Step().copy(stream=9).product().timeline()) == ()
    straight = shapes(HEADS, HEADS, strides=[[262_144, 32_768, 64, 1]] * 2)
    step = Step().kernel("copy", 1_000, operator="aten::copy_", of=straight).product()
    assert copied_contractions(step.timeline()) == ()


def test_a_kernel_stands_under_the_roof_of_its_line(tmp_path: Path) -> None:
    file = tmp_path / "scores.txt"
    file.write_text(LINE)
    step = Step().kernel("mine", 40_000, operator="mine", of="").product()
    step.kernel("triton_poi_fused_add_0", 3_000, operator="", of="")
    kernels = FittedKernels(load_chip("h100-sxm"))
    line = OwnKernel(str(file), selection_of("kernels:mine"))
    mine, other = own_kernel_rows(step.timeline(), kernels, [line])
    assert (mine.kernel, mine.operator, mine.num_calls) == ("mine", "scores", 1)
    assert mine.work_flops == 2 * 32 * 512 * 512 * 64
    assert mine.num_bytes == 2 * 32 * (2 * 512 * 64 + 512 * 512)
    assert mine.bound == "memory", "57 operations to a byte; the chip has 295"
    assert mine.best_ns is not None
    assert mine.reached_share == pytest.approx(mine.best_ns / 40_000)
    assert (other.kernel, other.operator, other.best_ns) == ("triton_poi_fused_add_0", "", None)
    with pytest.raises(ScenarioError, match="another line are of the same kernels"):
        own_kernel_rows(step.timeline(), kernels, [line, line])
