"""Robust, bounded least squares of many constants: a factor for every shape of a table.

Levenberg-Marquardt steps on residuals that count less and less beyond a scale (soft L1), each
solved by conjugate gradients with the diagonal as preconditioner, from products with the Jacobian
alone: `(J^T W J + damping x diagonal) step = -J^T W residuals`, never made as a matrix. That is
how Opt (DeVito et al., arXiv:1604.06525) solves; few constants are solved directly instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foretrace.base import Bools, Float64s, Int64s

MOST_DIRECT = 10_000  # constants; above, a matrix of them squared is not made
_DAMPING = 1e-3  # of the first step, as a share of the diagonal
_EASIER, _HARDER = 0.3, 4.0  # damping after a step that was taken, and after one that was not
_MOST_STEPS = 100
_SETTLED = 1e-9  # share by which a step lessens the loss, below which it is the last
_SOLVED = 1e-8  # residual of conjugate gradients, as a share of the right side
_LEAST_DIAGONAL = 1e-300


@dataclass(frozen=True)
class JacobianProducts:
    """What a solver asks of a Jacobian of residuals by constants."""

    forward: Callable[[Float64s], Float64s]  # J p
    backward: Callable[[Float64s], Float64s]  # J^T q
    diagonal: Callable[[Float64s], Float64s]  # of J^T diag(w) J, from w


def robust_fit(
    residuals: Callable[[Float64s], Float64s],
    jacobian: Callable[[Float64s], JacobianProducts],
    start: Float64s,
    *,
    lower: float = -np.inf,
    upper: float = np.inf,
    robust_from: float = np.inf,
    is_direct: bool | None = None,
) -> Float64s:
    """The constants with the least sum of soft-L1 losses, between bounds.

    Args:
        residuals: of constants.
        jacobian: of residuals, at constants.
        start: float64[constants], within the bounds.
        lower: of every constant.
        upper: so too.
        robust_from: a residual above it counts less and less; infinite: plain least squares.
        is_direct: whether steps are solved as a matrix; up to `MOST_DIRECT` constants, if left out.
    """
    direct = len(start) <= MOST_DIRECT if is_direct is None else is_direct
    at, found, damping = start, residuals(start), _DAMPING
    for _ in range(_MOST_STEPS):
        loss = _loss(found, robust_from)
        products, weight = jacobian(at), 1 / np.sqrt(1 + (found / robust_from) ** 2)
        slope = products.backward(weight * found)
        # A constant on its bound that would go further stays there.
        is_free = ~(((at <= lower) & (slope > 0)) | ((at >= upper) & (slope < 0)))
        if not is_free.any():
            break
        solve = _direct if direct else _by_gradients
        step = solve(products, weight, -slope, damping=damping, is_free=is_free)
        tried = np.clip(at + step, lower, upper)
        after = residuals(tried)
        less = loss - _loss(after, robust_from)
        if less > 0:
            at, found, damping = tried, after, damping * _EASIER
        else:
            damping *= _HARDER
        if abs(less) <= _SETTLED * loss:
            break
    return at


def _loss(residuals: Float64s, robust_from: float) -> float:
    if np.isinf(robust_from):
        return float(residuals @ residuals)
    scale = robust_from**2
    return float(2 * scale * (np.sqrt(1 + residuals**2 / scale) - 1).sum())


def _direct(
    products: JacobianProducts,
    weight: Float64s,
    right: Float64s,
    *,
    damping: float,
    is_free: Bools,
) -> Float64s:
    """The step from the whole matrix."""
    columns = np.stack([products.forward(one) for one in np.eye(len(right))[is_free]], axis=1)
    matrix = columns.T @ (weight[:, None] * columns)
    matrix += damping * np.diag(np.maximum(matrix.diagonal(), _LEAST_DIAGONAL))
    step = np.zeros_like(right)
    step[is_free] = np.linalg.solve(matrix, right[is_free])
    return step


def _by_gradients(
    products: JacobianProducts,
    weight: Float64s,
    right: Float64s,
    *,
    damping: float,
    is_free: Bools,
) -> Float64s:
    """The step by preconditioned conjugate gradients."""
    from scipy.sparse.linalg import LinearOperator, cg  # on demand: predicting needs none of it

    diagonal = np.maximum(products.diagonal(weight), _LEAST_DIAGONAL)
    shape = (len(right), len(right))

    def product(one: Float64s) -> Float64s:
        held = np.where(is_free, one.reshape(-1), 0.0)
        through = products.backward(weight * products.forward(held)) + damping * diagonal * held
        made: Float64s = np.where(is_free, through, one.reshape(-1))
        return made

    inverse = np.where(is_free, 1 / ((1 + damping) * diagonal), 1.0)
    step, _ = cg(
        LinearOperator(shape, matvec=product, dtype=np.float64),
        np.where(is_free, right, 0.0),
        rtol=_SOLVED,
        M=LinearOperator(shape, matvec=lambda one: inverse * one.reshape(-1), dtype=np.float64),
    )
    found: Float64s = step
    return found


def table_factors(
    sizes: Int64s,
    shape: Int64s,
    ratio: Float64s,
    *,
    smoothness: float = 1.0,
    most: float = 16.0,
    robust_from: float = 0.05,
    is_direct: bool | None = None,
) -> Float64s:
    """What a model's time is multiplied with at every shape of a table, float64[shapes].

    Shapes that differ in one size, and are next to each other in it, pull at each other: a shape
    measured badly, or not at all, follows its neighbours.

    Args:
        sizes: int64[shapes, dimensions], each once.
        shape: int64[rows], which shape each measurement is of.
        ratio: float64[rows], measured over predicted time.
        smoothness: how much a difference between neighbours counts beside a measurement.
        most: factor that none goes beyond, either way.
        robust_from: logarithm of a ratio beside its factor, above which it counts less.
        is_direct: as in `robust_fit`.
    """
    pairs, logs, count = neighbours(sizes), np.log(ratio), len(sizes)
    first, second = pairs.T

    def residuals(factors: Float64s) -> Float64s:
        apart = smoothness * (factors[first] - factors[second])
        return np.concatenate([factors[shape] - logs, apart])

    def gathered(rows: Float64s, begun: Float64s, ended: Float64s) -> Float64s:
        found = np.zeros(count)
        for place, values in ((shape, rows), (first, begun), (second, ended)):
            found += np.bincount(place, weights=values, minlength=count)
        return found

    def backward(one: Float64s) -> Float64s:
        apart = smoothness * one[len(shape) :]
        return gathered(one[: len(shape)], apart, -apart)

    def diagonal(weight: Float64s) -> Float64s:
        apart = smoothness**2 * weight[len(shape) :]
        return gathered(weight[: len(shape)], apart, apart)

    products = JacobianProducts(
        forward=lambda one: residuals(one) + np.concatenate([logs, np.zeros(len(pairs))]),
        backward=backward,
        diagonal=diagonal,
    )
    bound = float(np.log(most))
    return np.exp(
        robust_fit(
            residuals,
            lambda _: products,
            np.zeros(count),
            lower=-bound,
            upper=bound,
            robust_from=robust_from,
            is_direct=is_direct,
        )
    )


def neighbours(sizes: Int64s) -> Int64s:
    """Shapes that differ in one size and are next to each other in it, int64[pairs, 2]."""
    found = []
    for at in range(sizes.shape[1]):
        others = [sizes[:, other] for other in range(sizes.shape[1]) if other != at]
        order = np.lexsort([sizes[:, at], *others])
        rest = np.delete(sizes[order], at, axis=1)
        is_alike = (rest[1:] == rest[:-1]).all(axis=1)
        found.append(np.stack([order[:-1], order[1:]], axis=1)[is_alike])
    return np.concatenate(found)
