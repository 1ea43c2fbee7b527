"""Grouped products, as of experts, and fills: what stands for them has their work."""

from __future__ import annotations

import json

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

import torch
from torch import nn

from foretrace.capture import capture
from foretrace.capture.module.grouped import batched_signature
from foretrace.operators import work_of

ROWS, INNER, COLUMNS, GROUPS = 12, 8, 16, 3
WORK = 2 * ROWS * INNER * COLUMNS


def signature(*dims: list[int]) -> str:
    types = ["c10::BFloat16"] * 2 + ["int"] * (len(dims) - 2)
    return json.dumps(
        {"dims": dims, "types": types, "strides": [[]] * len(dims), "inputs": [""] * len(dims)}
    )


@pytest.mark.parametrize(
    "text",
    [
        signature([ROWS, INNER], [GROUPS, INNER, COLUMNS], [GROUPS]),
        signature([GROUPS, COLUMNS, INNER], [INNER, ROWS], [GROUPS]),
        signature([INNER, ROWS], [ROWS, COLUMNS], [GROUPS]),
        signature([GROUPS, ROWS // GROUPS, INNER], [GROUPS, INNER, COLUMNS]),
    ],
)
def test_a_grouped_product_has_the_work_of_a_batched_one(text: str) -> None:
    found = batched_signature(text)

    assert found is not None
    work = work_of("aten::bmm", found)
    assert work is not None
    assert work.flops == WORK


@pytest.mark.parametrize("text", ["", signature([ROWS, INNER], [INNER, COLUMNS])])
def test_shapes_that_do_not_tell_groups_give_none(text: str) -> None:
    assert batched_signature(text) is None


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        weight = torch.zeros(GROUPS, INNER, COLUMNS, dtype=torch.bfloat16)
        self.weight = nn.Parameter(weight)

    def forward(self, tokens: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
        found = torch._grouped_mm(tokens, self.weight, offs=ends)
        return torch.zeros_like(found).add(found).exp().sum()


def test_experts_products_are_counted_and_fills_read_nothing() -> None:
    tokens = torch.zeros(ROWS, INNER, dtype=torch.bfloat16)
    ends = torch.tensor([2, 4, ROWS], dtype=torch.int32)

    found = capture(Experts(), (tokens, ends))

    assert found.product_flops(is_backward=False) == WORK
    assert found.product_flops(is_backward=True) == WORK  # tokens need no gradient
    assert any("as many rows" in note for note in found.notes)
    fill = next(one for one in found.layers[0].forward if one.name == "aten::fill_")
    work = work_of(fill.name, fill.signature)
    assert work is not None
    assert (work.bytes_read, work.bytes_written) == (0, ROWS * COLUMNS * 2)
