from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

PUBLISHED = (
    "--nodes", 2000, "--failure-rate", 6.5e-3, "--checkpoint-interval", "60min",
    "--restart", "5min",
)  # fmt: skip


def width(text: str) -> int:
    return max(map(len, text.splitlines()))


def test_risk_alone_names_its_verbs(run: Run) -> None:
    outcome = run("risk")

    assert outcome.code == 0
    for verb in ("ettr", "campaign", "compare", "failures"):
        assert f"  {verb} " in outcome.out


def test_ettr_prints_the_published_example_three_ways(run: Run) -> None:
    found = json.loads(run("risk", "ettr", *PUBLISHED, "--json").out)

    assert found["linear"] == pytest.approx(0.684, abs=0.001)
    assert found["renewal"] == pytest.approx(0.721, abs=0.001)
    assert found["simulated"] == pytest.approx(found["renewal"], rel=0.01)
    assert found["linear_holds"] is False


def test_a_job_that_never_fails_only_pays_for_checkpoints(run: Run) -> None:
    outcome = run(
        "risk", "ettr", *PUBLISHED, "--failure-rate", 0, "--checkpoint-time", "15min",
        "--samples", 2,
    )  # fmt: skip

    assert outcome.out.count("0.8000") == 3
    assert "one every never" not in outcome.out


def test_ettr_says_where_the_published_form_ends(run: Run) -> None:
    far = run("risk", "ettr", *PUBLISHED, "--samples", 5)
    near = run("risk", "ettr", *PUBLISHED, "--nodes", 100, "--samples", 5, "--target", 0.9)

    assert "does not hold" in far.out
    assert "published; holds" in near.out
    assert "0.9 effective needs restarts of at most" in near.out
    assert "checkpoint-time" in far.out  # without it no interval is best
    assert width(far.out) <= 80


def test_ettr_finds_the_best_interval(run: Run) -> None:
    outcome = run("risk", "ettr", "llama3-405b", "--queue", "1min", "--samples", 5)

    assert "every 7.87 min" in outcome.out
    assert "by search" in outcome.out
    assert "queued" in outcome.out
    late = run("risk", "ettr", *PUBLISHED, "--target", 0.95, "--samples", 2)
    assert "cannot be, however fast" in late.out


def test_plots_and_pages_are_written(run: Run, tmp_path: Path) -> None:
    plot, page, table = tmp_path / "a.svg", tmp_path / "a.html", tmp_path / "a.csv"

    outcome = run(
        "risk", "ettr", "llama3-405b", "--samples", 3, "--plot", plot, "--report", page,
        "--csv", table,
    )  # fmt: skip

    assert outcome.err.count("wrote") == 3
    assert plot.read_text(encoding="utf-8").count("<polyline") == 3
    text = page.read_text(encoding="utf-8")
    assert "Effective training time" in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert table.read_text(encoding="utf-8").startswith("form,effective")


