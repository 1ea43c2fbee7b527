from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from foretrace.base import WorkloadError
from foretrace.numerics import (
    CorruptionFound,
    checked_attention,
    checks,
    measured_overhead,
    protect,
)
from foretrace.numerics.checks import (
    CheckedTable,
    CheckedWeight,
    attention_sums,
    checked_int8_product,
    checked_int8_weight,
    int8_sums,
    rounding_threshold,
    wrong_attention,
    wrong_bags,
    wrong_int8_rows,
    wrong_rows,
)
from foretrace.numerics.formats import float_format

if TYPE_CHECKING:
    import torch
else:
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

from torch.overrides import TorchFunctionMode

TRIALS = 150


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def integers(low: int, *size: int, of: torch.Generator) -> torch.Tensor:
    return torch.randint(low, 128, size, generator=of, dtype=torch.int8)


def test_an_int8_product_is_the_product(generator: torch.Generator) -> None:
    given, weight = integers(0, 16, 64, of=generator), integers(-127, 64, 24, of=generator)

    found, wrong = checked_int8_product(given, checked_int8_weight(weight))

    assert torch.equal(found, given.int() @ weight.int())
    assert not wrong.any()


@pytest.mark.parametrize(("modulus", "is_odd"), [(127, True), (101, True), (128, False)])
def test_flipped_accumulator_bits_are_caught_by_odd_moduli_alone(
    modulus: int, is_odd: bool, generator: torch.Generator
) -> None:
    given, weight = integers(0, 8, 32, of=generator), integers(-127, 32, 16, of=generator)
    sums = int8_sums(given, checked_int8_weight(weight, modulus))

    caught = []
    for bit in range(31):
        for column in range(16):
            struck = sums.clone()
            struck[:, column] ^= 1 << bit
            caught += wrong_int8_rows(struck, modulus).tolist()

    assert sum(caught) / len(caught) == 1.0 if is_odd else sum(caught) / len(caught) < 0.3


@pytest.mark.parametrize("zeros", [0.0, 0.5])
def test_flipped_weights_are_caught(zeros: float, generator: torch.Generator) -> None:
    caught, false = 0, 0
    for _ in range(TRIALS):
        given, weight = integers(0, 16, 64, of=generator), integers(-127, 64, 32, of=generator)
        given[torch.rand(given.shape, generator=generator) < zeros] = 0
        held = checked_int8_weight(weight)
        false += int(checked_int8_product(given, held)[1].sum())
        struck = held.values.clone()
        row, column, bit = (int(torch.randint(n, (), generator=generator)) for n in (64, 32, 8))
        struck.view(torch.uint8)[row, column] ^= 1 << bit
        sums = int8_sums(given, replace(held, values=struck))
        caught += bool(wrong_int8_rows(sums).any())

    assert caught / TRIALS >= 0.99
    assert false == 0


def bag_rates(tolerance: float, generator: torch.Generator) -> dict[str, float]:
    """Shares of bags that are called wrong: of clean ones, and with a high or low bit flipped."""
    size, width = 400, 64
    rows = integers(-127, size, width, of=generator)
    scales = 0.01 + 0.02 * torch.rand(size, generator=generator)
    biases = torch.rand(size, generator=generator) - 0.5
    table = CheckedTable.of(rows, scales, biases)
    bags = torch.randint(size, (TRIALS, 100), generator=generator)
    clean = table.pooled(bags)
    found = {"false": float(wrong_bags(table, bags, clean, tolerance=tolerance).float().mean())}
    for name, low in (("high", 4), ("low", 0)):
        bit = low + torch.randint(4, (TRIALS,), generator=generator)
        column = torch.randint(width, (TRIALS,), generator=generator)
        kept = rows[bags[:, 0], column]
        struck = (kept.view(torch.uint8) ^ (1 << bit).to(torch.uint8)).view(torch.int8)
        change = (struck.float() - kept.float()) * scales[bags[:, 0]]
        pooled = clean.clone()
        pooled[torch.arange(TRIALS), column] += change
        wrong = wrong_bags(table, bags, pooled, tolerance=tolerance)
        found[name] = float(wrong.float().mean())
    return found


def test_embedding_sums_trade_false_alarms_for_small_bits(generator: torch.Generator) -> None:
    tight, usual, loose = (bag_rates(one, generator) for one in (1e-8, 1e-5, 1e-3))

    assert tight["false"] > 0.1
    assert usual["false"] == 0
    assert usual["high"] > 0.97
    assert usual["low"] > loose["low"]
    assert loose["high"] < usual["high"]


