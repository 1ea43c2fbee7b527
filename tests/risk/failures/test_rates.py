"""Failure rates: published tables, their intervals, and counts drawn from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import RiskError
from foretrace.risk import failure_names, load_failures, mttf_ns, rate_interval
from tests.risk.campaigns import DAY_NS, HOUR_NS


def test_presets_are_found_by_name() -> None:
    assert {"llama3", "rsc-1", "rsc-2"} <= set(failure_names())


def test_every_preset_states_where_each_number_is_from() -> None:
    for name in failure_names():
        rates = load_failures(name)

        assert all(each.source for each in rates.components), name
        assert all(each.url.startswith("https://") for each in rates.sources.values()), name


def test_llama_3_table_sums_to_what_it_says() -> None:
    rates = load_failures("llama3")

    assert rates.count == 419
    assert 1000 * rates.per_host_day == pytest.approx(3.79, abs=0.005)
    assert rates.mttf_ns(2048) / HOUR_NS == pytest.approx(3.09, abs=0.01)
    assert rates.to_polars()["share"].sum() == pytest.approx(1)
    shares = {row["component"]: row["share"] for row in rates.to_polars().to_dicts()}
    assert shares["faulty GPU"] == pytest.approx(0.353, abs=0.001)  # 30.1% is printed


def test_counts_drawn_for_54_days_are_those_of_the_paper() -> None:
    rates = load_failures("llama3")

    drawn = rates.drawn(2048, 54 * DAY_NS, num_samples=20_000).sum(axis=1)

    assert drawn.mean() == pytest.approx(419, abs=1)
    assert 2 * drawn.std() == pytest.approx(41, abs=1)


def test_rsc_1_would_have_interrupted_llama_3_more_often() -> None:
    # What a third party found when it took the other cluster's rate: about 530 against 419.
    drawn = load_failures("rsc-1").drawn(2048, 54 * DAY_NS).sum(axis=1)

    assert drawn.mean() > 1.2 * 419


@pytest.mark.parametrize(
    ("count", "low", "high"),
    [(0, 0.0, 3.689), (1, 0.0253, 5.572), (10, 4.795, 18.39), (100, 81.36, 121.6)],
)
def test_intervals_are_those_of_the_tables(count: int, low: float, high: float) -> None:
    # Garwood's exact limits of a Poisson mean at 95%.
    assert rate_interval(count, 1.0) == pytest.approx((low, high), rel=2e-3)
    assert rate_interval(count, 50.0) == pytest.approx((low / 50, high / 50), rel=2e-3)


def test_an_interval_needs_counts() -> None:
    assert load_failures("rsc-1").interval() is None
    found = load_failures("llama3").interval()
    assert found is not None
    assert 1000 * found[0] < 3.79 < 1000 * found[1]


def test_nothing_fails_at_a_rate_of_zero() -> None:
    assert mttf_ns(100, 0.0) == float("inf")


def test_repaired_share_is_that_of_hosts_that_are_taken() -> None:
    taken = 419 - 54 - 35 - 7 - 2  # software, network, watchdog, dependencies leave the host

    assert load_failures("llama3").repaired_share == pytest.approx(taken / 419)


HEAD = 'kind = "failures"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no components"),
        ("[[components]]\ncount = 3\n", "lacks name"),
        ('[[components]]\nname = "a"\n', "either a count or a rate"),
        ('[[components]]\nname = "a"\ncount = 3\n', r"\[observed\]"),
        ('[[components]]\nname = "a"\nper_host_day = -1\n', "of at least 0"),
        ('[[components]]\nname = "a"\nper_host_day = 1\ntakes_host = 3\n', "true or false"),
        ('[[components]]\nname = "a"\nper_host_day = 1\nsource = "x"\n', "does not have"),
        ('[[components]]\nname = "a"\nper_host_day = 1\nrate = 2\n', "'rate'"),
        ('gpus_per_host = 0\n[[components]]\nname = "a"\nper_host_day = 1\n', "of at least 1"),
        ("[observed]\nhosts = 3\n[[components]]\n", "days"),
    ],
)  # fmt: skip
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(HEAD + text, encoding="utf-8")

    with pytest.raises(RiskError, match=words):
        load_failures(path)


def test_a_file_may_extend_a_preset(tmp_path: Path) -> None:
    path = tmp_path / "better.toml"
    path.write_text(
        HEAD + 'extends = "llama3"\n[[components]]\nname = "software bug"\ncount = 4\n',
        encoding="utf-8",
    )

    assert load_failures(path).count == 419 - 50
