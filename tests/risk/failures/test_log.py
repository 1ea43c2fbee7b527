"""A user's own log: rates, hosts that fail too often, gaps that chance does not make."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pytest

from foretrace.base import RiskError
from foretrace.risk import failures_toml, load_failures, read_failure_log

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def written(path: Path, hours: list[float], hosts: list[str], causes: list[str]) -> Path:
    rows = [
        f"{(BEGIN + timedelta(hours=hour)).isoformat()},{host},{cause}"
        for hour, host, cause in zip(hours, hosts, causes, strict=True)
    ]
    path.write_text("\n".join(["time,host,component", *rows]) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def poisson_log(tmp_path: Path) -> Path:
    """400 failures of 200 hosts at a constant rate over about 100 days; one host fails 12 times."""
    random = np.random.default_rng(6)
    hours = np.cumsum(random.exponential(6.0, 400)).tolist()
    hosts = [f"h{host}" for host in random.integers(0, 200, 400)]
    hosts[::34] = ["bad"] * len(hosts[::34])
    causes = random.choice(["gpu", "nic"], 400, p=[0.75, 0.25]).tolist()
    return written(tmp_path / "log.csv", hours, hosts, causes)


def test_rates_are_counts_over_host_days(poisson_log: Path) -> None:
    found = read_failure_log(poisson_log, num_hosts=200, days=110)

    assert found.rates.count == 400
    assert found.rates.per_host_day == pytest.approx(400 / 200 / 110)
    assert [each.name for each in found.rates.components] == ["gpu", "nic"]
    interval = found.rates.interval()
    assert interval is not None
    assert interval[0] < 1 / 6 * 24 / 200 < interval[1]


def test_without_days_the_span_of_the_log_counts(poisson_log: Path) -> None:
    found = read_failure_log(poisson_log, num_hosts=200)

    assert found.rates.per_host_day == pytest.approx(24 / 6 / 200, rel=0.15)


def test_only_the_host_that_fails_too_often_is_a_lemon(poisson_log: Path) -> None:
    found = read_failure_log(poisson_log, num_hosts=200, days=110)

    assert [each.host for each in found.lemons] == ["bad"]
    assert found.lemons[0].count == 12
    assert found.hosts[0].count >= found.hosts[-1].count


def test_gaps_of_a_constant_rate_are_near_the_exponential(
    poisson_log: Path, tmp_path: Path
) -> None:
    regular = written(
        tmp_path / "regular.csv", [6.0 * at for at in range(400)], ["a"] * 400, ["b"] * 400
    )

    near = read_failure_log(poisson_log, num_hosts=200)
    far = read_failure_log(regular, num_hosts=200)

    assert near.gap_distance < 1.36 / 400**0.5
    assert far.gap_distance > 0.6  # all gaps alike: 1 - 1/e


def test_rates_written_are_read_again(poisson_log: Path, tmp_path: Path) -> None:
    found = read_failure_log(poisson_log, num_hosts=200, days=110, host_causes=["gpu"])
    path = tmp_path / "mine.toml"

    path.write_text(failures_toml(found.rates, 200), encoding="utf-8")

    again = load_failures(path)
    assert again.components == found.rates.components
    assert again.repaired_share == found.rates.repaired_share < 1
    assert again.host_days == pytest.approx(found.rates.host_days)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("when,host\n", "time at least"),
        ("", "nothing"),
        ("time\n2026-01-01\n", "need two"),
        ("time\n2026-01-01\nyesterday\n", "line 3"),
        ("time\n2026-01-01\n2026-03-01\n", "spans 59 days"),
    ],
)
def test_a_wrong_log_says_what_is_wrong(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "log.csv"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(RiskError, match=words):
        read_failure_log(path, num_hosts=10, days=30)


def test_no_hosts_are_refused(poisson_log: Path) -> None:
    with pytest.raises(RiskError, match="0 hosts"):
        read_failure_log(poisson_log, num_hosts=0)
