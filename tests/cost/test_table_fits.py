"""Many constants at once: the same as a direct solve, in spite of outliers and within bounds."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from foretrace.base import Float64s, Int64s
from foretrace.cost.table_fits import JacobianProducts, neighbours, robust_fit, table_factors


def grid(*lengths: int) -> Int64s:
    return np.array(list(product(*(2 ** np.arange(length) for length in lengths))), np.int64)


def of_matrix(matrix: Float64s) -> JacobianProducts:
    return JacobianProducts(
        forward=lambda one: matrix @ one,
        backward=lambda one: matrix.T @ one,
        diagonal=lambda weight: (matrix**2).T @ weight,
    )


def noisy(sizes: Int64s, *, seed: int) -> tuple[Int64s, Float64s, Float64s]:
    """Two measurements of each shape, a tenth of them of another kernel; and what is true."""
    rng = np.random.default_rng(seed)
    logs = np.log2(sizes).sum(axis=1) / 20
    shape = np.repeat(np.arange(len(sizes)), 2)
    ratio = np.exp(logs[shape] + rng.normal(0, 0.01, len(shape)))
    return shape, np.where(rng.random(len(shape)) < 0.1, 3 * ratio, ratio), np.exp(logs)


@pytest.mark.parametrize("is_direct", [False, True])
def test_a_curved_valley_is_followed_to_its_end(is_direct: bool) -> None:
    def slopes(at: Float64s) -> JacobianProducts:
        return of_matrix(np.array([[-20 * at[0], 10], [-1, 0]]))

    found = robust_fit(
        lambda at: np.array([10 * (at[1] - at[0] ** 2), 1 - at[0]]),
        slopes,
        np.array([-1.2, 1.0]),
        is_direct=is_direct,
    )
    assert found == pytest.approx([1, 1], abs=1e-6)


def test_a_line_is_smoothed_as_a_direct_solve_does() -> None:
    rng = np.random.default_rng(1)
    sizes = grid(40)
    logs = rng.normal(0, 1, 40)
    found = table_factors(
        sizes, np.arange(40), np.exp(logs), smoothness=3.0, robust_from=np.inf, is_direct=False
    )
    apart = np.diff(np.eye(40), axis=0)
    expected = np.linalg.solve(np.eye(40) + 9 * apart.T @ apart, logs)
    assert np.log(found) == pytest.approx(expected, abs=1e-6)


def test_gradients_find_what_the_direct_solve_finds() -> None:
    sizes = grid(6, 6, 6)
    shape, ratio, true = noisy(sizes, seed=2)
    direct, by_gradients = (
        table_factors(sizes, shape, ratio, is_direct=is_direct) for is_direct in (True, False)
    )
    assert by_gradients == pytest.approx(direct, rel=1e-6)
    plain = table_factors(sizes, shape, ratio, robust_from=np.inf)
    off, off_plain = (np.abs(np.log(found / true)) for found in (by_gradients, plain))
    assert np.median(off) < 0.02, "a tenth is off by 3"
    assert np.median(off_plain) > 2 * np.median(off)


def test_more_constants_than_a_matrix_holds() -> None:
    sizes = grid(28, 28, 14)
    shape, ratio, true = noisy(sizes, seed=3)
    found = table_factors(sizes, shape, ratio)
    assert len(found) == 10_976
    assert np.median(np.abs(np.log(found / true))) < 0.02


def test_a_shape_without_measurements_follows_its_neighbours_within_bounds() -> None:
    sizes = grid(5)
    found = table_factors(sizes, np.array([0, 1, 3, 4]), np.array([2.0, 2.0, 2.0, 2.0]))
    assert found == pytest.approx(np.full(5, 2.0), rel=1e-6)
    most = table_factors(sizes, np.arange(5), np.full(5, 100.0), most=4.0)
    assert most == pytest.approx(np.full(5, 4.0))


def test_neighbours_differ_in_one_size() -> None:
    sizes = np.array([[1, 1], [1, 4], [2, 1], [8, 1], [8, 4]])
    pairs = {tuple(sorted(one)) for one in neighbours(sizes).tolist()}
    assert pairs == {(0, 1), (3, 4), (0, 2), (2, 3), (1, 4)}
