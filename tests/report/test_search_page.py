"""The page of a search in headless Chromium: plots lead to plans, tables can be sifted."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from foretrace.api import search, write_search_report
from foretrace.search import PlanSearch


@pytest.fixture(scope="module")
def found() -> PlanSearch:
    sizes = {"global_batch": 16, "batch.sequence": 2048, "micro_batch": 1, "schedule": "1f1b"}
    return search("llama3.2-1b", "dgx-h100", num_ranks=(2, 4), plan=sizes, gap=0.0, time_s=None)


@pytest.fixture(scope="module")
def path(found: PlanSearch, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("search") / "page.html"
    write_search_report(made, found)
    return made


def opened(browser: Browser, path: Path, **context: object) -> tuple[Page, list[str]]:
    page = browser.new_context(offline=True, **context).new_page()  # type: ignore[arg-type]
    told: list[str] = []
    page.on("pageerror", lambda error: told.append(str(error)))
    page.on("request", lambda request: told.append(request.url))
    page.goto(path.as_uri())
    return page, told


def test_a_point_leads_to_its_plan(browser: Browser, path: Path, found: PlanSearch) -> None:
    page, told = opened(browser, path)
    points = page.locator("svg a")
    assert points.count() >= len(found.pareto)

    target = points.first.get_attribute("href") or ""
    points.first.click()

    assert page.url.endswith(target)
    shown = page.locator(target)
    assert shown.is_visible()
    assert "parallelism" in shown.inner_text()
    assert points.first.locator("title").text_content()
    assert told == [path.as_uri()]
    page.context.close()


def test_rows_are_sifted_by_words_and_come_back(browser: Browser, path: Path) -> None:
    page, _ = opened(browser, path)
    rows = page.locator("#worth tbody tr")
    count = rows.count()

    page.fill("#worth .sieve", "tp 2")

    left = [rows.nth(at).inner_text() for at in range(count) if rows.nth(at).is_visible()]
    assert 0 < len(left) < count
    assert all("tp" in text and "2" in text for text in left)
    page.fill("#worth .sieve", "")
    assert all(rows.nth(at).is_visible() for at in range(count))
    page.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(
    browser: Browser, path: Path, scheme: str
) -> None:
    page, _ = opened(browser, path, viewport={"width": 375, "height": 700}, color_scheme=scheme)

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.context.close()
