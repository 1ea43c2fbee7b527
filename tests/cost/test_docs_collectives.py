"""Tables of the page on collectives are those of the constants; `--update-golden` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from foretrace.cost import LeftOut, shipped_collectives
from foretrace.cost.fitting import Constant
from foretrace.cost.network import domain, tiers

PAGE = Path(__file__).parents[2] / "docs" / "cost" / "collectives.md"
MARK = re.compile(r"<!-- (constants|network|left_out|beyond) ?(.*?) -->\n((?:\n?\|.*\n)*)")
ERRORS = ["", "host", "format", "region", "rows", "mean", "median", "p90", "links", "line"]


def drawn(heads: list[str], rows: Iterable[list[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n" + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def table(kind: str, collective: str) -> str:
    if kind == "constants":
        fits = [
            (f"`{one.chip}` {fit.kind}", fit.values)
            for one in shipped_collectives()
            for fit in one.fits
            if one.architecture and fit.model == collective and "v100" not in one.chip
        ]
        known: tuple[Constant, ...] = domain.CONSTANTS
    elif kind == "network":
        fits = [
            (fit.kind, fit.values)
            for one in shipped_collectives()
            for fit in one.fits
            if not one.architecture
        ]
        known = tiers.CONSTANTS
    else:
        return drawn(ERRORS, error_rows(is_beyond=kind == "beyond"))
    heads = ["constant", "meaning", *(name for name, _ in fits)]
    rows = [
        [
            f"`{one.name}`",
            f"{one.meaning}, {one.unit}" if one.unit else one.meaning,
            *(f"{values[one.name]:.4g}" for _, values in fits),
        ]
        for one in known
    ]
    if kind == "network":
        tapers = [f"{values['taper']:.4g}" for _, values in fits]
        rows.append(["`taper`", "loss of bandwidth beyond 16 hosts", *tapers])
    return drawn(heads, rows)


def error_rows(*, is_beyond: bool) -> Iterator[list[str]]:
    for row in left_out(is_beyond=is_beyond):
        errors = row.errors
        if not is_beyond and errors.region == "from_16MiB":
            continue
        shares = (
            errors.mean_abs_error,
            errors.median_abs_error,
            errors.p90_abs_error,
            errors.roofline_mean_abs_error,
            errors.linear_mean_abs_error,
        )
        yield [
            row.family.split("_SIZE")[0].replace("aws-ofi ", ""),
            row.gpu.removesuffix("-nvswitch"),
            row.dtype,
            errors.region.replace("below_", "< ").replace("from_", ">= "),
            str(errors.n),
            *(f"{100 * share:.1f}" for share in shares),
        ]


def left_out(*, is_beyond: bool) -> list[LeftOut]:
    return [
        row
        for one in shipped_collectives()
        if bool(one.architecture) != is_beyond
        for row in one.left_out
    ]


def test_tables_of_the_page_are_those_of_the_shipped_constants(
    request: pytest.FixtureRequest,
) -> None:
    text = PAGE.read_text(encoding="utf-8")

    filled = MARK.sub(
        lambda found: (
            f"<!-- {' '.join(filter(None, (found[1], found[2])))} -->\n" + table(found[1], found[2])
        ),
        text,
    )

    if request.config.getoption("--update-golden"):
        PAGE.write_text(filled, encoding="utf-8")
        return
    assert len(MARK.findall(text)) == 4
    assert filled == text


NVSWITCH = ("a100_sxm-nvswitch", "h100_sxm-nvswitch", "h200_sxm-nvswitch")
NEWER = ("b200_sxm-nvswitch", "gb200-nvswitch")


def mean_of(rows: list[LeftOut], region: str) -> float:
    here = [row.errors for row in rows if row.errors.region == region]
    return sum(one.n * one.mean_abs_error for one in here) / sum(one.n for one in here)


def test_switched_hosts_meet_the_targets_on_group_sizes_left_out() -> None:
    systems = (*NVSWITCH, *NEWER, "vtrain-a100-node")
    rows = [row for row in left_out(is_beyond=False) if row.gpu in systems]

    assert len({row.gpu for row in rows}) == 6
    assert mean_of(rows, "from_64KiB") <= 0.10
    short = [row.errors for row in rows if row.errors.region == "below_64KiB"]
    medians = sorted(one.median_abs_error for one in short for _ in range(one.n))
    assert medians[len(medians) // 2] <= 0.20


@pytest.mark.parametrize("transport", ["1.9.2", "1.13.0"])
def test_the_largest_groups_of_alps_follow_from_small_ones(transport: str) -> None:
    family = f"all_reduce aws-ofi {transport} default"
    rows = [row for row in left_out(is_beyond=True) if row.family == family]

    assert mean_of(rows, "from_16MiB") <= 0.30


def test_the_model_beats_a_line_and_the_links_everywhere_it_is_trusted() -> None:
    rows = [row for row in left_out(is_beyond=False) if "nvswitch" in row.gpu]

    for row in rows:
        if row.errors.region == "from_64KiB":
            assert row.errors.mean_abs_error < row.errors.linear_mean_abs_error
            assert row.errors.mean_abs_error < row.errors.roofline_mean_abs_error
