from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from foretrace.base import WorkloadError
from foretrace.numerics import probe
from foretrace.numerics.probe import _row, narrow_products, training_format

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")


def gradient(text: str, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Output and weight gradient of one linear layer, of positive numbers."""
    torch.manual_seed(seed)
    layer = torch.nn.Linear(256, 8)
    layer.weight.data.abs_()
    given = torch.rand(64, 256)
    with narrow_products(training_format(text), seed):
        out = layer(given)
        out.sum().backward()
    assert layer.weight.grad is not None
    return out.detach(), layer.weight.grad


def error(text: str) -> float:
    found, right = gradient(text), gradient("fp32")
    return max(
        float(((one - other).abs() / other.abs()).mean())
        for one, other in zip(found, right, strict=True)
    )


def test_narrow_accumulators_lose_more_than_narrow_inputs() -> None:
    inputs, sums, cut = map(error, ("bf16", "bf16:bf16", "bf16:bf16:toward-zero"))

    assert error("fp32") == 0
    assert 0 < inputs < 2**-8
    assert inputs < sums < cut
    assert cut > 0.02
    assert torch.equal(gradient("fp32")[0], gradient("fp32")[0])


def test_a_probe_holds_formats_against_fp32() -> None:
    found = probe("lenet", formats=("bf16",), num_steps=3, num_seeds=2)

    assert [one.format for one in found.rows] == ["fp32", "bf16"]
    assert found.rows[0].distance == 0
    assert found.rows[1].parity == pytest.approx(1, abs=0.01)
    assert len(found.curves["bf16"]) == 3
    assert "too short to tell formats apart" in found.headline
    fell = dataclasses.replace(found, curves={**found.curves, "fp32": (9.0, 2.0, 1.0)})
    assert (found.rows[1].verdict == "yes") == ("as good as fp32: bf16" in fell.headline)


def verdict(losses: list[float], base: list[float]) -> str:
    return _row("bf16", losses, base).verdict


def test_few_seeds_that_happen_to_be_alike_decide_nothing() -> None:
    # Two seeds of fp32 that are close by chance: bf16 is 4 spreads off, and once below.
    assert verdict([0.507, 0.4995], [0.500, 0.501]) == "more seeds"
    assert (
        verdict([0.502, 0.497, 0.511, 0.488, 0.503], [0.500, 0.499, 0.510, 0.489, 0.501]) == "yes"
    )
    assert verdict([0.55, 0.56, 0.54, 0.57, 0.55], [0.500, 0.499, 0.510, 0.489, 0.501]) == "no"


def test_formats_that_differ_by_chance_are_seldom_called_worse() -> None:
    generator = torch.Generator().manual_seed(0)
    told = []
    for _ in range(400):
        base, other = torch.randn(2, 2, generator=generator).tolist()
        told.append(verdict(other, base))

    assert told.count("no") <= 0.05 * len(told)  # 2.5 % are beyond a two-sided interval of 95 %
    assert told.count("more seeds") > 0.5 * len(told)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model": "gpt-9"}, "no model is called 'gpt-9'"),
        ({"formats": ("bf9",)}, "the float format 'bf9' is unknown"),
        ({"formats": ("bf16:bf16:up",)}, "the rounding 'up' is unknown"),
        ({"num_seeds": 1}, "take 2 seeds"),
    ],
)
def test_what_cannot_be_probed_is_said(given: dict[str, object], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        probe(**given)  # type: ignore[arg-type]
