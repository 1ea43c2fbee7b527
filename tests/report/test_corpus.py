"""Pages of real recordings: small enough, and silent in a browser."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
from tests.report.conftest import Opener

MAX_BYTES = 5_000_000
EXAMPLE = "examples/cpu-llama-tp2-dp2"
TRACES = (
    "megatron-tp8",
    "a100-dlrm-rank3-of-8",
    "odd-files/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
)


def check(opener: Opener, traces: Path, folder: Path) -> None:
    """The page of these traces is within the limit, draws everything and complains of nothing."""
    path = folder / "page.html"
    job = ft.load(traces, cache=False)

    ft.report(job, path)

    assert path.stat().st_size < MAX_BYTES
    page = opener(path).page
    shapes = page.locator("[data-chart]").evaluate_all(
        "all => all.map(e => e.querySelectorAll('svg path').length)"
    )
    assert shapes
    assert min(shapes) > 2
    page.locator("#timeline-canvas").focus()
    page.keyboard.press("n")
    assert "on the critical path for" in page.locator("#timeline-picked").inner_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", TRACES)
def test_pages_of_public_traces(opener: Opener, data_dir: Path, tmp_path: Path, name: str) -> None:
    check(opener, data_dir / "traces" / name, tmp_path)


@pytest.mark.slow
def test_the_page_of_the_example(opener: Opener, repository: Path, tmp_path: Path) -> None:
    check(opener, repository / EXAMPLE, tmp_path)
