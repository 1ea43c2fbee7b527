"""A headless Chromium that may reach nothing but the file under test."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Dialog, Page, sync_playwright

POLL_MS = 20
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Opened:
    """A page in the browser, and what it did that nobody asked for."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)  # console errors, exceptions, dialogs

    def until(self, expression: str, timeout_ms: int = 10_000) -> None:
        """Wait until a JavaScript expression holds; the page's own policy forbids it to poll."""
        for _ in range(timeout_ms // POLL_MS):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(POLL_MS)
        raise AssertionError(f"after {timeout_ms} ms this does not hold: {expression}")

    def view(self) -> tuple[float, float]:
        """The span of the timeline that is shown, in ticks."""
        start, end = self.page.locator("#timeline").evaluate("e => [e.dataset.from, e.dataset.to]")
        return float(start), float(end)


@dataclass
class Opener:
    """Opens files and remembers what they did."""

    browser: Browser
    opened: list[Opened] = field(default_factory=list)

    def __call__(self, path: Path, **context: Any) -> Opened:
        """The file in a window of its own, loaded; `context` is Playwright's."""
        options: dict[str, Any] = {"viewport": {"width": 1280, "height": 900}, "offline": True}
        page = self.browser.new_context(**options | context).new_page()
        one = Opened(page)
        page.on("request", lambda request: one.requests.append(request.url))
        page.on("pageerror", lambda error: one.complaints.append(str(error)))
        page.on("console", lambda message: _note(one, message.type, message.text))
        page.on("dialog", lambda dialog: _dismissed(one, dialog))
        page.goto(path.as_uri(), wait_until="load")
        if context.get("java_script_enabled", True):
            page.wait_for_selector("#timeline[data-ready]")
        self.opened.append(one)
        return one


def _note(one: Opened, kind: str, text: str) -> None:
    if kind in {"error", "warning"}:
        one.complaints.append(f"{kind}: {text}")


def _dismissed(one: Opened, dialog: Dialog) -> None:
    one.complaints.append(f"dialog: {dialog.message}")
    dialog.dismiss()


# Of a module, not of the session: other folders use it too, and only one may run at a time.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium from `FORETRACE_CHROMIUM` or the path; the test is skipped without one."""
    found = os.environ.get("FORETRACE_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), "")
    if not found:
        pytest.skip("no Chromium on the path: install it or set FORETRACE_CHROMIUM to one")
    with sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield launched
        launched.close()


@pytest.fixture
def opener(browser: Browser) -> Iterator[Opener]:
    """Opens files; whatever a test does with them, they ask for nothing and complain of nothing."""
    made = Opener(browser)
    yield made
    for one in made.opened:
        beyond = [url for url in one.requests if not url.startswith(("file:", "blob:"))]
        one.page.context.close()
        assert one.complaints == []
        assert beyond == []
