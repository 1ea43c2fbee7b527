"""Kernels within a step, beside the same in a benchmark."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretrace.cost import (
    Chosen,
    CollectiveRequests,
    Costs,
    FittedCosts,
    FittedKernels,
    KernelRequests,
    Operation,
    Slower,
    Source,
    chosen_fit,
    constants_for,
    power_factor,
    shipped_constants,
    step_costs,
    under_lasting_load,
    write_constants,
)
from foretrace.machine import Chip, load_chip, load_machine
from foretrace.software import UNKNOWN_SOFTWARE, kernel_factors, load_software

_MM = '{"dims":[[4096,4096],[4096,4096]],"types":["c10::BFloat16","c10::BFloat16"]}'
_ONE = np.zeros(1, np.int32)


def _product() -> KernelRequests:
    return KernelRequests(_ONE, _ONE, _ONE - 1, ("aten::mm",), (_MM,), ())


def _gathering() -> CollectiveRequests:
    return CollectiveRequests(
        _ONE,
        np.array([1 << 26]),
        _ONE,
        _ONE,
        ("all_gather",),
        ("bf16",),
        (tuple(range(8)),),
    )


def test_the_longest_beginning_of_a_family_counts() -> None:
    costs = FittedCosts(load_machine("dgx-h100"))
    alone = costs.kernel_costs(_product())

    slower = Slower(costs, {"gemm": 2.0, "gemm library": 3.0, "movement": 5.0})
    found = slower.kernel_costs(_product())

    assert found.duration_ns == pytest.approx(3 * alone.duration_ns, rel=1e-5)
    assert found.low_ns[0] < found.duration_ns[0] < found.high_ns[0]


def test_a_collective_grows_by_its_own_factor_or_that_of_all() -> None:
    costs = FittedCosts(load_machine("dgx-h100"))
    alone = costs.collective_costs(_gathering()).duration_ns[0]

    own = Slower(costs, factor_by_collective={"": 2.0, "all": 4.0}).collective_costs(_gathering())
    every = Slower(costs, factor_by_collective={"": 2.0}).collective_costs(_gathering())
    none = Slower(costs, {"gemm": 2.0}).collective_costs(_gathering())

    assert own.duration_ns[0] == pytest.approx(4 * alone, rel=1e-5)
    assert every.duration_ns[0] == pytest.approx(2 * alone, rel=1e-5)
    assert none.duration_ns[0] == alone


def test_lasting_load_slows_short_products_as_much_as_long_ones() -> None:
    chip = load_chip("h100-sxm")
    sizes = ((1, 2048, 4096, 4096), (1, 65536, 16384, 16384))
    operations = [Operation("gemm", "library", "bf16", size) for size in sizes]

    cold = FittedKernels(chip).operation_costs(operations).duration_ns
    lasting = under_lasting_load(shipped_constants())
    warm = FittedKernels(chip, lasting).operation_costs(operations).duration_ns

    short, long = warm / cold
    assert 1.05 < short < 1.25  # the clock has fallen from the start
    assert 1.0 < long < 1.02  # as it had before its end


def test_half_the_power_lowers_the_clock_by_its_cube_root() -> None:
    chip, measured = load_chip("h100-96gb-hbm2e"), load_chip("h100-sxm")

    assert power_factor(chip, measured) == pytest.approx((700 / 500) ** (1 / 3))
    half = replace(chip, power_watts=350.0)
    assert power_factor(half, measured) == pytest.approx(2 ** (1 / 3))
    assert power_factor(measured, measured) == 1.0
    assert power_factor(replace(chip, power_watts=None), measured) == 1.0


def test_more_processors_under_one_limit_work_as_the_square_of_their_cube_root() -> None:
    measured = load_chip("b200-sxm")
    eight_times = 8 * (measured.num_processors or 0)

    wider = replace(measured, num_processors=eight_times)

    assert power_factor(wider, measured) == pytest.approx(1 / 4)


def test_a_chip_of_more_power_keeps_more_of_its_clock_but_no_more_than_all() -> None:
    chip = load_chip("b200-sxm")
    sizes = [Operation("gemm", "library", "bf16", (1, 16384, 16384, 16384))]

    def under(watts: float) -> float:
        # The chip under another name, so that constants are carried to it.
        carried = replace(chip, name="another", power_watts=watts)
        lasting = under_lasting_load(shipped_constants(), carried)
        return float(FittedKernels(chip, lasting).operation_costs(sizes).duration_ns[0])

    assert under(500.0) > 1.1 * under(1000.0) > 1.15 * under(8000.0)
    assert under(8000.0) == under(80_000.0)  # nothing is faster than the chip's peak


def test_kernels_take_what_software_makes_of_them() -> None:
    machine = load_machine("dgx-h100")

    def product_ns(factors: dict[str, float] | None) -> int:
        return int(step_costs(machine, factors).kernel_costs(_product()).duration_ns[0])

    unknown = kernel_factors(load_software(UNKNOWN_SOFTWARE), "Hopper")["gemm library bf16"]
    assert product_ns(None) == pytest.approx(unknown * product_ns({}), rel=1e-5)
    assert product_ns({"gemm library": 2.0}) == pytest.approx(2 * product_ns({}), rel=1e-5)


def _taught(folder: Path, source: str) -> None:
    """A folder in which products of an H100 take longer than shipped constants say."""
    (shipped,) = (one for one in shipped_constants() if one.chip == "h100-sxm")
    fit = shipped.fit("gemm", "library", "16bit")
    assert fit is not None
    slower = {**fit.values, "tile_rate": fit.values["tile_rate"] / 2}
    own = replace(shipped, fits=(replace(fit, source=source, values=slower),), left_out=())
    write_constants(own, folder / "kernels-h100-sxm.toml")


@pytest.mark.parametrize(
    ("source", "factor"), [("recordings", 1.0), ("mine", 2.0)], ids=["steps", "benchmarks"]
)
def test_what_own_steps_taught_has_what_software_adds_already(
    tmp_path: Path, source: str, factor: float
) -> None:
    _taught(tmp_path, source)
    machine = load_machine("dgx-h100", (tmp_path,))

    def found(factors: dict[str, float]) -> Costs:
        return step_costs(machine, factors).kernel_costs(_product())

    alone = found({}).duration_ns
    assert found({"gemm": 2.0}).duration_ns.tolist() == pytest.approx(factor * alone, abs=1)
    expected = Source.LEARNT if source == "recordings" else Source.FITTED
    assert found({}).source.tolist() == [expected] * len(alone)
    assert alone > step_costs(load_machine("dgx-h100"), {}).kernel_costs(_product()).duration_ns


def test_what_recordings_of_another_chip_taught_says_nothing(tmp_path: Path) -> None:
    _taught(tmp_path, "recordings")

    assert constants_for(load_chip("a100-sxm-80gb", (tmp_path,)))[0] == shipped_constants()[0]
    other = step_costs(load_machine("dgx-a100", (tmp_path,)), {}).kernel_costs(_product())
    usual = step_costs(load_machine("dgx-a100"), {}).kernel_costs(_product())
    assert other.duration_ns.tolist() == usual.duration_ns.tolist()


def _chosen(chip: str, dtype: str) -> Chosen:
    found = chosen_fit(("gemm", "library", dtype), load_chip(chip), shipped_constants())
    assert found is not None
    return found


def test_few_rows_give_way_to_a_twin_with_more() -> None:
    assert _chosen("a100-sxm-40gb", "bf16").fit == _chosen("a100-sxm-80gb", "bf16").fit
    assert _chosen("a100-sxm-40gb", "bf16").source is Source.FITTED


def test_own_rows_count_where_no_twin_has_more() -> None:
    assert _chosen("a100-sxm-40gb", "tf32").fit.source == "recordings"


def test_of_chips_equally_near_the_benchmark_that_most_share_counts() -> None:
    found = _chosen("l4", "bf16")

    assert found.fit.source == _chosen("h100-sxm", "bf16").fit.source
    assert found.fit.source == _chosen("a100-sxm-80gb", "bf16").fit.source
    assert found.fit.source != _chosen("gh200-96gb", "bf16").fit.source
    assert found.source is Source.TRANSFERRED


def test_large_products_keep_the_rate_that_a_chip_states_and_attention_slows_with_them() -> None:
    chip = load_chip("mi300x")
    sizes = [Operation("gemm", "library", "bf16", (1, 16384, 16384, 16384))]
    unstated = replace(chip, lasting_by_dtype={})

    def rate(one: Chip) -> float:
        lasting = under_lasting_load(constants_for(one), one)
        ns = float(FittedKernels(one, lasting).operation_costs(sizes).duration_ns[0])
        return 2 * 16384**3 / ns

    assert rate(chip) == pytest.approx(chip.lasting_by_dtype["bf16"], rel=0.01)
    assert rate(unstated) > 1.3 * rate(chip)
