"""Whether two sets of step times differ by more than they differ within themselves.

Of all differences between a step after and a step before, the smallest and largest few are left
out; how many, the distribution of Mann and Whitney's U says. What remains spans the interval of
the shift (Hodges and Lehmann). Nothing is assumed about the shape of the distribution, and
nothing is drawn at random.

Source: Hollander, Wolfe, Chicken, "Nonparametric Statistical Methods", 3rd edition, section 4.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import comb, exp, lgamma, log, log1p, sqrt
from statistics import NormalDist

import numpy as np

from foretrace.analyze.comparison.results import ROUNDING, Noise

# Pairs of steps up to which all orders are counted; beyond, the normal approximation is within
# 1% of the tails (the book's table A.6 ends far below).
_MAX_EXACT_PAIRS = 2_500


def noise_of(before_ns: Sequence[int], after_ns: Sequence[int], *, confidence: float) -> Noise:
    """The interval of the shift from the steps before to those after.

    Args:
        before_ns: lengths of steps, at least one.
        after_ns: the same of the other side.
        confidence: wanted of the interval, 0 to 1; too few steps give less, and it is said.
    """
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    first, second = np.asarray(before_ns, np.int64), np.asarray(after_ns, np.int64)
    differences = np.sort((second[:, None] - first[None, :]).reshape(-1))
    num_pairs = len(differences)
    is_approximate = num_pairs > _MAX_EXACT_PAIRS
    if is_approximate:
        left_out = _left_out_approximately(len(first), len(second), confidence)
        attained = confidence
    else:
        left_out, attained = _left_out_exactly(len(first), len(second), confidence)
    return Noise(
        low_ns=int(differences[left_out]),
        high_ns=int(differences[num_pairs - 1 - left_out]),
        confidence=attained,
        asked=confidence,
        num_before=len(first),
        num_after=len(second),
        is_approximate=is_approximate,
    )


def _left_out_exactly(first: int, second: int, confidence: float) -> tuple[int, float]:
    """How many differences to leave out at each end, and the confidence of the rest.

    Leaving out k keeps the confidence 1 - 2 P(U <= k); with k = 0 it may be below what is asked.
    """
    num_orders = comb(first + second, first)
    below = list(accumulate(_orders_by_statistic(first, second)))
    left_out = 0
    allowed = (1 - confidence) / 2 * num_orders * (1 + ROUNDING)
    while below[left_out + 1] <= allowed:
        left_out += 1
        if 2 * (left_out + 1) >= first * second:
            break
    return left_out, max(1 - 2 * below[left_out] / num_orders, 0.0)


def _orders_by_statistic(first: int, second: int) -> list[int]:
    """In how many orders of both sides' steps U is 0, 1, 2, ...

    The Gaussian binomial coefficient's terms: product over i of (1 - q^(second + i)) / (1 - q^i).
    """
    size = first * second + 1
    terms = [1] + [0] * size  # one more, so that a neighbour's entry can be asked for
    for factor in range(1, first + 1):
        for power in range(size, second + factor - 1, -1):
            terms[power] -= terms[power - second - factor]
        for power in range(factor, size + 1):
            terms[power] += terms[power - factor]
    return terms


def _left_out_approximately(first: int, second: int, confidence: float) -> int:
    """The same for many steps: U is close to normal."""
    mean = first * second / 2
    deviation = sqrt(first * second * (first + second + 1) / 12)
    quantile = NormalDist().inv_cdf((1 + confidence) / 2)
    return max(int(mean - quantile * deviation), 0)


def chance_of_at_least(times: int, chances: Sequence[float]) -> float:
    """Probability that so many of these happen, or more: a binomial of the mean chance."""
    total = len(chances)
    if not times or not total:
        return 1.0
    each = sum(chances) / total
    logs = (
        lgamma(total + 1)
        - lgamma(count + 1)
        - lgamma(total - count + 1)
        + count * log(each)
        + (total - count) * log1p(-each)
        for count in range(times, total + 1)
    )
    return min(1.0, sum(exp(one) for one in logs))
