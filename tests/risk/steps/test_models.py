"""Duration models: the family that durations come from, quantiles, and maxima in closed form."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from foretrace.base import RiskError
from foretrace.risk import DurationModel, Family, distance_between, fitted_model, stated_model
from foretrace.simulate import drawn_factors

GENERATOR = np.random.default_rng(11)
DRAWN = {
    Family.NORMAL: GENERATOR.normal(100, 10, 5000),
    Family.LOGNORMAL: GENERATOR.lognormal(4, 0.5, 5000),
    Family.GAMMA: GENERATOR.gamma(2, 50, 5000),
}


@pytest.mark.parametrize("family", list(DRAWN))
def test_durations_are_fitted_by_the_family_they_come_from(family: Family) -> None:
    durations = DRAWN[family]

    found = fitted_model(durations)

    assert found.family is family
    assert found.distance is not None
    assert found.distance < 0.03
    assert found.variation == pytest.approx(durations.std(ddof=1) / durations.mean())
    for share in (0.05, 0.5, 0.95):
        expected = np.quantile(durations, share) / durations.mean()
        assert found.quantile(np.array([share]))[0] == pytest.approx(expected, rel=0.03)


def test_two_peaks_are_kept_as_they_are() -> None:
    durations = np.concatenate([GENERATOR.normal(10, 0.1, 900), GENERATOR.normal(20, 0.1, 100)])

    found = fitted_model(durations)

    assert found.family is Family.EMPIRICAL
    assert found.quantile(np.array([0.5, 0.95])) * 11 == pytest.approx([10, 20], rel=0.02)


@pytest.mark.parametrize("durations", [[7.0], [5.0, 5.0, 5.0], [0.0, 0.0]])
def test_durations_that_are_equal_are_fixed(durations: list[float]) -> None:
    assert fitted_model(np.array(durations)).family is Family.FIXED


@pytest.mark.parametrize("durations", [[], [1.0, -1.0], [1.0, np.nan]])
def test_what_is_no_duration_is_refused(durations: list[float]) -> None:
    with pytest.raises(RiskError, match="numbers of 0 or more"):
        fitted_model(np.array(durations))


@pytest.mark.parametrize("family", [Family.NORMAL, Family.LOGNORMAL, Family.GAMMA])
def test_tables_have_mean_one_and_their_variation(family: Family) -> None:
    model = stated_model(family, 0.2)

    drawn = drawn_factors(model.table(), seed=2, draw=np.arange(500), sample=np.arange(400))

    assert drawn.mean() == pytest.approx(1, abs=2e-3)
    assert drawn.std() == pytest.approx(0.2, rel=1e-2)


@pytest.mark.parametrize("count", [8, 512, 16_384, 100_000])
def test_maxima_of_normal_durations_follow_the_power_of_their_distribution(count: int) -> None:
    model = stated_model(Family.NORMAL, 0.05)
    shares = np.array([0.05, 0.5, 0.95])

    found = model.maximum(count, shares)

    assert stats.norm.cdf(found, 1, 0.05) ** count == pytest.approx(shares, rel=1e-6)


@pytest.mark.parametrize("count", [8, 512, 16_384, 100_000])
def test_the_mean_maximum_of_exponential_durations_is_the_harmonic_number(count: int) -> None:
    model = stated_model(Family.EXPONENTIAL, 1)
    shares = (np.arange(10_000) + 0.5) / 10_000

    found = model.maximum(count, shares).mean()

    harmonic = np.log(count) + np.euler_gamma + 1 / (2 * count) - 1 / (12 * count**2)
    assert found == pytest.approx(harmonic, rel=5e-3)


@pytest.mark.parametrize("count", [512, 16_384])
def test_the_tail_of_samples_goes_on_where_they_end(count: int) -> None:
    model = DurationModel(
        Family.EMPIRICAL, 1.0, tuple(np.sort(GENERATOR.exponential(1, 2000)).tolist())
    )

    found = model.maximum(count, np.array([0.5]))[0]

    # The median of the largest of n exponential durations; 2,000 samples tell the tail's mean
    # excess to 7%.
    assert found == pytest.approx(-np.log(-np.expm1(np.log(0.5) / count)), rel=0.1)


def test_maxima_need_a_draw() -> None:
    with pytest.raises(ValueError, match="count must be 1 or more"):
        stated_model(Family.NORMAL, 0.1).maximum(0.5, np.array([0.5]))


def test_distance_is_the_largest_difference_of_shares() -> None:
    assert distance_between(np.arange(10.0), np.arange(10.0)) == 0
    assert distance_between(np.arange(10.0), np.arange(10.0) + 100) == 1
    assert distance_between(np.array([1.0, 2, 3, 4]), np.array([3.0, 4, 5, 6])) == 0.5
