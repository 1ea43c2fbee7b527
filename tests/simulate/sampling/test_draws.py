"""Quantile tables and draws: right distributions, the same for the same seed."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from foretrace.base import Float64s
from foretrace.simulate import drawn_factors, quantile_table
from foretrace.simulate.sampling import _compiled
from foretrace.simulate.sampling.draws import hashed, probabilities, sample_keys
from tests.oracles import sampling as oracle

# Hashes wrap around, of which numpy warns where nothing is compiled.
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def normal(probability: Float64s) -> Float64s:
    found: Float64s = stats.norm.ppf(probability, 1.0, 0.1)
    return found


def exponential(probability: Float64s) -> Float64s:
    found: Float64s = -np.log1p(-probability)
    return found


@given(st.integers(0, 2**64 - 1), st.sampled_from(("any", "lowest", "highest")))
def test_quantiles_of_bits_are_the_oracle_s(word: int, cell: str) -> None:
    word = {"any": word, "lowest": word >> 8, "highest": word | 0xFF << 56}[cell]
    table = quantile_table(exponential, 1.0)

    found = _compiled._quantile(np.uint64(word), table)

    assert found == pytest.approx(oracle.quantile(word, [float(one) for one in table]), rel=1e-12)


@given(st.integers(0, 2**31), st.integers(0, 2**40), st.integers(0, 2**31))
def test_hashes_are_the_oracle_s(seed: int, draw: int, sample: int) -> None:
    assert int(hashed(np.array([draw]))[0]) == oracle.hashed(draw)
    assert int(sample_keys(seed, np.array([sample]))[0]) == oracle.sample_key(seed, sample)


def test_factors_are_the_oracle_s() -> None:
    table = quantile_table(normal, 1.0)
    draws, samples = np.arange(5), np.arange(3)

    found = drawn_factors(table, seed=7, draw=draws, sample=samples)

    for draw in range(5):
        for sample in range(3):
            word = oracle.mixed(oracle.hashed(draw) ^ oracle.sample_key(7, sample))
            expected = oracle.quantile(word, [float(one) for one in table])
            assert found[draw, sample] == pytest.approx(expected, rel=1e-12)


@pytest.mark.large
@pytest.mark.parametrize(("quantile", "distribution"), [
    (normal, stats.norm(1.0, 0.1)),
    (exponential, stats.expon()),
])  # fmt: skip
def test_draws_follow_their_distribution(
    quantile: object, distribution: stats.rv_continuous
) -> None:
    assert callable(quantile)
    table = quantile_table(quantile, 1.0)

    found = drawn_factors(table, seed=1, draw=np.arange(1000), sample=np.arange(400)).ravel()

    assert found.mean() == pytest.approx(1.0, rel=5e-3)
    assert found.std() == pytest.approx(distribution.std(), rel=1e-2)
    for share in (0.001, 0.05, 0.5, 0.95, 0.999):
        error = (share * (1 - share) / found.size) ** 0.5
        assert (found < distribution.ppf(share)).mean() == pytest.approx(share, abs=4 * error)
    # The rarest of 400,000 lie where they should, far beyond the 256 cells.
    # How many were expected above the largest is an exponential number of mean 1.
    assert 0.005 < found.size * distribution.sf(found.max()) < 6


@pytest.mark.large
def test_draws_of_different_nodes_and_samples_are_not_correlated() -> None:
    found = drawn_factors(
        quantile_table(normal, 1.0), seed=3, draw=np.arange(200), sample=np.arange(4000)
    )

    correlation = np.asarray(np.corrcoef(found))
    between = correlation[~np.eye(200, dtype=bool)]
    over_time = np.asarray(np.corrcoef(found[:, :-1].ravel(), found[:, 1:].ravel()))[0, 1]

    assert abs(between).max() < 5 / np.sqrt(4000)  # 20,000 pairs: 4.3 standard deviations
    assert abs(over_time) < 4 / np.sqrt(800_000)


def test_a_seed_decides_everything_and_another_one_changes_it() -> None:
    table = quantile_table(normal, 1.0)

    first, again, other = (
        drawn_factors(table, seed=seed, draw=np.arange(50), sample=np.arange(50))
        for seed in (5, 5, 6)
    )

    assert (first == again).all()
    assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.1


def test_points_of_a_table_rise_towards_both_ends() -> None:
    found = np.sort(probabilities())

    assert found[1] == pytest.approx(2.0**-32, rel=1e-9)
    assert 1 - found[-2] == pytest.approx(2.0**-32, rel=1e-6)
