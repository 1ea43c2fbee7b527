"""The page of an estimate: what stands on it, that it is whole, and that a browser draws it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.estimate import Estimate, figures, subject_text
from foretrace.estimate.words import part_text
from tests.report.conftest import Opener
from tests.report.test_page import NAMES_OF_XML, Outline, outline_of, texts_of

SECTIONS = ("step", "help", "timeline-section", "memory", "certainty", "critical-path", "idle")
MORE = ("operators", "roofline", "sensitivity", "plan-section")


@pytest.fixture(scope="module")
def found() -> Estimate:
    keys = {"tp": 2, "pp": 2, "dp": 2, "global_batch": 8, "batch.sequence": 256}
    more = {"micro_batch": 1, "recompute": "none", "schedule": "1f1b", "chunks": 1}
    return ft.estimate("llama3.2-1b", keys | more, "dgx-h100", price_per_hour=2.0)


@pytest.fixture(scope="module")
def path(found: Estimate, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("estimate") / "page.html"
    ft.report(found, made)
    return made


@pytest.fixture(scope="module")
def html(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(html: str) -> Outline:
    return outline_of(html)


def test_the_page_is_well_formed_and_asks_for_nothing(html: str, outline: Outline) -> None:
    assert outline.open_tags == []
    assert outline.wrongly_closed == []
    assert [link for link in outline.links if not link.startswith("#")] == []
    assert re.findall(NAMES_OF_XML + r"|@import|\bfetch\(|XMLHttpRequest", html) == []


def test_it_names_the_subject_and_every_fact(found: Estimate, outline: Outline) -> None:
    texts = outline.text_by_tag["p"]

    assert subject_text(found) in texts
    assert texts_of(figures(found)) <= set(texts)


@pytest.mark.parametrize("key", [*SECTIONS, *MORE])
def test_it_has_every_section(html: str, key: str) -> None:
    assert f'<section id="{key}"' in html


def test_it_says_nothing_of_replays(html: str) -> None:
    text = re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL)

    assert "replay" not in text
    assert "measured ms" not in text


def test_parts_on_the_page_sum_to_the_step(found: Estimate, html: str) -> None:
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html)
    rows = json.loads(data)["tables"]["parts"]["rows"]

    assert sum(row[1] for row in rows[:-1]) == rows[-1][1] == found.step_ns
    assert [row[0] for row in rows[:-1]] == list(map(part_text, found.where.mean.by_name()))


def test_what_was_assumed_is_marked(outline: Outline) -> None:
    cells = outline.text_by_tag["td"]

    assert cells.count("assumed") == 2
    assert cells[cells.index("sharding.level") + 1] == "zero1"


def test_a_browser_draws_it_without_a_complaint(opener: Opener, path: Path) -> None:
    opened = opener(path)
    charts = opened.page.locator("[data-chart]")
    shapes = charts.evaluate_all("all => all.map(e => e.querySelectorAll('svg path').length)")

    assert opened.requests == [path.as_uri()]
    assert min(shapes) > 4
    assert not opened.page.locator("#timeline-title").is_visible()
