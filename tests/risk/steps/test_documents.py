"""Sampled steps of documents: equal ones change nothing, others wait for the slowest copy."""

from __future__ import annotations

from typing import cast

import numpy as np
import pytest

from foretrace.balance import Documents, documents_of
from foretrace.base import RiskError
from foretrace.cost import step_costs
from foretrace.estimate import document_mix
from foretrace.machine import load_machine
from foretrace.risk import Sampling, estimated_steps, variation_named
from foretrace.workload import Plan, Transformer, load_model

MACHINE = load_machine("dgx-h100")
COSTS = step_costs(MACHINE)
MODEL = cast("Transformer", load_model("llama2-7b"))
PLAN = Plan(tensor=2, data=4, global_batch=16, sequence=4096)
STILL = variation_named("none")


def test_equal_documents_give_the_fixed_step() -> None:
    equal = Documents("equal", lengths=np.full(64, PLAN.sequence))

    found = estimated_steps(
        MODEL, PLAN, MACHINE, variation=STILL, costs=COSTS, documents=equal,
        sampling=Sampling(num_samples=8),
    )  # fmt: skip

    assert found.step_ns == pytest.approx(found.fixed_ns, rel=1e-9)


def test_copies_with_documents_of_their_own_wait_as_in_an_estimate() -> None:
    documents = documents_of("lognormal:7,1.5")

    found = estimated_steps(
        MODEL, PLAN, MACHINE, variation=STILL, costs=COSTS, documents=documents,
        sampling=Sampling(num_samples=400),
    )  # fmt: skip

    alone = document_mix(
        MODEL, PLAN, MACHINE, documents=documents, costs=COSTS, num_steps=400, seed=5
    )
    assert found.mean_ns == pytest.approx(alone.mean_ns, rel=0.01)
    assert found.deviation_ns > 0


def test_a_model_without_documents_is_refused() -> None:
    with pytest.raises(RiskError, match="is no transformer"):
        estimated_steps(
            load_model("stable-diffusion-1.5"), Plan(global_batch=8, data=8), MACHINE,
            variation=STILL, costs=COSTS, documents=documents_of("lognormal:7,1.5"),
        )  # fmt: skip
