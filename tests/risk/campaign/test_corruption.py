from __future__ import annotations

import pytest

from foretrace.base import NS_PER_HOUR, NS_PER_S, RiskError
from foretrace.machine import load_machine
from foretrace.report import corruption_plot
from foretrace.risk import (
    OBSERVED_PER_HOST_DAY,
    Campaign,
    Checkpoint,
    OperatorCheck,
    SilentCorruption,
    checked_step,
    load_failures,
    rate_interval,
    silent_corruption,
)
from foretrace.workload import PlanDraft, complete, load_model

LLAMA = Campaign(
    num_hosts=2048,
    failures_per_host_day=0.0038,
    checkpoint=Checkpoint(interval_ns=NS_PER_HOUR),
    restart_ns=NS_PER_HOUR // 6,
)
FULL = OperatorCheck(name="full", overhead=0.2, coverage=1.0)
HALF = OperatorCheck(name="half", overhead=0.02, coverage=0.5)


def found(
    *, vulnerability: float = 1.0, upsets_per_host_day: float = OBSERVED_PER_HOST_DAY
) -> SilentCorruption:
    return silent_corruption(
        LLAMA,
        step_ns=5 * NS_PER_S,
        checks=(FULL, HALF),
        num_samples=20,
        vulnerability=vulnerability,
        upsets_per_host_day=upsets_per_host_day,
    )


def test_nothing_is_silent_where_nothing_is_vulnerable_or_all_is_covered() -> None:
    assert [one.silent_per_month for one in found(vulnerability=0.0).rows] == [0, 0, 0]
    assert found().rows[1].silent_per_month == 0
    assert found().rows[2].silent_per_month == found().rows[0].silent_per_month / 2


def test_the_time_of_a_campaign_is_divided_and_none_is_lost() -> None:
    for one in found(upsets_per_host_day=3.0).rows:
        shares = (one.productive_share, one.check_share, one.recomputed_share, one.other_share)
        assert sum(shares) == pytest.approx(1)
        assert min(shares) >= 0
    plain, full, _ = found(upsets_per_host_day=3.0).rows
    assert full.check_share == pytest.approx(0.2 * full.productive_share)
    assert plain.recomputed_share == 0
    assert full.productive_share > full.restarted_share


def test_the_published_54_days_are_in_the_range() -> None:
    causes = load_failures("llama3").components
    [seen] = [one for one in causes if one.name == "silent data corruption"]
    low, high = rate_interval(6, 2048 * 54)

    expected = found().rows[0].silent_per_month / 30 * 54

    assert expected == pytest.approx(seen.count or 0)
    assert 2048 * 54 * low < expected < 2048 * 54 * high


@pytest.mark.parametrize(
    ("given", "words"),
    [({"vulnerability": 1.5}, "are shares"), ({"upsets_per_host_day": -1.0}, "zero or more")],
)
def test_what_cannot_be_is_said(given: dict[str, float], words: str) -> None:
    with pytest.raises(RiskError, match=words):
        found(**given)


def test_checks_cost_what_they_add_to_the_simulated_step() -> None:
    model, machine = load_model("llama3.2-1b"), load_machine("dgx-h100")
    draft = PlanDraft().with_keys({"global_batch": 8, "sequence": 2048})
    step = checked_step(
        model, complete(draft, model, 8), machine, coverage={"column": 0.9, "twice": 1.0}
    )
    column, twice = step.checks
    assert 0 < column.overhead < 0.2 < twice.overhead < 1
    assert (step.num_hosts, step.gpus_per_host) == (1, 8)
    # 100 upsets in 1e9 hours of a megabit.
    per_day = step.upsets_per_host_day(100)
    assert per_day == pytest.approx(100 * 8 * 8 * step.parameter_bytes / 1e6 * 24e-9)
    drawn = corruption_plot(found())
    assert drawn.count("<circle") == 3
    assert "percent of a step" in drawn
