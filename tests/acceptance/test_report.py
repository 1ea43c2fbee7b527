"""What is wrong with a generated job stands at the top of its page, and the browser shows it."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import foretrace as ft
from tests.report.conftest import Opener, browser, opener
from tests.truth import JobConfig, SlowRank, make_job, mutate, text, write

__all__ = ["browser", "opener"]  # pytest finds fixtures by name in the file that uses them

CONFIG = JobConfig(tp=2, dp=2, num_layers=2, num_steps=2, recompute="reentrant")


def test_a_slow_rank_is_named_first(opener: Opener, tmp_path: Path) -> None:
    job = make_job(CONFIG).after(SlowRank(3, 1.3))
    paths = write(job, tmp_path)

    ft.report(ft.load(paths, cache=False), tmp_path / "page.html")

    page = opener(tmp_path / "page.html").page
    assert (
        "rank 3's slow chip, 1.30 times as long"
        in page.locator("#help ol").nth(1).locator("li").first.inner_text()
    )
    first = page.locator('figure[data-table="stragglers-ranks"] tbody tr').first
    assert first.locator("td, th").first.text_content() == "3"
    assert page.locator("#blocks").is_visible()
    assert page.locator("#roofline").is_visible()


def test_a_hang_comes_before_everything_else(opener: Opener, tmp_path: Path) -> None:
    job = make_job(replace(CONFIG, recompute=""))
    members = [{each.rank: each.correlation for each in one.members} for one in job.collectives]
    at = len(members) // 2
    missing = max(members[at])
    parsed = {
        rank: json.loads(text(job, rank), parse_float=Decimal) for rank in range(job.num_ranks)
    }
    hung = mutate.hung(parsed, members, missing=missing, at=at)
    paths = [mutate.save(trace, tmp_path / f"rank{rank}.json") for rank, trace in hung.items()]

    ft.report(ft.load(paths, cache=False), tmp_path / "page.html")

    page = opener(tmp_path / "page.html").page
    section = page.locator("main section[id]").first
    assert section.get_attribute("id") == "hang"
    assert f"which rank {missing} never began" in section.inner_text()
