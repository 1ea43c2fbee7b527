"""The page on memory: its table of errors and its Python are right."""

from __future__ import annotations

import re
from pathlib import Path
from statistics import mean

from foretrace.workload import Footprint
from tests.workload.footprint.rows import measured_rows

PAGE = Path(__file__).parents[3] / "docs" / "memory.md"


def test_the_table_of_errors_is_what_comes_out(data_dir: Path) -> None:
    rows = measured_rows(data_dir)
    expected = []
    for source in ("torchtitan", "simumax", "mlperf"):
        errors = [row.error() for row in rows if row.source == source]
        average, worst = mean(map(abs, errors)), max(errors, key=abs)
        expected.append(f"| {source} | {len(errors)} | {average:.1%} | {worst:+.1%} |")

    assert "\n".join(expected) in PAGE.read_text(encoding="utf-8")


def test_the_python_of_the_page_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, object] = {}

    exec(code, names)  # noqa: S102 - the page's own lines

    found = names["found"]
    assert isinstance(found, Footprint)
    assert found.fits is True
