from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from foretrace.analyze import collective_times
from foretrace.answer import Column, SideBySide, Table, Unit
from foretrace.graph import NodeKind
from foretrace.report.document import Section, tables_of
from foretrace.report.sections import (
    collective_section,
    recording_section,
    step_section,
    trust_section,
)
from tests.graphs import GraphBuilder, timeline_of
from tests.report.sample import many_ranks, meta, sample


def tables(section: Section | None) -> dict[str, Table]:
    assert section is not None
    return {table.key: table for table in tables_of((section,))}


def column(table: Table, key: str) -> list[Any]:
    (place,) = (place for place, one in enumerate(table.columns) if one.key == key)
    return [row[place] for row in table.rows]


def test_rows_must_fit_the_columns() -> None:
    with pytest.raises(ValueError, match=r"'short' has 2 columns, but 1 of its rows"):
        Table(key="short", title="", columns=(Column("a", "a"), Column("b", "b")), rows=(("x",),))


def test_bars_of_a_rank_are_as_long_as_its_step() -> None:
    made = sample()
    (step, *_) = made.replay.steps

    table = tables(step_section(replace(made.replay, steps=(step,))))["rank-components"]

    for side in ("measured", "replayed"):
        keys = [one.key for one in table.columns if one.key.startswith(side)]
        sums = [sum(parts) for parts in zip(*(column(table, key) for key in keys), strict=True)]
        assert sums == [getattr(rank, f"{side}_ns") for rank in step.ranks]


def test_one_rank_needs_no_chart_of_ranks() -> None:
    made = sample()
    alone = replace(
        made.replay,
        steps=tuple(replace(step, ranks=step.ranks[:1]) for step in made.replay.steps),
    )

    assert "rank-components" not in tables(step_section(alone))


@pytest.mark.parametrize(("count", "first"), [(12, [0, 1, 2]), (60, [59, 58, 57])])
def test_of_more_ranks_than_are_drawn_those_that_others_wait_for_come_first(
    count: int, first: list[int]
) -> None:
    """Each rank of the sample computes longer than the one before it."""
    table = tables(step_section(many_ranks(count).replay))["rank-components"]

    assert column(table, "rank")[:3] == first
    assert len(table.rows) == count


def test_components_end_with_their_sum() -> None:
    table = tables(trust_section(sample().replay))["components"]

    measured = column(table, "measured_ns")

    assert sum(measured[:-1]) == pytest.approx(measured[-1])
    assert table.strong_rows == {len(table.rows) - 1}


def test_longest_waits_come_first_each_collective_once() -> None:
    found = tables(collective_section(collective_times(sample().replayed)))["longest-waits"]

    assert column(found, "rank") == [0, 0]
    assert column(found, "last_rank") == [1, 1]
    assert column(found, "wait_ns") == [250_000, 250_000]
    assert column(found, "position") == [0, 1]


def test_without_collectives_there_is_no_such_section() -> None:
    build = GraphBuilder()
    build.add(NodeKind.KERNEL, lane="stream 7", takes_ns=5)

    assert collective_section(collective_times(timeline_of(build.graph(), [0]))) is None


def test_a_file_that_was_cut_off_is_marked() -> None:
    made = sample()

    section = recording_section(made.replay, (meta(0), meta(1)))

    assert column(tables(section)["files"], "is_cut_off") == ["no", "yes"]


def test_tables_beside_each_other_are_found_too() -> None:
    inner = Table(key="inner", title="", columns=(Column("a", "a", Unit.COUNT),), rows=((1,),))
    section = Section(key="s", title="s", short="s", parts=(SideBySide((inner,)),))

    assert tables_of((section,)) == (inner,)
