"""Steps of layers that plans share are those that each would make alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from foretrace.workload import (
    KnownSteps,
    Plan,
    Recompute,
    RecomputeModule,
    Sharding,
    blocks_of_model,
)
from tests.models import transformer

PLAN = Plan(data=4, global_batch=16, sequence=1024, tensor=2, sequence_parallel=True)


@pytest.mark.parametrize("name", ["llama3-8b", "gpt3-175b", "deepseek-v3", "nemotron-h-8b"])
def test_steps_of_other_plans_give_the_same_blocks(name: str) -> None:
    model, known = transformer(name), KnownSteps()
    sharings = (Sharding.NONE, Sharding.ZERO2, Sharding.ZERO3)
    plans = [
        replace(
            PLAN, recompute=recompute, sharding=sharding, expert=1 + (model.experts is not None)
        )
        for sharding, recompute in product(sharings, Recompute)
    ]
    modules = (RecomputeModule.LAYER_NORM,)
    plans.append(replace(plans[0], recompute=Recompute.SELECTIVE, recompute_modules=modules))

    for plan in plans:
        assert blocks_of_model(model, plan, known) == blocks_of_model(model, plan)
