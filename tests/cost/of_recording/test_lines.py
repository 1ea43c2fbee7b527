"""Lines: a start and a rate recovered from times that have them, and how sure they are."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foretrace.base import Float64s
from foretrace.cost.of_recording.lines import Points, Quickest, fitted_line


def points(flops: Float64s, measured_ns: Float64s, *, operator: int | Float64s = 0) -> Points:
    """Shapes of operators without bytes, each of one call."""
    size = len(flops)
    kinds = np.broadcast_to(np.asarray(operator, np.int64), size)
    return Points(flops, np.zeros(size), measured_ns, kinds, measured_ns)


@settings(max_examples=20)
@given(st.floats(500, 4_000), st.floats(10, 1_000))
def test_start_and_rate_are_found_where_times_have_them(start_ns: float, rate: float) -> None:
    flops = np.array([1e6, 3e6, 1e7, 4e7, 2e8])
    times = start_ns + flops / rate

    line = fitted_line(points(flops, times), 1_000.0)

    found = line.predicted_ns(np.array([8e7]), np.zeros(1))
    assert found[0] == pytest.approx(start_ns + 8e7 / rate, rel=0.02)


def test_one_shape_alone_grows_in_proportion_above_the_shortest_operators() -> None:
    line = fitted_line(points(np.array([1e6]), np.array([11_000.0])), 1_000.0)

    found = line.predicted_ns(np.array([1e6, 2e6, 4e6]), np.zeros(3))

    assert found == pytest.approx([11_000, 21_000, 41_000])
    assert not line.is_tested


def test_one_shape_alone_of_slow_work_is_part_start_part_work() -> None:
    """The quickest operators do in 1 us what it takes 26 us for."""
    alone = points(np.array([1e6]), np.array([26_000.0]))

    found = [
        fitted_line(alone, shortest_ns, Quickest(1e3, 0.0)).predicted_ns(
            np.array([4e6]), np.zeros(1)
        )
        for shortest_ns in (1_000.0, 6_000.0)
    ]

    assert found[0] == pytest.approx([10_000 + 4 * 16_000])  # ten times the shortest at most
    assert found[1] == pytest.approx([26_000 + 3 * np.sqrt(1_000 * 20_000)])


def test_one_odd_kernel_does_not_become_a_start_of_all() -> None:
    """Of four sizes one takes twice its share; the start stays a start."""
    flops = np.array([34e9, 103e9, 137e9, 429e9])
    times = flops / 450_000
    times[0] *= 2

    line = fitted_line(points(flops, times), 2_000.0)

    doubled = line.predicted_ns(2 * flops[1:2], np.zeros(1))
    assert doubled / line.predicted_ns(flops[1:2], np.zeros(1)) > 1.8


def test_the_interval_is_half_to_twice_where_no_operator_was_seen_at_two_sizes() -> None:
    line = fitted_line(points(np.array([1e6]), np.array([11_000.0])), 1_000.0)

    low, high = line.ends(np.array([1e6, 1e9]), np.zeros(2))

    assert low.tolist() == [0.5, 0.5]
    assert high.tolist() == [2.0, 2.0]


def test_the_interval_holds_most_errors_between_sizes_and_widens_beyond_them() -> None:
    random = np.random.default_rng(0)
    flops = np.geomspace(1e7, 1e10, 40)
    times = (1_000 + flops / 100) * np.exp(random.normal(0, 0.1, len(flops)))

    line = fitted_line(points(flops, times), 1_000.0)
    inside = line.ends(np.array([1e9]), np.zeros(1))
    beyond = line.ends(np.array([1e12]), np.zeros(1))

    # Two errors of 10% each: 80% of their ratios lie within 1.28 x 0.14.
    assert np.log(inside[1][0]) == pytest.approx(1.28 * 0.1 * np.sqrt(2), rel=0.25)
    assert inside[0][0] == pytest.approx(1 / inside[1][0], rel=1e-6)
    assert beyond[1][0] > inside[1][0]
    assert beyond[0][0] < inside[0][0]


def test_differences_between_operators_do_not_count_as_errors_of_a_size() -> None:
    """What of an operator no line knows cancels when its own measurement is scaled."""
    flops = np.tile(np.geomspace(1e7, 1e9, 8), 2)
    times = flops / np.repeat([100.0, 25.0], 8)

    line = fitted_line(points(flops, times, operator=np.repeat([0.0, 1.0], 8)), 1_000.0)
    low, high = line.ends(np.array([1e8]), np.zeros(1))

    assert high[0] == pytest.approx(1, abs=0.05)
    assert low[0] == pytest.approx(1, abs=0.05)
