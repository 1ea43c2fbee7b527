"""How sure the order of two plans is, and what would tell."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.estimate import NOT_MODELLED, FamilySpread, StepParts
from foretrace.search import Looked, Versus
from foretrace.workload import Plan


def looked(step_ns: int, *spreads: tuple[str, int, int]) -> Looked:
    """A plan with so much of each family on its critical path, and so wide."""
    return Looked(
        number=0,
        plan=Plan(),
        step_ns=step_ns,
        low_ns=step_ns,
        high_ns=step_ns,
        unit_ns=None,
        peak_bytes=None,
        capacity=None,
        step_parts=StepParts(step_ns, 0, 0, 0),
        spreads=tuple(FamilySpread(name, own, wide, wide) for name, own, wide in spreads),
    )


def test_what_both_have_alike_is_no_doubt() -> None:
    both = ("gemm", 500, 200)
    found = Versus("other", looked(1000, both), looked(1010, both))

    assert found.odds == 1.0
    assert found.doubts == ()
    assert "it is longer in 99.9 % of what may be" in found.sentence


def test_more_of_what_is_not_well_known_is() -> None:
    best = looked(1000, ("gemm", 500, 100), ("all-reduce", 100, 20), (NOT_MODELLED, 1000, 100))
    other = looked(1010, ("gemm", 500, 100), ("all-reduce", 200, 60), (NOT_MODELLED, 1010, 101))
    found = Versus("other", best, other)

    # 10 ns over a deviation of 40 ns at 10 and 90 %, and of 1
    assert found.odds == pytest.approx(0.6257, abs=1e-3)
    assert [(one.family, one.difference_ns) for one in found.doubts] == [("all-reduce", 100)]
    assert found.doubts[0].share == pytest.approx(1600 / 1601)
    assert "in only 63 %" in found.sentence
    assert "to decide, measure all-reduce (100 %) of the doubt" in found.sentence


def test_without_intervals_by_kind_there_are_no_odds() -> None:
    best = looked(1000)
    other = replace(looked(1010), low_ns=990)

    assert Versus("other", best, other).odds is None
    assert "intervals of the two overlap" in Versus("other", best, other).sentence


def test_parts_sum_to_the_difference() -> None:
    best = replace(looked(1000), step_parts=StepParts(600, 100, 200, 50, {"tp": 50}))
    other = replace(looked(1100), step_parts=StepParts(650, 100, 200, 50, {"dp": 100}))

    parts = Versus("other", best, other).difference_parts

    assert parts["compute"] == 50
    assert (parts["transfer tp"], parts["transfer dp"]) == (-50, 100)
    assert sum(parts.values()) == 100
