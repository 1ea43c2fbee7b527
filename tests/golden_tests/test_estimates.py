"""Estimates: the step, its interval, the size of the graph, where the time goes, and memory."""

from __future__ import annotations

from typing import Any

import pytest

import foretrace as ft
from foretrace.base import ModelError
from tests.golden_tests.answers import counts, drafted, plain
from tests.golden_tests.conftest import Tables
from tests.golden_tests.digest import hashed, hashes
from tests.golden_tests.estimates import CASES, Case
from tests.golden_tests.table import rounded

NAME = "estimates"
TOLD = ("status", "step_ns", "low_ns", "high_ns", "is_folded", "sources")


@pytest.mark.parametrize("case", CASES)
def test_an_estimate_is_what_it_was(case: str, table: Tables) -> None:
    table(NAME).check(case, _answered(CASES[case]))


def _answered(case: Case) -> dict[str, object]:
    plan = drafted(case.preset, case.plan) if case.preset else case.plan
    try:
        found = ft.estimate(
            case.model, plan, case.machine, num_ranks=case.num_ranks, folded=case.is_folded
        )
    except ModelError as error:
        return {"refused": str(error)}
    told = plain(found)
    return {
        **{key: told[key] for key in TOLD},
        **counts(found.graph),
        "parts_ns": told["parts"],
        "memory": _memory(told["memory"]),
        "plans_ns": [one["step_ns"] for one in (told["assumed"] or {}).get("plans", [])],
        "rest": hashes(told, without=TOLD),
    }


def _memory(told: dict[str, Any] | None) -> object:
    """Of the fullest stage in full, of all others a hash."""
    if told is None or "stages" not in told:
        return told
    (peak,) = (stage for stage in told["stages"] if stage["stage"] == told["peak_stage"])
    return {"peak": peak, "stages": hashed(rounded(told["stages"]))}
