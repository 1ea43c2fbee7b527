from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from foretrace.cost import (
    BandwidthOnly,
    CollectiveRequests,
    CostModel,
    FittedCosts,
    KernelRequests,
    shipped_collectives,
)
from foretrace.machine import load_machine

ZERO = np.zeros(1, np.int32)
GEMM = json.dumps({"dims": [[4096, 4096], [4096, 4096]], "types": ["c10::BFloat16"] * 2})
KERNEL = KernelRequests(ZERO, ZERO, ZERO, ("aten::mm",), (GEMM,), ("gemm",))
COLLECTIVE = CollectiveRequests(
    ZERO, np.array([1 << 28], np.int64), ZERO, ZERO, ("all_reduce",), ("bf16",), (tuple(range(8)),)
)


def both_ns(model: CostModel) -> tuple[int, int]:
    """What any model says of a product and an all-reduce."""
    costs = model.kernel_costs(KERNEL), model.collective_costs(COLLECTIVE)
    return int(costs[0].duration_ns[0]), int(costs[1].duration_ns[0])


def test_one_model_takes_another_s_place() -> None:
    machine = load_machine("superpod-h100")

    fitted, simple = both_ns(FittedCosts(machine)), both_ns(BandwidthOnly(machine))

    assert fitted != simple
    assert fitted[0] == pytest.approx(simple[0], rel=0.5)
    assert fitted[1] > simple[1] / 2


def test_your_own_constants_take_the_place_of_those_shipped() -> None:
    machine = load_machine("superpod-h100")
    (shipped,) = (one for one in shipped_collectives() if one.chip == "h100-sxm")
    faster = tuple(
        replace(fit, values={**fit.values, "link_rate": 2 * fit.values["link_rate"]})
        for fit in shipped.fits
    )

    own = FittedCosts(machine, collectives=(replace(shipped, fits=faster),))

    assert both_ns(own)[1] < 0.7 * both_ns(FittedCosts(machine))[1]
