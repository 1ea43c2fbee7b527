"""What the first screen says of recordings whose cause is known."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import step_time_ns
from foretrace.answer import duration_text
from foretrace.api.overview import CHANGES, Overview


@pytest.fixture(scope="module")
def job(repository: Path) -> ft.Job:
    return ft.load(repository / "examples" / "planted" / "slow-loader", cache=False)


@pytest.fixture(scope="module")
def found(job: ft.Job) -> Overview:
    return ft.overview(job)


def test_the_screen_begins_with_the_planted_cause(found: Overview) -> None:
    assert found.verdict.startswith("rank 2's data loading")
    assert str(found).index("Rank 2's data loading") < str(found).index("step time")
    assert found.verdict == found.of("what is wrong")[0].text


def test_one_step_time_stands_everywhere(job: ft.Job, found: Overview) -> None:
    step_ns = step_time_ns(job.measured)

    assert found.of("step")[0].time_ns == pytest.approx(step_ns, abs=1)  # a mean, rounded
    assert ft.diagnose(job).step_ns == step_ns
    assert ft.remedies(job).step_ns == step_time_ns(job.replayed)
    assert found.of("step")[1].time_ns == pytest.approx(step_time_ns(job.replayed), abs=1)


def test_changes_that_pay_are_those_of_the_what_ifs(job: ft.Job, found: Overview) -> None:
    tried = ft.remedies(job)

    assert tried.rows[0].name == "data loaded ahead"
    listed = [(line.label, line.time_ns) for line in found.of(CHANGES)]
    assert listed == [(one.name, one.gain_ns) for one in (*tried.rows, *tried.together)]


def test_what_the_profiler_costs_is_said_where_it_distorts(job: ft.Job, found: Overview) -> None:
    (line,) = [one for one in found.of("to know") if one.label == "profiler"]

    measured_ns = step_time_ns(job.measured)
    assert line.time_ns is not None
    for length_ns in (measured_ns, measured_ns - line.time_ns):
        assert duration_text(length_ns) in line.text
    assert line.share is not None
    assert line.share > 0.1
    assert f"{100 * line.share:.1f} % more" in line.text
