"""Tables of the pages on costs are those of the constants; `--update-golden` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from foretrace.cost import ELSEWHERE, Constants, LeftOut, shipped_constants
from foretrace.cost.calibration import NEAREST
from foretrace.cost.predicting import constants_of

PAGES = Path(__file__).parents[2] / "docs" / "cost"
MARK = re.compile(r"<!-- (constants|left_out|nearest|elsewhere) (.*?) -->\n((?:\|.*\n)*)")


def table(kind: str, words: list[str]) -> str:
    if kind == "constants":
        heads = ["constant", "meaning", *(f"`{chip}`" for chip in words[3:])]
        model = words[0].replace("_", " ")
        rows = constant_rows(model, words[1], words[2], chips=words[3:])
    else:
        heads = ["GPU", "format", "region", "rows", "mean", "median", "p90", "roofline", "line"]
        rows = error_rows(" ".join(words), kind)
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def constant_rows(model: str, kind: str, width: str, *, chips: list[str]) -> Iterator[list[str]]:
    by_chip = {one.chip: one for one in shipped_constants()}
    fits = [by_chip[chip].fit(model, kind.replace("-", ""), width) for chip in chips]
    for constant in constants_of(model, kind.replace("-", "")):
        values = [f"{fit.values[constant.name]:.4g}" if fit else "" for fit in fits]
        unit = f", {constant.unit}" if constant.unit else ""
        yield [f"`{constant.name}`", f"{constant.meaning}{unit}", *values]


def error_rows(family: str, kind: str) -> Iterator[list[str]]:
    for one in rows_of(family, kind):
        errors = one.errors
        shares = (
            errors.mean_abs_error,
            errors.median_abs_error,
            errors.p90_abs_error,
            errors.roofline_mean_abs_error,
            errors.linear_mean_abs_error,
        )
        name = one.family.removeprefix(family).strip()
        yield [
            one.gpu,
            f"{one.dtype} {name}".strip(),
            errors.region.replace("below_", "< ").replace("from_", ">= "),
            str(errors.n),
            *(f"{100 * share:.1f}" for share in shares),
        ]


def rows_of(family: str, kind: str) -> list[LeftOut]:
    found: list[Constants] = [
        one for one in shipped_constants() if (one.chip == ELSEWHERE) == (kind != "left_out")
    ]
    rows = [row for one in found for row in one.left_out]
    if kind != "left_out":
        rows = [row for row in rows if (row.fitted_on == NEAREST) == (kind == "nearest")]
    return [row for row in rows if row.family == family or row.family.startswith(f"{family} ")]


@pytest.mark.parametrize(
    "page",
    [
        "gemm.md",
        "attention.md",
        "memory_bound.md",
        "convolution.md",
        "decode.md",
        "experts.md",
        "expert_exchange.md",
    ],
)
def test_tables_of_the_page_are_those_of_the_shipped_constants(
    page: str, request: pytest.FixtureRequest
) -> None:
    path = PAGES / page
    text = path.read_text(encoding="utf-8")

    filled = MARK.sub(
        lambda found: f"<!-- {found[1]} {found[2]} -->\n{table(found[1], found[2].split())}", text
    )

    if request.config.getoption("--update-golden"):
        path.write_text(filled, encoding="utf-8")
        return
    assert len(MARK.findall(text)) >= 2
    assert filled == text