@pytest.mark.parametrize("name", ["fp32", "bf16"])
@pytest.mark.parametrize("shape", ["normal", "positive"])
def test_thresholds_are_near_what_rounding_does(
    name: str, shape: str, generator: torch.Generator
) -> None:
    given = torch.randn(2048, 256, generator=generator)
    weight = torch.randn(256, 128, generator=generator)
    if shape == "positive":
        given, weight = given.abs(), weight.abs()
    kind = torch.bfloat16 if name == "bf16" else torch.float32
    given, weight = given.to(kind), weight.to(kind)
    held, product = CheckedWeight.of(weight), given @ weight
    output = float_format(name)

    limit = rounding_threshold(given, held, product, output=output)

    error = (product.double().sum(-1) - given.double() @ held.sums).abs()
    assert not wrong_rows(given, held, product, output=output).any()
    # V-ABFT's published thresholds are 7 to 20 times the error in fp32, 48 to 158 in bf16.
    assert float((limit / error.max()).max()) < (20 if name == "fp32" else 48)


def test_float_products_notice_what_is_above_rounding(generator: torch.Generator) -> None:
    given = torch.randn(32, 64, generator=generator)
    weight = torch.randn(64, 16, generator=generator)
    held = CheckedWeight.of(weight)
    for value in (1e-2, 1e30, float("inf"), float("nan")):
        product = given @ weight
        product[5, 3] += value
        assert wrong_rows(given, held, product).nonzero().flatten().tolist() == [5]


def test_attention_is_attention_and_notices_stored_faults(generator: torch.Generator) -> None:
    queries, keys, values = (torch.randn(2, 24, 16, generator=generator) for _ in range(3))
    sums = attention_sums(keys, values)

    out, wrong = checked_attention(queries, keys, values, sums=sums)
    right = torch.nn.functional.scaled_dot_product_attention(queries, keys, values)
    assert torch.allclose(out, right, atol=1e-5)
    assert not wrong.any()
    for one in (keys, values):
        kept = float(one[1, 7, 3])
        one[1, 7, 3] = kept + 4
        _, wrong = checked_attention(queries, keys, values, sums=sums)
        assert bool(wrong[1].any())
        assert not wrong[0].any()
        one[1, 7, 3] = kept


def small_model() -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4, bias=False)
    return torch.nn.Sequential(torch.nn.EmbeddingBag(20, 8, mode="mean"), *layers)


@pytest.mark.parametrize("name", ["0.weight", "1.weight", "1.bias", "3.weight"])
def test_a_protected_model_says_which_module_was_struck(name: str) -> None:
    model, bags = small_model(), torch.randint(20, (6, 5))
    seen: list[CorruptionFound] = []
    clean = model(bags)

    with protect(model, on_error=seen.append) as guard:
        assert torch.equal(model(bags), clean)
        assert seen == []
        model.get_parameter(name).data += 3.0
        model(bags)
        guard.encode()
        model(bags)

    assert guard.num_modules == 3
    assert [one.module for one in seen] == [name[0]]
    model.get_parameter(name).data.zero_()
    model(bags)
    assert len(seen) == 1


def test_overhead_is_measured_here() -> None:
    found = measured_overhead(small_model(), torch.randint(20, (64, 5)), repeats=3)

    assert found.rows[1].time_ns > 0
    assert "3 modules" in found.headline


def test_what_cannot_be_checked_is_said() -> None:
    with pytest.raises(WorkloadError, match="has no linear layer, embedding bag or attention"):
        protect(torch.nn.ReLU())
    with pytest.raises(WorkloadError, match="a modulus of 200 cannot be"):
        checked_int8_weight(torch.ones(2, 2, dtype=torch.int8), 200)
    with pytest.raises(WorkloadError, match="expected an int8 matrix"):
        checked_int8_weight(torch.ones(2, 2))


