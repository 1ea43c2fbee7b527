from __future__ import annotations

import pytest

from foretrace.cost.in_steps import PRODUCTS_IN_STEPS
from foretrace.validate.runs.left_out import products_factor


@pytest.mark.parametrize("architecture", sorted(PRODUCTS_IN_STEPS))
def test_a_new_source_is_given_what_an_estimate_takes(architecture: str) -> None:
    taught = products_factor(architecture, source="a source of its own")

    # Both are written with two decimals, and a mean of rounded numbers is off by as much again.
    assert taught == pytest.approx(PRODUCTS_IN_STEPS[architecture], abs=0.01)
