"""Answers as plain text: what gives way where there is no room."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from foretrace.answer import Column, Paragraph, Shown, SideBySide, Table, Unit, text_of


@dataclass(frozen=True)
class Row:
    name: str
    wait_ns: int
    num_calls: int
    remark: str = ""


def table(*rows: Row) -> Table:
    return Table.of(
        "rows",
        rows,
        Column("name", unit=Unit.NAME),
        Column("wait_ns"),
        Column("num_calls", shown=Shown.WIDE),
        Column("remark"),
        Column("hidden", value="name", shown=Shown.FILES),
        title="who waits",
    )


def test_units_and_titles_follow_from_keys() -> None:
    found = table(Row("a", 1_500_000, 2))

    assert [column.title for column in found.columns][:3] == ["name", "wait ms", "calls"]
    assert [column.unit for column in found.columns][1:3] == [Unit.MS, Unit.COUNT]
    assert found.as_json() == [
        {"name": "a", "wait_ns": 1_500_000, "num_calls": 2, "remark": "", "hidden": "a"}
    ]


@pytest.mark.parametrize("width", [30, 40, 60, 120])
def test_no_line_is_wider_and_no_number_is_cut(width: int) -> None:
    row = Row("kernel_" * 12, 123_456_789_000, 3, "a remark of several words that goes on")

    text = text_of("all of it", [table(row)], width=width)

    assert max(map(len, text.splitlines())) <= width
    assert "123,456.79" in text
    assert "hidden" not in text
    assert ("calls" in text) is (width > 40)


@pytest.mark.parametrize("width", range(40, 90, 7))
def test_a_number_keeps_its_unit_and_its_place_beside_a_long_label(width: int) -> None:
    change = " + ".join(["no host stalls", "fused kernels", "gradients in buckets"] * 2)
    share = Column("share", "step", Unit.SIGNED_SHARE, lambda _: -0.142)
    labels = Table.of("", [Row(change, 0, 0)], Column("name", "change", Unit.WORD), share)

    for before in range(width - 12, width):
        text = text_of(
            "a", [Paragraph("", "x" * before + " 12 % of 7.25 ms."), labels], width=width
        )

        assert "12 %" in text
        assert "7.25 ms." in text
        assert "-14.2 %" in text
        assert set(change.split()) <= set(text.split())


def test_a_name_of_two_words_goes_on_on_the_next_line() -> None:
    row = Row("before cudaStreamWaitEvent", 1_000_000, 3, "cause not recorded")

    text = text_of("all of it", [table(row)], width=48)

    assert "..." not in text
    assert {"before", "cudaStreamWaitEvent"} <= set(text.split())


def test_headings_go_on_on_the_next_line_before_a_word_of_a_text_is_cut_in_two() -> None:
    waits = [Column(f"wait_{at}_ns", "waiting for ranks ms", value="wait_ns") for at in range(5)]
    told = Table.of("", [Row("ProfilerStep#13", 1_000, 0)], Column("name", "step"), *waits)

    assert "ProfilerStep#13" in text_of("all of it", [told], width=75)


def test_columns_of_nothing_and_empty_tables_are_left_out() -> None:
    assert "remark" not in text_of("line", [table(Row("a", 1, 1))])
    assert text_of("line", [table()]) == "line"


def test_only_the_first_rows_are_shown_and_the_rest_is_counted() -> None:
    text = text_of("line", [table(*(Row(f"n{at}", at, at) for at in range(9)))], top=3)

    assert "n2" in text
    assert "n3" not in text
    assert text.endswith("and 6 more")


def test_small_tables_stand_next_to_each_other_where_they_fit() -> None:
    both = SideBySide((table(Row("left", 1, 1)), table(Row("right", 2, 2))))

    wide, narrow = (text_of("line", [both], width=width).splitlines() for width in (80, 30))

    assert any("left" in line and "right" in line for line in wide)
    assert not any("left" in line and "right" in line for line in narrow)


def test_a_frame_has_types_with_and_without_rows() -> None:
    frame = table(Row("a", 5, 1)).to_polars()

    assert frame["wait_ns"].to_list() == [5]
    assert table().to_polars().schema == frame.schema
