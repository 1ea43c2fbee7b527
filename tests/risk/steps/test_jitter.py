"""Tiers whose latency varies: closed forms of one collective, and steps of a whole job."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from foretrace.api import estimate
from foretrace.cost import MessagesOfTier, messages_with_jitter
from foretrace.machine import Machine
from foretrace.risk import Sampling, Variation, estimated_steps, stated_model
from foretrace.risk.steps.models import FIXED_MODEL
from foretrace.risk.steps.varying import _row
from foretrace.simulate import drawn_factors, probabilities
from tests.risk.steps.plans import MACHINE, plan_of, small_model

MEAN_NS = 20_000.0


def shaky(law: str, variation: float = 1.0, mean_ns: float = MEAN_NS) -> Machine:
    """The machine whose pods' network has jitter."""
    tiers = list(MACHINE.tiers)
    tiers[2] = replace(tiers[2], jitter_ns=mean_ns, jitter_law=law, jitter_variation=variation)
    return replace(MACHINE, tiers=tuple(tiers))


def row(in_turn: float, ways: int, taken_ns: float, **law: object) -> tuple[float, np.ndarray]:
    machine = shaky(str(law.get("law", "exponential")), float(str(law.get("variation", 1.0))))
    one = MessagesOfTier(machine.tiers[2].name, MEAN_NS, in_turn, ways)
    varies = law.get("varies", FIXED_MODEL)
    return _row((one,), {one.tier: machine.tiers[2]}, taken_ns, varies)  # type: ignore[arg-type]


@pytest.mark.parametrize("ways", [1, 2, 16, 500])
def test_the_slowest_of_exponential_messages_takes_a_harmonic_number_of_means(ways: int) -> None:
    mean_ns, _ = row(1, ways, 100_000.0)

    harmonic = (1 / np.arange(1, ways + 1)).sum()
    assert mean_ns == pytest.approx(100_000.0 - MEAN_NS + MEAN_NS * harmonic, rel=2e-4)


def test_messages_in_turn_add_up_to_a_gamma_law() -> None:
    mean_ns, table = row(4, 1, 100_000.0)

    assert mean_ns == pytest.approx(100_000.0, rel=2e-4)
    at = np.flatnonzero((probabilities() > 0.01) & (probabilities() < 0.99))
    expected = 100_000.0 - 4 * MEAN_NS + stats.gamma.ppf(probabilities()[at], 4, scale=MEAN_NS)
    assert table[at] * mean_ns == pytest.approx(expected, rel=1e-3)


def test_what_collectives_vary_by_and_jitter_are_independent() -> None:
    mean_ns, table = row(
        1, 1, 100_000.0, varies=stated_model("normal", 0.1), law="gamma", variation=0.5
    )

    factors = drawn_factors(
        table.astype(np.float32), seed=1, draw=np.zeros(1, np.int64), sample=np.arange(40_000)
    )
    spread = float(factors.std()) * mean_ns
    assert mean_ns == pytest.approx(100_000.0, rel=1e-3)
    assert spread == pytest.approx(np.hypot(80_000.0 * 0.1, MEAN_NS * 0.5), rel=0.02)


def test_messages_of_a_collective_follow_its_algorithm() -> None:
    machine = shaky("exponential")
    group = tuple(range(0, 64, 16))  # one chip in each of four racks of a pod

    def messages(name: str) -> tuple[float, int]:
        (found,) = messages_with_jitter(name, group, machine=machine)
        return found.num_in_turn, found.num_ways

    assert messages("allgather") == (3, 4)  # around a ring, every member's part by itself
    assert messages("allreduce") == (4, 8)  # up and down two trees of four leaves
    assert messages("alltoall") == (1, 4 * 3)
    assert messages_with_jitter("sendrecv", (0, 16), machine=machine)[0].num_ways == 1
    assert messages_with_jitter("allgather", tuple(range(16)), machine=machine) == ()


def test_a_job_over_a_shaky_tier_varies_and_is_slower_in_the_mean_than_its_estimate() -> None:
    model = small_model(2)
    plan = plan_of(model, tp=8, pp=2, dp=4, global_batch=16)
    sampling = Sampling(num_samples=64, seed=3, has_shares=False)

    def steps(machine: Machine) -> tuple[float, float, float]:
        found = estimated_steps(model, plan, machine, variation=Variation(), sampling=sampling)
        return found.fixed_ns, found.mean_ns, found.deviation_ns

    calm, shaken = steps(MACHINE), steps(shaky("lognormal", 1.5))

    assert calm[1] == pytest.approx(calm[0])
    assert calm[2] == 0
    assert shaken[0] > calm[0]  # the mean of messages in turn
    assert shaken[1] > shaken[0]  # of ways beside each other the last counts
    assert shaken[2] > 0.1 * MEAN_NS
    told = estimate(model, plan, shaky("lognormal", 1.5), costs=None)
    assert told.step_ns > estimate(model, plan, MACHINE).step_ns
