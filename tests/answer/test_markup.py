"""Answers as HTML: how columns stand, and what is left out."""

from __future__ import annotations

import re
from dataclasses import dataclass

from foretrace.answer import Column, Sentences, Shown, Table, Unit, html_of


@dataclass(frozen=True)
class Row:
    schedule: str
    chunks: int
    low_ns: int | None = None
    path: str = "files alone"


def html(*rows: Row) -> str:
    columns = (
        Column("schedule", unit=Unit.NAME),
        Column("chunks", unit=Unit.COUNT),
        Column("low_ns"),
        Column("path", shown=Shown.FILES),
    )
    return html_of("", [Table.of("rows", rows, *columns)])


def test_words_stand_on_the_left_and_numbers_where_a_page_sets_them() -> None:
    found = html(Row("1f1b", 1, 2_000_000))

    assert '<td style="text-align:left">1f1b</td><td>1</td><td>2.000</td>' in found
    assert '<th style="text-align:left">schedule</th><th>chunks</th>' in found


def test_columns_in_which_no_row_has_anything_are_left_out() -> None:
    found = html(Row("1f1b", 1), Row("gpipe", 2))

    assert "low" not in found
    assert "files alone" not in found
    assert "low" in html(Row("1f1b", 1), Row("gpipe", 2, 1))


def test_what_stands_between_backticks_is_code() -> None:
    found = html_of("", [Sentences("told", (("", "the plan that `a<b` assumes"),))])

    assert "the plan that <code>a&lt;b</code> assumes" in found


def test_rows_that_are_set_apart_are_so_on_pages() -> None:
    table = Table.of(
        "rows", [1, 2, 3], Column("number", value=lambda one: one), is_strong=lambda one: one == 2
    )

    found = html_of("", [table])

    assert found.count('class="own"') == 1
    assert re.search(r'<tr class="own"><td[^>]*>2</td></tr>', found)