class Attending(torch.nn.Module):
    """Attention by PyTorch's fused function, behind a linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(48, 96)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        query, key, value = self.inner(given).unflatten(-1, (2, 48)).mT.chunk(3, -2)
        fused = torch.nn.functional.scaled_dot_product_attention
        return fused(query, key, value, is_causal=True)


class Striking(TorchFunctionMode):
    """A fault within a kernel of attention: one bit of its result."""

    def __init__(self, *kernels: Any) -> None:
        super().__init__()
        self.kernels = kernels

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> torch.Tensor:
        found: torch.Tensor = func(*args, **(kwargs or {}))
        if func in self.kernels:
            with torch.no_grad():
                found[(0,) * found.dim()].view(torch.int32).bitwise_xor_(1 << 29)
        return found


def test_fused_attention_in_a_protected_model_is_checked(generator: torch.Generator) -> None:
    torch.manual_seed(0)
    model, given = Attending(), torch.randn(4, 64, 48, generator=generator)
    with protect(model) as guard:
        with torch.no_grad():
            model(given)
        assert guard.found == []
        with torch.no_grad(), Striking(torch.nn.functional.scaled_dot_product_attention):
            model(given)
        assert [one.module for one in guard.found] == ["attention"]
        assert guard.found[0].call == 1


@pytest.mark.parametrize("keeps_weights", [True, False])
@pytest.mark.parametrize("is_self", [True, False])
def test_products_of_multihead_attention_are_checked(
    keeps_weights: bool, is_self: bool, generator: torch.Generator
) -> None:
    torch.manual_seed(0)
    model = torch.nn.MultiheadAttention(32, 4, batch_first=True)
    queries = torch.randn(2, 24, 32, generator=generator)
    keys = queries if is_self else torch.randn(2, 9, 32, generator=generator)
    kernels = torch.bmm, torch.nn.functional.scaled_dot_product_attention

    def run() -> torch.Tensor:
        found: torch.Tensor = model(queries, keys, keys, need_weights=keeps_weights)[0]
        return found

    with torch.no_grad(), protect(model) as guard:
        run()
        assert guard.found == []
        with Striking(*kernels):
            run()
        assert [one.module for one in guard.found] == ["attention"]
        for name, parameter in model.named_parameters():
            guard.found.clear()
            kept = parameter.clone()
            parameter.view(-1)[5] += 0.5
            run()
            assert [one.module for one in guard.found] == [""], name
            parameter.copy_(kept)


def test_an_encoder_of_pytorch_is_checked_while_it_trains(generator: torch.Generator) -> None:
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(32, 4, batch_first=True)
    given = torch.randn(2, 24, 32, generator=generator)
    with protect(layer) as guard:
        layer(given).sum().backward()
        assert guard.num_modules == 3
        assert guard.found == []
        layer.self_attn.out_proj.weight.data[3, 4] += 0.5
        layer(given)
    assert [one.module for one in guard.found] == ["self_attn"]


@pytest.mark.parametrize("masked", ["no", "causal", "by row", "alike", "added"])
def test_attention_is_computed_again_some_rows_at_a_time(
    masked: str, generator: torch.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = torch.randn(2, 4, 12, 8, generator=generator)
    keys, values = torch.randn(2, 2, 2, 12, 8, generator=generator)
    is_kept = torch.rand(12, 12, generator=generator) < 0.7
    is_kept[:, 0] = True
    told: dict[str, dict[str, Any]] = {
        "no": {}, "causal": {"is_causal": True}, "by row": {"attn_mask": is_kept},
        "alike": {"attn_mask": is_kept[:1]},
        "added": {"attn_mask": torch.randn(12, 12, generator=generator)},
    }  # fmt: skip
    out = torch.nn.functional.scaled_dot_product_attention(
        queries, keys, values, enable_gqa=True, **told[masked]
    )
    struck = out.clone()
    struck[1, 3, 7, 2] += 0.1

    found = []
    for scores in (1 << 24, 5 * 8 * 12, 1):
        monkeypatch.setattr(checks, "_SCORES", scores)
        given = queries, keys, values
        right = wrong_attention(out, *given, enable_gqa=True, **told[masked])
        wrong = wrong_attention(struck, *given, enable_gqa=True, **told[masked])
        assert not right.any()
        found.append(wrong.nonzero().tolist())

    assert found == [[[1, 3, 7]]] * 3


def test_bags_whose_sums_are_others_are_not_called_wrong(generator: torch.Generator) -> None:
    bags = torch.randint(20, (6, 5), generator=generator)
    weights = torch.rand(6, 5, generator=generator)
    plain = torch.nn.EmbeddingBag(20, 8, mode="sum")
    padded = torch.nn.Sequential(
        torch.nn.EmbeddingBag(20, 8, mode="mean", padding_idx=3), torch.nn.Linear(8, 2)
    )

    with protect(plain) as guard, protect(padded) as other:
        plain(bags, per_sample_weights=weights)
        plain(bags, None, weights)
        plain(input=bags)
        padded(bags)

    assert guard.found == other.found == []
    assert other.num_modules == 1
    with protect(plain) as guard:
        plain.weight.data[int(bags[0, 0]), 0] += 1
        plain(input=bags)
    assert [one.module for one in guard.found] == [""]
