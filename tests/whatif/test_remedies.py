from __future__ import annotations

from functools import cache

import pytest

from foretrace.analyze import selection_of
from foretrace.base import ScenarioError
from foretrace.graph import Recording
from foretrace.whatif import (
    Baseline,
    CudaGraphs,
    NoStalls,
    Remedies,
    Speed,
    baseline_of,
    predict,
    tried_remedies,
)
from tests.acceptance.recovery import recording_of_job
from tests.truth import Job, JobConfig, LateLoader, LongerSegment, make_job

STALL_NS = 40_000_000


@cache
def job() -> Job:
    return make_job(JobConfig(tp=2, num_layers=2, num_steps=4, data_loading_ns=200_000))


@cache
def recorded(*, is_stalled: bool = True) -> Recording:
    """A job of two ranks; one stalls once, and its loader is late."""
    forward = [each for each in job().operations(1) if "flash_fwd" in each.name]
    stall = LongerSegment(1, forward[len(forward) // 2].correlation, STALL_NS)
    return recording_of_job(job().after(stall, LateLoader(1, 3_000_000)) if is_stalled else job())


@cache
def baseline() -> Baseline:
    return baseline_of(recorded())


@cache
def found() -> Remedies:
    return tried_remedies(baseline())


def test_what_was_planted_gains_what_it_cost() -> None:
    gain_ns = {one.name: one.gain_ns for one in found().rows}

    assert gain_ns["no host stalls"] == pytest.approx(STALL_NS / 4, rel=0.1)  # of four steps
    assert gain_ns["data loaded ahead"] > 2_000_000
    assert [one.gain_ns for one in found().rows] == sorted(
        (one.gain_ns for one in found().rows), reverse=True
    )


def test_every_remedy_gains_what_the_what_if_of_its_edits_does() -> None:
    assert found().together
    for one in (*found().rows, *found().together):
        again = predict(baseline(), one.edits)

        assert (one.step_ns, one.low_ns, one.high_ns) == (
            again.step_ns,
            again.low_ns,
            again.high_ns,
        )
        assert one.gain_ns == -again.change_ns
        assert one.low_ns <= one.step_ns <= one.high_ns


def test_the_best_together_are_the_first_rows() -> None:
    names = [one.name for one in found().rows]

    for count, one in enumerate(found().together, start=2):
        assert one.name == " + ".join(names[:count])
        assert one.gain_ns >= found().rows[0].gain_ns


def test_a_sentence_says_the_gain_the_interval_the_effort_and_what_must_be_true() -> None:
    first = found().rows[0]

    for told in (f"{100 * first.share:.1f} %", first.effort, first.needs, "would save"):
        assert told in first.sentence
    assert found().headline == first.sentence


def test_without_stalls_a_job_is_as_long_as_it_would_have_been() -> None:
    late = recording_of_job(job().after(LateLoader(1, 3_000_000)))

    without = predict(baseline(), (NoStalls(),))

    assert without.step_ns == pytest.approx(baseline_of(late).replayed_step_ns, rel=0.01)


def test_stalls_go_whatever_the_order_of_edits() -> None:
    others = (CudaGraphs(), Speed(2.0, selection_of("gemm")))

    steps = {
        predict(baseline(), edits).step_ns
        for edits in (
            (NoStalls(), *others),
            (*others, NoStalls()),
            (others[0], NoStalls(), others[1]),
        )
    }

    assert len(steps) == 1


def test_where_nothing_stalled_there_is_nothing_to_take_away() -> None:
    with pytest.raises(ScenarioError, match="no host thread stood still"):
        predict(baseline_of(recorded(is_stalled=False)), (NoStalls(),))
