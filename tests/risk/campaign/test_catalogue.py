"""Campaigns as files."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import RiskError
from foretrace.risk import (
    Preemption,
    Replicas,
    WhileDown,
    best_interval_ns,
    campaign_names,
    duration_ns,
    linear_ettr,
    load_campaign,
    replicas_ettr,
)
from tests.risk.campaigns import DAY_NS, HOUR_NS, minutes

LEAST = """kind = "campaign"
hosts = 64
failures_per_host_day = 0.01
[checkpoint]
interval = "30min"
[down]
restart = "5min"
"""


def test_presets_can_be_loaded() -> None:
    assert set(campaign_names()) >= {"ft-hsdp-98k", "llama3-405b", "rsc-1-16k"}
    assert all(load_campaign(name).name == name for name in campaign_names())


def test_the_published_examples_say_what_was_published() -> None:
    assert linear_ettr(load_campaign("rsc-1-16k")) == pytest.approx(0.7, abs=0.02)
    assert replicas_ettr(load_campaign("ft-hsdp-98k")) == pytest.approx(0.8, abs=0.02)
    assert linear_ettr(load_campaign("llama3-405b")) > 0.9


def test_the_best_interval_is_found_when_asked_for() -> None:
    found = load_campaign("llama3-405b")

    assert found.checkpoint.interval_ns == round(best_interval_ns(found))


def test_everything_that_can_be_said_is_read(tmp_path: Path) -> None:
    path = tmp_path / "all.toml"
    path.write_text(
        LEAST.replace("hosts = 64", 'hosts = 64\nwhile_down = "add"\ngpus_per_host = 4')
        + 'detection = "1min"\nqueue = "2h"\n'
        + '[fleet]\nspares = 3\nrepair = "7d"\nrepaired_share = 0.5\nexcluded_after = 2\n'
        + '[preemption]\nevery = "2d"\naway = "1h"\nhas_notice = true\n'
        + '[replicas]\ncount = 8\nstall = "30s"\naway = "10min"\ncatch_up = "20s"\njoin = "5s"\n'
        + 'lost_step = "7s"\nleast = 4\nkeeps_state = false\njoins_in_stall = true\n',
        encoding="utf-8",
    )
    with pytest.raises(RiskError, match="without replicas"):
        load_campaign(path)
    text = path.read_text(encoding="utf-8")
    path.write_text(text.replace("[preemption]", "[x]"), encoding="utf-8")
    with pytest.raises(RiskError, match="'x'"):
        load_campaign(path)
    path.write_text(text[: text.index("[replicas]")], encoding="utf-8")

    found = load_campaign(path)

    assert found.preemption == Preemption(every_ns=2 * DAY_NS, away_ns=HOUR_NS, has_notice=True)
    assert found.while_down is WhileDown.ADD
    assert (found.detection_ns, found.queue_ns) == (minutes(1), 2 * HOUR_NS)
    assert (found.fleet.num_spares, found.fleet.repair_ns) == (3, 7 * DAY_NS)
    assert found.num_gpus == 256
    path.write_text(LEAST + text[text.index("[replicas]") :], encoding="utf-8")
    second = 1_000_000_000
    assert load_campaign(path).replicas == Replicas(
        num_replicas=8, stall_ns=30 * second, away_ns=minutes(10), catch_up_ns=20 * second,
        join_ns=5 * second, lost_step_ns=7 * second, min_replicas=4, keeps_state=False,
        joins_in_stall=True,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('interval = "30min"', "", "lacks interval"),
        ('interval = "30min"', "interval = 30", 'as in "5min"'),
        ('interval = "30min"', 'interval = "30"', "a number and ms"),
        ('interval = "30min"', 'interval = "best"', "no checkpoint interval is best"),
        ('restart = "5min"', "", "lacks restart"),
        ("hosts = 64", "hosts = 0", "of at least 1"),
        ("hosts = 64", 'hosts = 64\nwhile_down = "x"', "where one of none, again, add"),
        ("failures_per_host_day = 0.01", "", "needs either"),
        ("failures_per_host_day = 0.01", 'failures = "nobody"', "nobody"),
        ("[down]", "[fleet]\nspare = 3\n[down]", "'spares'"),
    ],
)
def test_a_wrong_file_says_what_is_wrong(tmp_path: Path, old: str, new: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(LEAST.replace(old, new), encoding="utf-8")

    with pytest.raises(RiskError, match=words):
        load_campaign(path)


@pytest.mark.parametrize(
    ("text", "found"),
    [("60min", HOUR_NS), (" 1.5 h", 90 * minutes(1)), ("0", 0), ("10s", minutes(1 / 6)),
     ("250ms", 250_000_000), ("7d", 7 * DAY_NS)],
)  # fmt: skip
def test_durations_are_read_with_their_units(text: str, found: int) -> None:
    assert duration_ns(text) == found


@pytest.mark.parametrize("text", ["", "5", "min", "-3min", "5 minutes", "2000000d"])
def test_durations_without_sense_are_refused(text: str) -> None:
    with pytest.raises(RiskError, match="--restart is"):
        duration_ns(text, "--restart")
