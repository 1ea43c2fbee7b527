"""Make the pictures of the documentation anew, from pages of the bundled examples.

    python tools/pictures.py            all, into docs/pictures
    python tools/pictures.py CHROMIUM   with a browser that playwright does not find by itself

It needs what the tests need: playwright, and a Chromium. `perfetto.png` is not among them: it is a
picture of another program.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
PICTURES = ROOT / "docs" / "pictures"
EXAMPLE = "examples/cpu-llama-tp2-dp2/traces"
WIDTH, HEIGHT = 1200, 1500
ZOOMS = 3  # of the timeline, from all of it to one step


def main() -> None:
    """Write every picture."""
    from playwright.sync_api import sync_playwright

    browser_path = sys.argv[1] if len(sys.argv) > 1 else shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        for name, (line, is_dark, take) in LINES.items():
            page_file = Path(folder) / f"{name}.html"
            command = [sys.executable, "-m", "foretrace", *line, "--report", str(page_file)]
            subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
            page = browser.new_page(
                viewport={"width": WIDTH, "height": HEIGHT},
                color_scheme="dark" if is_dark else "light",
            )
            page.goto(page_file.as_uri())
            page.wait_for_load_state("networkidle")
            take(page, PICTURES / f"{name}.png")
            page.close()
        browser.close()


def _top(page: Any, path: Path) -> None:
    page.screenshot(path=path)


def _stragglers(page: Any, path: Path) -> None:
    page.locator("#stragglers").screenshot(path=path)


def _timeline(page: Any, path: Path) -> None:
    timeline = page.locator("section:has(#timeline)")
    timeline.scroll_into_view_if_needed()
    canvas = timeline.locator("canvas").last
    canvas.focus()
    for _ in range(ZOOMS):
        page.keyboard.press("w")
    timeline.screenshot(path=path)


LINES: dict[str, tuple[list[str], bool, Callable[[Any, Path], None]]] = {
    "report-glance": (["replay", EXAMPLE], False, _top),
    "report-timeline-dark": (["replay", EXAMPLE], True, _timeline),
    "report-stragglers": (["replay", "examples/planted/slow-forward"], False, _stragglers),
    "whatif-glance": (
        [
            *("whatif", EXAMPLE, "--layers", "4", "--cores", "2"),
            *("--speed", "part:optimizer=2", "--speed", "gemm=1.25"),
        ],
        False,
        _top,
    ),
    "estimate-glance": (
        [
            *("estimate", "--model", "llama3-405b", "--machine", "h100-24k"),
            *("--plan", "llama3-405b-8k-16k-gpus"),
        ],
        False,
        _top,
    ),
}

if __name__ == "__main__":
    main()