def test_campaign_says_where_the_time_goes(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "a.html"

    outcome = run(
        "risk", "campaign", "llama3-405b", "--days", 54, "--samples", 100, "--spares", 5,
        "--repair", "3d", "--lemons", 0.01, "--lemon-factor", 10, "--exclude-after", 3,
        "--preempt-every", "7d", "--preempt-away", "2h", "--report", page,
    )  # fmt: skip

    assert outcome.code == 0
    for word in ("effective time", "productive", "rework", "preempted", "waiting", "excluded"):
        assert word in outcome.out
    assert width(outcome.out) <= 80
    assert "Where the time goes" in page.read_text(encoding="utf-8")


def test_campaign_tells_days_and_cost(run: Run) -> None:
    line = (
        "risk", "campaign", "llama3-405b", "--tokens", "1T", "--tokens-per-second", 2.6e6,
        "--price", 2, "--samples", 20,
    )  # fmt: skip

    shown, found = run(*line).out, json.loads(run(*line, "--json").out)

    assert "days without loss" in shown
    assert "cost" in shown
    assert found["days_without_loss"] == pytest.approx(1e12 / 2.6e6 / 86_400)
    cost = found["cost_odds"]["mean"]
    assert cost == pytest.approx(found["days_odds"]["mean"] * 24 * 16_384 * 2, rel=1e-6)


def test_compare_gives_the_stated_effective_times(run: Run, tmp_path: Path) -> None:
    page = tmp_path / "a.html"
    line = ("risk", "compare", "ft-hsdp-98k", "--samples", 10, "--days", 30)

    found = json.loads(run(*line, "--json").out)["schemes"]
    shown = run(
        *line, "--scale", "--replica-gpus", 1024, "--replica-gpus", 8192, "--model", "llama3-405b",
        "--chip", "h100-sxm", "--report", page,
    )  # fmt: skip

    by_scheme = {each["scheme"]: each for each in found}
    assert by_scheme["full-restart"]["effective"] == pytest.approx(0.44, abs=0.02)
    assert by_scheme["fault-tolerant"]["effective"] == pytest.approx(0.80, abs=0.02)
    assert by_scheme["fault-tolerant"]["stalls_only"] == pytest.approx(0.80, abs=0.02)
    assert "effective time against GPUs" in shown.out
    assert "best of those that fit: 1,024 GPUs" in shown.out
    assert width(shown.out) <= 80
    assert "Size of a replica" in page.read_text(encoding="utf-8")


def test_compare_takes_a_plan_for_the_memory(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "[parallelism]\ntp = 8\npp = 16\ndp = 128\nsequence_parallel = true\n"
        '[batch]\nglobal_batch = 2048\nsequence = 8192\n[sharding]\nlevel = "zero2"\n',
        encoding="utf-8",
    )  # fmt: skip

    outcome = run(
        "risk", "compare", "llama3-405b", "--replicas", 8, "--stall", "1min", "--away", "9min",
        "--replica-gpus", 2048, "--model", "llama3-405b", "--plan", plan, "--samples", 3,
        "--spares", 16, "--json",
    )  # fmt: skip

    assert outcome.code == 0, outcome.err
    (size,) = json.loads(outcome.out)["replica_sizes"]["sizes"]
    assert size["counts_states_only"] is False
    assert size["num_replicas"] == 8


def test_failures_lists_presets_and_shows_one(run: Run) -> None:
    listed, shown = run("risk", "failures"), run("risk", "failures", "llama3")

    assert "rsc-1" in listed.out
    assert "rsc-1" in run("risk", "failures", "--json").out
    assert "419" in shown.out
    assert "arxiv.org/abs/2407.21783" in shown.out
    assert width(shown.out) <= 80


def test_a_log_becomes_rates_that_other_commands_take(run: Run, tmp_path: Path) -> None:
    log, rates = tmp_path / "log.csv", tmp_path / "mine.toml"
    rows = [f"2026-01-{day:02}T00:00:00,h{day % 3},gpu" for day in range(1, 29)]
    log.write_text("\n".join(["time,host,component", *rows]), encoding="utf-8")

    made = run("risk", "failures", log, "--nodes", 100, "--days", 28, "--out", rates)
    used = run(
        "risk", "ettr", "--nodes", 100, "--failures", rates, "--checkpoint-interval", "30min",
        "--restart", "5min", "--samples", 2, "--json",
    )  # fmt: skip

    assert "host h1 failed" in made.out
    assert "in bursts or by schedule" in made.out
    rate = json.loads(used.out)["campaign"]["failures_per_host_day"]
    assert rate == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("ettr", "--nodes", 10), 2, "--checkpoint-interval"),
        (("ettr", "nobody"), 1, "no campaign is called 'nobody'"),
        (("ettr", "llama3-405b", "--restart", "5"), 2, "--restart is '5'"),
        (("ettr", "rsc-1-16k", "--checkpoint-interval", "best"), 1, "no checkpoint interval"),
        (("ettr", *PUBLISHED, "--failures", "rsc-1"), 2, "either --failure-rate or"),
        (("campaign", "rsc-1-16k", "--tokens", 5), 2, "together"),
        (("campaign", "rsc-1-16k", "--price", 5), 2, "--tokens"),
        (("campaign", "rsc-1-16k", "--tokens", "15X"), 2, "write it as 15T"),
        (("campaign", "rsc-1-16k", "--tokens", "1e999"), 2, "write it as 15T"),
        (("campaign", "rsc-1-16k", "--preempt-every", "1d"), 2, "together"),
        (("campaign", "rsc-1-16k", "--replicas", 7), 2, "together"),
        (("campaign", "ft-hsdp-98k", "--replicas", 7), 1, "do not divide"),
        (("campaign", "rsc-1-16k", "--days", 0), 1, "more than nothing"),
        (("compare", "ft-hsdp-98k", "--model", "llama3-8b"), 2, "--replica-gpus"),
        (("compare", "rsc-1-16k", "--replica-gpus", 80, "--samples", 2), 1, "no replicas"),
        (
            ("compare", "ft-hsdp-98k", "--replica-gpus", 8, "--plan", "x", "--samples", 2),
            2,
            "--plan needs --model",
        ),
        (("failures", "llama3", "--out", "x.toml"), 1, "name a CSV"),
        (("failures", "nothing.csv"), 2, "--nodes"),
    ],
)
def test_what_is_wrong_is_said(
    run: Run, arguments: tuple[object, ...], code: int, words: str
) -> None:
    outcome = run("risk", *arguments)

    assert outcome.code == code
    assert words in " ".join(outcome.err.split()).replace("\u2502 ", "")
