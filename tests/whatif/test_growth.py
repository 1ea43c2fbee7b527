from __future__ import annotations

import math
from pathlib import Path

import pytest

import foretrace as ft

_TRACES = Path(__file__).parents[2] / "examples" / "cpu-llama-tp2-dp2" / "traces"


@pytest.fixture(scope="module")
def job() -> ft.Job:
    return ft.load(_TRACES)


def _width(job: ft.Job, copies: int) -> tuple[float, bool]:
    """Logarithmic width of the interval, and whether a note speaks of links."""
    found = ft.whatif(job.edit(ft.Parallelism(dp=copies)))
    says = any("links that the recording does not show" in note for note in found.notes)
    return math.log(found.high_ns / found.low_ns) / 2, says


def test_far_more_ranks_than_recorded_widen_the_interval(job: ft.Job) -> None:
    few, many, most = (_width(job, copies) for copies in (4, 100, 1000))

    assert few[0] < 0.15
    assert not few[1]
    assert few[0] < many[0] < most[0]
    assert many[1]
    assert most[0] > 0.5
