from __future__ import annotations

import numpy as np
import pytest

from foretrace.analyze import BusyFraction, collective_times
from foretrace.report import component_rows, constant_rows, glance, null_model_rows
from foretrace.report.sections import BUSY_POINTS, busy_rows, step_rows, top_collectives
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


def test_bars_of_a_step_are_as_long_as_the_step() -> None:
    replay = sample().replay
    longest_ns = max(
        max(rank.measured_ns, rank.replayed_ns) for step in replay.steps for rank in step.ranks
    )

    for row in step_rows(replay).rows:
        assert sum(row.measured_widths) == pytest.approx(100 * row.replay.measured_ns / longest_ns)
        assert sum(row.replayed_widths) == pytest.approx(100 * row.replay.replayed_ns / longest_ns)


def test_the_replay_stands_above_its_null_models() -> None:
    rows = null_model_rows(sample().replay)

    assert [row.is_replay for row in rows] == [True, False, False, False]


def test_only_constants_in_use_are_shown() -> None:
    texts = [row.text for row in constant_rows(sample().recording.graph)]

    assert texts == ["launch call to device", "device to waiting host"]


def test_longest_waits_come_first_each_collective_once() -> None:
    table = collective_times(sample().replayed)

    rows = top_collectives(table, by="wait")

    assert [row.rank for row in rows] == [0, 0]
    assert [row.last_rank for row in rows] == [1, 1]
    assert [row.wait_ns for row in rows] == [250_000, 250_000]
    assert [row.position for row in rows] == [0, 1]


@pytest.mark.parametrize("num_bins", [1, 7, BUSY_POINTS, 3 * BUSY_POINTS + 5])
def test_a_busy_curve_keeps_its_height(num_bins: int) -> None:
    busy = BusyFraction(1_000_000, (0,), np.full((1, num_bins), 0.25))

    (row,) = busy_rows(busy, busy)

    points = [tuple(map(float, point.split(","))) for point in row.measured_points.split()]
    assert len(points) <= BUSY_POINTS
    assert {y for _, y in points} == {0.75}
    assert all(0 <= x <= BUSY_POINTS for x, _ in points)
    assert row.measured_percent == pytest.approx(25)
