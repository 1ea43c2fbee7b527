"""A step whose microbatches differ: equal ones give the estimate, longer ones take longer."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

import numpy as np
import pytest

from foretrace.cost import step_costs
from foretrace.estimate import estimate, uneven_step
from foretrace.machine import load_machine
from foretrace.workload import Plan, Sharding, Transformer, load_model

MACHINE = load_machine("llama3-24k")
COSTS = step_costs(MACHINE)
MODEL = cast("Transformer", load_model("llama2-7b"))
BASE = Plan(tensor=4, global_batch=8, sequence=4096)
PLANS = [
    BASE,
    replace(BASE, data=2, sharding=Sharding.ZERO1),
    replace(BASE, context=2, pipeline=2),
    replace(BASE, pipeline=4, schedule="interleaved", num_chunks=2, data=2),
    replace(BASE, data=2, sharding=Sharding.ZERO3),
]


@pytest.mark.parametrize("plan", PLANS)
def test_equal_documents_give_the_estimate_to_the_nanosecond(plan: Plan) -> None:
    step = uneven_step(MODEL, plan, MACHINE, costs=COSTS)
    even = np.ones((2, step.num_replicas, step.num_microbatches))

    found = step.step_ns(even, even)

    expected = estimate(MODEL, plan, MACHINE, costs=COSTS).step_ns
    assert found.tolist() == [expected, expected]


def test_more_work_anywhere_takes_no_less_time() -> None:
    step = uneven_step(MODEL, PLANS[3], MACHINE, costs=COSTS)
    shape = (20, step.num_replicas, step.num_microbatches)
    generator = np.random.default_rng(1)
    tokens, attention = generator.lognormal(0, 0.5, (2, *shape))
    more = attention * (1 + generator.random(shape))

    less_ns, more_ns = step.step_ns(tokens, attention), step.step_ns(tokens, more)

    assert (more_ns > less_ns).all()


def test_the_slowest_copy_of_the_model_decides() -> None:
    step = uneven_step(MODEL, PLANS[1], MACHINE, costs=COSTS)
    shape = (1, step.num_replicas, step.num_microbatches)
    one, both = np.ones(shape), np.full(shape, 2.0)
    one[:, 0] = 2.0

    assert step.step_ns(np.ones(shape), one) == step.step_ns(np.ones(shape), both)


def test_shapes_that_do_not_fit_are_refused() -> None:
    step = uneven_step(MODEL, BASE, MACHINE, costs=COSTS)

    with pytest.raises(ValueError, match="copies of the model and microbatches"):
        step.step_ns(np.ones((1, 1, 3)), np.ones((1, 1, 3)))
