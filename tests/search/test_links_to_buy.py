"""How much bandwidth between buildings is worth its price."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
from foretrace.base import MachineError, WorkloadError
from foretrace.search import PlanSearch

WIDTHS = "network.region.oversubscription=1:1,64:1"
GBITS_OF_CARD, HOURS_OF_MONTH = 400, 365.25 * 24 / 12


def machine(folder: Path, price: str = "") -> Path:
    """Two buildings of a host."""
    path = folder / "two.toml"
    path.write_text(
        'kind = "machine"\nhost = "dgx-h100"\n'
        '[[tiers]]\nname = "host"\nkind = "scale-up"\nranks = 8\n'
        '[[tiers]]\nname = "region"\nkind = "region"\nranks = 16\n' + price,
        encoding="utf-8",
    )
    return path


def bought(folder: Path, per_month: float, **more: object) -> PlanSearch:
    keys = {"tp": 8, "pp": 1, "cp": 1, "global_batch": 16, "batch.sequence": 2048}
    return ft.search(
        "llama3.2-1b",
        machine(folder, f'link_price = "{per_month} /Gb/s/month"\n'),
        num_ranks=16,
        plan={
            **keys,
            "micro_batch": 1,
            "schedule": "1f1b",
            "sharding.level": "none",
            "recompute": "none",
        },
        objective="cost",
        price_per_hour=2.0,
        links=WIDTHS,
        gap=0.0,
        **more,  # type: ignore[arg-type]
    )


def test_dear_links_are_bought_narrow_and_cheap_ones_wide(tmp_path: Path) -> None:
    cheap, dear = bought(tmp_path, 0.01), bought(tmp_path, 10_000.0)

    assert [row.value for row in cheap.links] == ["1:1", "64:1"]
    steps = [row.step_ns for row in cheap.links]
    assert steps == sorted(steps)
    assert steps[0] < steps[-1]
    assert [row.step_ns for row in dear.links] == steps
    for found, per_month, best in ((cheap, 0.01, 0), (dear, 10_000.0, 1)):
        prices = [row.price for row in found.links]
        assert prices.index(min(prices)) == best
        assert found.best.step_ns == steps[best]
        for row, left in zip(found.links, (1, 64), strict=True):
            hour = 16 * GBITS_OF_CARD / left * per_month / HOURS_OF_MONTH
            assert row.links_per_hour == pytest.approx(hour)
            cost = (hour + 16 * 2.0) * row.step_ns / 3600e9 / (16 * 2048) * 1e6
            assert row.price == pytest.approx(cost)
        assert (found.best.figures or {})["cost"] == pytest.approx(min(prices))


def test_links_to_buy_need_a_price_a_tier_and_values(tmp_path: Path) -> None:
    def search(links: str, path: Path) -> None:
        ft.search(
            "llama3.2-1b", path, num_ranks=16, links=links, plan={"global_batch": 16, "tp": 8}
        )

    with pytest.raises(WorkloadError, match="no tier of machine 'two' says what its links cost"):
        search(WIDTHS, machine(tmp_path))
    priced = machine(tmp_path, 'link_price = "1 /Gb/s/month"\n')
    with pytest.raises(WorkloadError, match=r"network\.region\.oversubscription=1:1,2:1,7:1"):
        search("region=1,2", priced)
    with pytest.raises(MachineError, match="has no tier 'regoin'"):
        search("network.regoin.oversubscription=1:1", priced)
    with pytest.raises(WorkloadError, match="leave out resume"):
        bought(tmp_path, 1.0, resume=tmp_path / "kept.jsonl")


def test_an_estimate_tells_what_the_links_behind_its_chips_cost(tmp_path: Path) -> None:
    keys = {"tp": 8, "dp": 2, "global_batch": 16, "sequence": 2048, "micro_batch": 1}
    priced = machine(tmp_path, 'link_price = "100 /Gb/s/month"\n')

    found = ft.estimate("llama3.2-1b", keys, priced, price_per_hour=2.0)

    hour = 16 * GBITS_OF_CARD * 100 / HOURS_OF_MONTH
    assert found.links_per_hour == pytest.approx(hour)
    links, whole = found.links_per_million, found.price_per_million
    assert links is not None
    assert whole is not None
    assert whole / links == pytest.approx((hour + 16 * 2.0) / hour)
    assert found.as_json()["links_per_million_tokens"] == links
    assert "links_per_hour" not in ft.estimate("llama3.2-1b", keys, machine(tmp_path)).as_json()
