"""CONTRIBUTING's recipe for an analysis, followed in a copy of the package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.recipes.package import COMMAND, copied, printed
from tests.truth import JobConfig, make_job, write

MODULE = '''
"""`Spread`: how far the ranks' shares of idle time are apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from foretrace.analyze.breakdown import breakdown
from foretrace.analyze.options import Step
from foretrace.answer import (
    Answer, Column, Option, Place, Table, Told, duration_text, question,
)
from foretrace.graph import MEASURED, Timeline

Above = Annotated[int, Option("Ranks that idle for at least so many ns.", metavar="NS", minimum=0)]


@dataclass(frozen=True)
class RankIdle:
    """One rank's idle time."""

    rank: int
    idle_ns: int


@dataclass(frozen=True, repr=False)
class Spread(Answer):
    """Ranks, the idlest first."""

    rows: tuple[RankIdle, ...]

    @property
    def headline(self) -> str:
        """The idlest rank."""
        return f"rank {self.rows[0].rank} idles for {duration_text(self.rows[0].idle_ns)}"

    def parts(self) -> tuple[Told, ...]:
        """A row per rank."""
        return (Table.of("rows", self.rows, Column("rank"), Column("idle_ns")),)


@question(
    MEASURED,
    help="Say how far the ranks' idle times are apart.",
    doing="adding up idle time",
    place=Place(65, "Idle time apart"),
)
def idle_spread(timeline: Timeline, *, step: Step = None, above: Above = 0) -> Spread:
    """How far the ranks' idle times are apart.

    Args:
        step: by name or number; all, if left out.
        above: leave ranks with less out.
    """
    found = breakdown(timeline, step=step)
    ranks = sorted({row.rank for row in found.rows})
    rows = [RankIdle(rank, found.of_rank(rank).idle_ns) for rank in ranks]
    kept = [row for row in rows if row.idle_ns >= above]
    return Spread(tuple(sorted(kept, key=lambda row: -row.idle_ns)))
'''
LISTED = "    from foretrace.analyze.idle_spread import idle_spread as idle_spread\n"
PYTHON = """
import sys
import foretrace as ft
job = ft.load(sys.argv[1], cache=False)
found = ft.idle_spread(job, above=1)
assert "idle_spread" in dir(ft)
assert found.to_polars().columns == ["rank", "idle_ns"]
assert found.rows == ft.idle_spread(job.measured, above=1).rows
assert "<th>idle ms</th>" in found._repr_html_()
print(repr(found))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package with the analysis: one new file, and one line in another."""
    folder = tmp_path_factory.mktemp("package")
    analyze = copied(folder) / "analyze"
    (analyze / "idle_spread.py").write_text(MODULE.lstrip(), encoding="utf-8")
    listed = (analyze / "questions.py").read_text(encoding="utf-8")
    place = listed.index("    from foretrace.analyze.operators import")
    text = listed[:place] + LISTED + listed[place:]
    (analyze / "questions.py").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write(make_job(JobConfig(tp=2, dp=1, num_layers=2, num_steps=2)), folder)
    return folder


def test_it_is_a_verb_a_frame_and_a_notebooks_display(package: Path, run_folder: Path) -> None:
    shown = printed(package, "-c", PYTHON, run_folder)

    assert shown.startswith("<Spread: rank ")


def test_it_is_a_command_with_options_and_json(package: Path, run_folder: Path) -> None:
    line = (*COMMAND, "idle-spread", run_folder, "--no-cache")

    found = json.loads(printed(package, *line, "--json", "--above", "1"))
    table = printed(package, *line, "--replayed", "--step", "5")
    told = printed(package, *COMMAND, "idle-spread", "--help")

    assert {*found["rows"][0]} == {"rank", "idle_ns"}
    assert table.splitlines()[0].endswith("replayed")
    assert "idle ms" in table
    assert "at least so many ns" in told


def test_it_has_a_section_on_the_page(package: Path, run_folder: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"

    printed(package, *COMMAND, "report", run_folder, "--no-cache", "-o", page)

    html = page.read_text(encoding="utf-8")
    assert '<section id="idle-spread"' in html
    assert '<h2 id="idle-spread-title">Idle time apart</h2>' in html
    assert html.index('id="idle"') < html.index('id="idle-spread"')
