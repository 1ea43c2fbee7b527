"""What the first screen says of recordings whose cause is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
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


def _late(job: ft.Job) -> ft.Job:
    """The same recording, of which the second half began later than anything explains."""
    measured = job.measured
    middle_ns = int(np.median(measured.start_ns))
    later = [
        np.where(measured.start_ns > middle_ns, each + 20_000_000, each)
        for each in (measured.start_ns, measured.end_ns)
    ]
    moved = replace(measured, start_ns=later[0], end_ns=later[1])
    return replace(job, recording=replace(job.recording, measured=moved))


@pytest.mark.parametrize("is_late", [False, True], ids=["as recorded", "replay differs"])
def test_causes_of_idle_time_sum_to_what_the_breakdown_has(job: ft.Job, is_late: bool) -> None:
    subject = _late(job) if is_late else job
    found = ft.overview(subject)
    split = ft.breakdown(subject.measured)
    num_cells = len(split.rows)

    lines = found.of("idle or waiting")

    for prefix, whole_ns in (
        ("idle: ", sum(row.parts.idle_ns for row in split.rows)),
        ("waiting: ", sum(row.parts.waiting_for_ranks_ns for row in split.rows)),
    ):
        causes_ns = sum(line.time_ns or 0 for line in lines if line.label.startswith(prefix))
        assert causes_ns * num_cells == pytest.approx(whole_ns)
    (told,) = [line for line in found.of("breakdown") if line.label == "idle"]
    idle_ns = sum(line.time_ns or 0 for line in lines if line.label.startswith("idle: "))
    assert told.time_ns == pytest.approx(idle_ns)
    if is_late:
        assert step_time_ns(subject.measured) != step_time_ns(subject.replayed)
