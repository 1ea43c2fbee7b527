from __future__ import annotations

import numpy as np
import pytest

from foretrace.cost.fitting import Constant, MeasuredRows, fitted, folds

START = Constant("start_ns", "ns", "of each", 10, 10_000, 200)
RATE = Constant("rate", "", "per ns", 0.1, 100, 1)


def test_known_constants_are_found_in_spite_of_outliers() -> None:
    sizes = np.geomspace(1e3, 1e7, 200)
    measured = 1500 + sizes / 20
    measured[::10] *= 3  # every tenth row ran another kernel
    rows = MeasuredRows(lambda v: v["start_ns"] + sizes / v["rate"], measured, np.ones(200))

    found = fitted((START, RATE), [rows])

    assert found["start_ns"] == pytest.approx(1500, rel=0.03)
    assert found["rate"] == pytest.approx(20, rel=0.03)


def test_constants_stay_within_their_bounds() -> None:
    sizes = np.geomspace(1e3, 1e7, 50)
    rows = MeasuredRows(lambda v: v["start_ns"] + sizes / v["rate"], sizes / 1e4, np.ones(50))

    found = fitted((START, RATE), [rows])

    assert 10 <= found["start_ns"] <= 10_000
    assert found["rate"] == pytest.approx(100, rel=1e-3)


def test_fewer_rows_than_constants_are_refused() -> None:
    rows = MeasuredRows(lambda v: np.array([v["start_ns"]]), np.array([5.0]), np.ones(1))

    with pytest.raises(ValueError, match="2 constants cannot be fitted to 1"):
        fitted((START, RATE), [rows])


def test_rows_of_a_group_share_a_fold() -> None:
    group = np.repeat(np.arange(40), 5)

    fold = folds(group, 5)

    assert all(len(set(fold[group == one].tolist())) == 1 for one in range(40))
    assert sorted(set(fold.tolist())) == [0, 1, 2, 3, 4]
    assert folds(group, 5).tolist() == fold.tolist()


def test_what_rows_do_not_tell_stays_where_it_was_known() -> None:
    sizes = np.geomspace(1e6, 1e7, 50)  # too large for their start to show
    rows = MeasuredRows(lambda v: v["start_ns"] + sizes / v["rate"], sizes / 20, np.ones(50))

    found = fitted((START, RATE), [rows], near={"start_ns": 77.0}, pull=0.5)

    assert found["start_ns"] == pytest.approx(77, rel=0.3)
    assert found["rate"] == pytest.approx(20, rel=0.02)
