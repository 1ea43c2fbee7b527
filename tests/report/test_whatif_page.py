"""The page of a prediction: what stands on it, that it is whole, and that a browser draws it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from foretrace.api import write_whatif_report
from foretrace.report.slices import TRACKS
from foretrace.whatif import Prediction, difference_rows, figures, subject_text
from tests.report.conftest import Opener
from tests.report.test_page import NAMES_OF_XML, Outline, outline_of, texts_of
from tests.whatif.made import made_prediction

SECTIONS = ("step", "effects", "timeline-section", "causes", "memory", "ground")
MORE = ("critical-path", "help", "idle")


@pytest.fixture(scope="module")
def found() -> Prediction:
    return made_prediction()


@pytest.fixture(scope="module")
def path(found: Prediction, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("whatif") / "page.html"
    write_whatif_report(made, found, title="<wider>")
    return made


@pytest.fixture(scope="module")
def html(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def outline(html: str) -> Outline:
    return outline_of(html)


@pytest.fixture(scope="module")
def data(html: str) -> dict[str, Any]:
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html)
    value: dict[str, Any] = json.loads(text)
    return value


def test_the_page_is_well_formed_and_asks_for_nothing(html: str, outline: Outline) -> None:
    assert outline.open_tags == []
    assert outline.wrongly_closed == []
    assert [link for link in outline.links if not link.startswith("#")] == []
    assert re.findall(NAMES_OF_XML + r"|@import|\bfetch\(|XMLHttpRequest", html) == []
    assert "<wider>" not in html


def test_it_names_the_subject_and_every_fact(found: Prediction, outline: Outline) -> None:
    texts = outline.text_by_tag["p"]

    assert subject_text(found) in texts
    assert texts_of(figures(found)) <= set(texts)


@pytest.mark.parametrize("key", [*SECTIONS, *MORE])
def test_it_has_every_section(html: str, key: str) -> None:
    assert f'<section id="{key}"' in html


def test_components_sum_to_both_steps(found: Prediction, data: dict[str, Any]) -> None:
    rows = data["tables"]["components"]["rows"]

    for side, step_ns in ((1, found.replayed_step_ns), (2, found.step_ns)):
        assert sum(row[side] for row in rows[:-1]) == rows[-1][side]
        assert abs(rows[-1][side] - step_ns) <= 1  # a mean that is rounded down
    assert [row.difference_ns for row in difference_rows(found)] == [row[3] for row in rows]


def test_the_waterfall_leads_from_before_to_after(found: Prediction, data: dict[str, Any]) -> None:
    rows = data["tables"]["effects"]["rows"]

    step_ns = rows[0][1]
    for _, after_ns, change_ns, _, from_ns, _, longer_ns, shorter_ns in rows[1:-1]:
        assert step_ns + change_ns == after_ns
        assert from_ns + (longer_ns or shorter_ns) == max(step_ns, after_ns)
        step_ns = after_ns
    assert step_ns == rows[-1][1] == found.step_ns
    assert data["charts"]["effects"]["minimum"] < min(row[1] for row in rows)


def test_both_jobs_are_drawn_with_their_own_ranks(data: dict[str, Any]) -> None:
    strip = data["strip"]
    drawn = {
        (row["title"], row["rank"])
        for row in strip["rows"]
        if row["num_slices"] and row["track"] == TRACKS.index("host")
    }

    assert drawn == {
        *(("before", rank) for rank in range(4)),
        *(("after", rank) for rank in range(8)),
    }
    layers = {
        re.search(r"layer (\d+)", text)[1]  # type: ignore[index]
        for text in strip["texts"]
        if text.startswith("layer ")
    }
    assert layers == {"0", "1", "2", "3"}


def test_without_memory_notes_or_edits_there_is_less(found: Prediction, tmp_path: Path) -> None:
    bare = replace(found, memory=None, effects=(), notes=())

    write_whatif_report(tmp_path / "page.html", bare)

    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<h1>wider</h1>" in html
    for key in ("memory", "effects"):
        assert f'<section id="{key}"' not in html


def test_the_browser_draws_every_chart_in_silence(opener: Opener, path: Path) -> None:
    opened = opener(path)

    charts = opened.page.locator("[data-chart]")
    shapes = charts.evaluate_all("all => all.map(e => e.querySelectorAll('svg path').length)")
    assert min(shapes) > 4
    assert opened.requests == [path.as_uri()]


def test_the_waterfall_tells_changes_and_not_what_holds_them(opener: Opener, path: Path) -> None:
    opened = opener(path)
    chart = opened.page.locator('[data-chart="effects"]')
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    assert box is not None

    opened.page.mouse.move(box["x"] + 0.6 * box["width"], box["y"] + 0.42 * box["height"])

    opened.until(
        "document.querySelector('[data-chart=\"effects\"]').innerText.includes('longer, step')"
    )
    assert "from" not in chart.inner_text()
