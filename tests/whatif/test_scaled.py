"""Steps by the ratio of two estimates: what one measured time can say, and what it cannot."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import ScenarioError
from foretrace.estimate import Estimate, estimate
from foretrace.machine import load_machine
from foretrace.whatif import StepCurve, scaled_along, scaled_step, step_curve
from foretrace.whatif.scaled import LAUNCH_FACTORS, changed_share
from foretrace.workload import Implementation, Plan
from tests.models import transformer

FACTORS = np.array(LAUNCH_FACTORS)


def curve(device_ns: float, launches_ns: float = 0.0, **critical_ns: float) -> StepCurve:
    """A step that takes what its device or its host does, whichever is longer."""
    return StepCurve(np.maximum(device_ns, launches_ns * FACTORS), critical_ns)


def tiny(launch: str, *, micro_batch: int = 1) -> Estimate:
    """A step of four small layers on one GPU."""
    model = transformer("gpt2")
    plan = Plan(
        global_batch=micro_batch,
        micro_batch=micro_batch,
        sequence=128,
        implementation=Implementation(launch=launch),
    )
    return estimate(model, plan, load_machine("dgx-a100"))


def test_no_change_is_what_was_measured_and_sure() -> None:
    before = curve(1e6, 2e5, gemm=1e6)

    same = scaled_along(1_234_567, before, before)

    assert (same.low_ns, same.step_ns, same.high_ns) == (1_234_567,) * 3


def test_without_launches_it_is_the_ratio_of_the_estimates() -> None:
    scaled = scaled_along(1_500_000, curve(1e6), curve(3e6))

    assert scaled.step_ns == 4_500_000
    assert scaled.launch_factor == pytest.approx(1.0, abs=0.02)
    assert scaled.rest_factor == pytest.approx(1.5)


def test_a_step_far_above_its_estimate_is_held_up_by_its_host() -> None:
    short, long = curve(1e6, 1e6), curve(2e6, 1e6)  # kernels twice as long, as many launches

    scaled = scaled_along(3e6, short, long)

    assert scaled.launch_factor > 2.5
    assert scaled.step_ns < 1.1 * 3e6  # where the ratio would say twice as long


def test_a_step_near_its_estimate_says_nothing_about_its_host() -> None:
    busy, small = curve(10e6, 1e6), curve(0.5e6, 1e6)

    scaled = scaled_along(10.5e6, busy, small)

    assert scaled.launch_factor == pytest.approx(1.0, abs=0.05)
    assert scaled.low_ns < 0.75 * scaled.step_ns  # launches may be faster
    assert scaled.high_ns > 1.5 * scaled.step_ns  # or slower: nobody has seen


def test_the_interval_grows_with_what_is_new() -> None:
    before = curve(1e6, gemm=1e6)
    widths = [
        scaled_along(1e6, before, curve(1e6, gemm=(1 - share) * 1e6, send=share * 1e6)).high_ns
        for share in (0.0, 0.1, 0.5)
    ]

    assert widths == sorted(set(widths))
    assert changed_share(before, curve(1e6, gemm=5e5, send=5e5)) == 1.0
    assert changed_share(curve(1e6), curve(1e6)) == 0.0


@pytest.mark.parametrize("measured_ns", [0, -1, float("nan")])
def test_nothing_measured_is_refused(measured_ns: float) -> None:
    with pytest.raises(ScenarioError, match="expected a measured time above 0"):
        scaled_along(measured_ns, curve(1e6), curve(1e6))


def test_launches_count_where_the_host_launches_one_by_one() -> None:
    eager, graph = step_curve(tiny("eager")), step_curve(tiny("graph"))

    assert np.all(np.diff(eager.step_ns) >= 0)
    assert eager.step_ns[-1] > 3 * eager.step_ns[0]
    assert np.ptp(graph.step_ns) == 0


def test_a_slow_host_makes_a_larger_microbatch_nearly_free() -> None:
    one, two = tiny("eager"), tiny("eager", micro_batch=2)
    measured_ns = 3.0 * one.step_ns

    scaled = scaled_step(measured_ns, one, two)

    assert scaled.step_ns == pytest.approx(measured_ns, rel=0.1)
    assert scaled.launch_factor > 2
