"""Fast products are products; what they cost keeps to their ceilings and to what was published."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from foretrace.base import MachineError
from foretrace.cost import (
    FastScheme,
    FittedKernels,
    KernelRequests,
    Offer,
    Operation,
    Substituted,
    rule_named,
    step_costs,
    substitution_rules,
)
from foretrace.machine import Chip, load_chip, load_machine

V100 = load_chip("v100-sxm2-16gb")
# NVIDIA H20: 78 of an H100's 132 processors, 148 TFLOP/s in bf16, 4 TB/s, 60 MB of level 2 cache.
H20 = replace(
    load_chip("h100-sxm"),
    name="h20",
    num_processors=78,
    memory_bytes_per_ns=4_000.0,
    peak_by_dtype={"bf16": 148_000.0, "fp32": 44_000.0},
    per_clock_by_dtype={},
)


def offers(name: str, chip: Chip, dtype: str, *, of: list[tuple[int, ...]]) -> list[Offer]:
    operations = [Operation("gemm", "library", dtype, (1, *sides)) for sides in of]
    found = rule_named(name).offers(operations, FittedKernels(chip))
    assert all(found)
    return [one for one in found if one is not None]


def crossover(name: str, chip: Chip, dtype: str) -> int:
    sides = range(512, 9_216, 64)
    pays = [one.pays for one in offers(name, chip, dtype, of=[(side,) * 3 for side in sides])]
    return sides[max(at for at, each in enumerate(pays) if not each) + 1]


@pytest.mark.parametrize(
    ("name", "levels"), [*product(("strassen", "winograd"), (1, 2)), ("winograd", 3)]
)
@pytest.mark.parametrize("sides", [(8, 8, 8), (5, 17, 3), (1, 9, 22)])
def test_a_scheme_multiplies(name: str, levels: int, sides: tuple[int, int, int]) -> None:
    rng = np.random.default_rng(levels)
    m, n, k = sides
    first = rng.integers(-9, 10, (m, k)).astype(np.float64)
    second = rng.integers(-9, 10, (k, n)).astype(np.float64)
    scheme = FastScheme.of(name, levels)

    assert scheme.num_products == 7**levels
    assert np.array_equal(scheme.multiplied(first, second), first @ second)


def test_strassen_touches_what_was_published() -> None:
    # 12 quarters of each operand and of the result in 7 products; 18 and 15 additions.
    assert FastScheme.of("strassen", 1).touched == (3.0, 3.0, 3.0)
    assert FastScheme.of("strassen", 1).kept == (5 / 4, 5 / 4, 7 / 4)
    assert FastScheme.of("winograd", 1).kept == (4 / 4, 4 / 4, 7 / 4)


def test_one_efficiency_gives_the_published_crossovers_and_gains_of_a_v100() -> None:
    # arXiv:1808.07984, in fp32: one level from 1,536 on, up to 1.11; two from 7,680 on, up to 1.19.
    for levels, published, gain in ((1, 1_536, 1.11), (2, 7_680, 1.19)):
        name = f"strassen:{levels}"
        largest = offers(name, V100, "fp32", of=[(20_480,) * 3])[0]
        assert published / 2 < crossover(name, V100, "fp32") < published * 2
        assert 1 / largest.factor == pytest.approx(gain, abs=0.03)


@pytest.mark.parametrize(("chip", "dtype"), [(V100, "fp32"), (V100, "fp16"), (H20, "bf16")])
def test_no_gain_is_above_what_the_arithmetic_allows(chip: Chip, dtype: str) -> None:
    shapes = list(product([512, 1_000, 4_097, 32_768, 131_072], repeat=3))
    for rule in substitution_rules():
        if not rule.name.startswith(("strassen", "winograd")):
            continue
        levels = int(rule.name[-1])
        found = offers(rule.name, chip, dtype, of=shapes)
        assert max(1 / one.factor for one in found) <= (8 / 7) ** levels + 1e-12
        assert all(one.workspace_bytes >= 0 for one in found)


def test_what_another_analytic_picker_gains_is_bracketed_on_its_shapes() -> None:
    # FalconGEMM (arXiv:2605.06057): 1.076 to 1.179 as means over layers of LLMs, on H20 and A100.
    layers = [(4_096, 4_096), (14_336, 4_096), (4_096, 14_336), (28_672, 8_192), (8_192, 28_672)]
    few, many = (
        [
            max(1 / offer.factor for offer in best)
            for best in zip(
                *(
                    offers(rule, H20, "bf16", of=[(tokens, n, k) for n, k in layers])
                    for rule in ("strassen:1", "winograd:1", "winograd:2")
                ),
                strict=True,
            )
        ]
        for tokens in (512, 16_384)
    )
    assert max(few) < 1, "of few tokens none can gain, which is said beforehand"
    assert min(many) < 1.179
    assert 1.076 < max(many) < 64 / 49


def test_small_and_narrow_products_are_left_alone() -> None:
    kernels = FittedKernels(V100)
    for one in (
        Operation("gemm", "library", "fp32", (1, 4_096, 200, 4_096)),
        Operation("movement", "stream", "fp32", (4_096, 0)),
        Operation(""),
    ):
        assert rule_named("strassen:1").offers([one], kernels) == (None,)


def requests(*sides: int) -> KernelRequests:
    texts = tuple(
        json.dumps({"dims": [[side, side]] * 2, "types": ["float"] * 2}) for side in sides
    )
    zeros = np.zeros(len(sides), np.int32)
    rows = np.arange(len(sides), dtype=np.int32)
    return KernelRequests(zeros, rows, zeros - 1, ("aten::mm",), texts, kernels=())


def test_costs_that_no_rule_betters_stay_to_the_nanosecond() -> None:
    machine = load_machine("dgx-a100")
    model = step_costs(machine)
    asked = requests(256, 512, 20_480)
    plain = model.kernel_costs(asked)
    for rules in ((), (rule_named("strassen:1"),)):
        found = Substituted(model, rules, machine.chip).kernel_costs(asked)
        assert np.array_equal(found.duration_ns[:2], plain.duration_ns[:2])
        assert (found.duration_ns[2] < plain.duration_ns[2]) == bool(rules)


def test_two_rules_about_one_operation_are_refused() -> None:
    machine = load_machine("dgx-a100")
    rules = (rule_named("strassen:1"), rule_named("winograd:1"))
    with pytest.raises(MachineError, match="two rules are about the gemm fp32"):
        Substituted(step_costs(machine), rules, machine.chip).kernel_costs(requests(4_096))


def test_a_rule_that_does_not_exist_is_named_with_the_nearest() -> None:
    with pytest.raises(MachineError, match=r"'strasen:1': did you mean strassen:1\?"):
        rule_named("strasen:1")
