from __future__ import annotations

import pytest

from foretrace.report import component_rows, constant_rows, glance, null_model_rows
from tests.report.sample import meta, sample


def test_glance_is_the_mean_over_steps_and_ranks() -> None:
    replay = sample().replay
    rows = [rank for step in replay.steps for rank in step.ranks]

    view = glance(replay, tuple(map(meta, (0, 1))))

    assert view.measured_ns == pytest.approx(sum(row.measured_ns for row in rows) / len(rows))
    assert view.unprofiled_ns == 1_550_000
    assert view.subject == "2 ranks of 8, 2 steps, Imaginary GPU"


def test_component_means_sum_to_the_step() -> None:
    replay = sample().replay
    view = glance(replay, ())

    rows = component_rows(replay)

    assert sum(row.measured_ns for row in rows) == pytest.approx(view.measured_ns)
    assert sum(row.replayed_ns for row in rows) == pytest.approx(view.replayed_ns)
    assert sum(row.measured_percent for row in rows) == pytest.approx(100)


def test_the_replay_stands_above_its_null_models() -> None:
    rows = null_model_rows(sample().replay)

    assert [row.is_replay for row in rows] == [True, False, False, False]


def test_only_constants_in_use_are_shown() -> None:
    texts = [row.text for row in constant_rows(sample().recording.graph)]

    assert texts == ["launch call to device", "device to waiting host"]
