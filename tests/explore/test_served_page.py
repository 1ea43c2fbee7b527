"""The served page in headless Chromium; it asks its own server, which answers nobody else."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import pytest
from playwright.sync_api import Browser, Page

from foretrace.explore import ExploreServer
from tests.explore.test_explorer import explorer
from tests.report.conftest import browser

pytest.importorskip("starlette", reason="starlette is not installed")
pytest.importorskip("uvicorn", reason="uvicorn is not installed")

__all__ = ["browser"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with ExploreServer(explorer()).serving() as (at, _):
        yield at


def opened(browser: Browser, address: str, **context: Any) -> tuple[Page, list[str]]:
    """The page with its first answer; what it asked for, and what it complained of."""
    page = browser.new_context(**context).new_page()
    told: list[str] = []
    page.on("request", lambda request: told.append(request.url))
    page.on("pageerror", lambda error: told.append(f"error: {error}"))
    page.on("console", lambda message: told.append(f"{message.type}: {message.text}"))
    page.goto(address, wait_until="load")
    answered(page, 1)
    return page, told


def answered(page: Page, count: int) -> None:
    """Wait until so many answers have come."""
    for _ in range(1000):
        if int(page.evaluate("document.body.dataset.answered || 0")) >= count:
            return
        page.wait_for_timeout(20)
    raise AssertionError(f"{count} answers did not come")


def move(page: Page, key: str, to: int) -> None:
    """Move a slider to one of its places."""
    page.locator(f"[data-key={key}]").evaluate(
        "(e, to) => { e.value = to; e.dispatchEvent(new Event('input')); }", to
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_moving_a_slider_moves_the_answer(browser: Browser, address: str, scheme: str) -> None:
    page, told = opened(browser, address, color_scheme=scheme)
    before = page.inner_text("#step"), page.inner_text("#memory")
    assert int(page.locator("#timeline").get_attribute("data-units") or 0) > 30

    move(page, "sequence", 3)
    answered(page, 2)

    after = page.inner_text("#step"), page.inner_text("#memory")
    assert after[0] != before[0]
    assert after[1] != before[1]
    assert page.inner_text("#refusal") == ""
    assert all(url.startswith((address, "data:")) for url in told), told
    page.context.close()


def test_a_plan_that_cannot_run_says_why_and_keeps_the_last_answer(
    browser: Browser, address: str
) -> None:
    page, _ = opened(browser, address)
    before = page.inner_text("#step")

    move(page, "global_batch", 0)
    answered(page, 2)

    assert "global batch" in page.inner_text("#refusal")
    assert page.inner_text("#step") == before
    assert "stale" in (page.get_attribute("#answer", "class") or "")
    page.context.close()


def test_a_phone_shows_it_without_scrolling_sideways(browser: Browser, address: str) -> None:
    page, _ = opened(browser, address, viewport={"width": 375, "height": 700})

    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.context.close()


def test_without_the_token_there_is_nothing(address: str) -> None:
    parts = urlsplit(address)

    assert parts.hostname == "127.0.0.1"
    for path in ("/", "/wrong/", "/wrong/step"):
        with pytest.raises(HTTPError, match="404") as refused:
            urlopen(f"http://{parts.netloc}{path}")
        refused.value.close()
    with pytest.raises(HTTPError, match="400") as refused:
        urlopen(Request(address, headers={"Host": "elsewhere.example"}))  # noqa: S310  the same
    refused.value.close()
    with urlopen(address + "step") as answer:  # noqa: S310  the same
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
