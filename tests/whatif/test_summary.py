from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.analyze import SHOWN_PARTS
from foretrace.cost import source_parts
from foretrace.whatif import Memory, Order, Sweep, SweepRow
from foretrace.whatif.summary import (
    ORIGINS,
    difference_rows,
    edited_rows,
    figures,
    reason_texts,
    short_sentence,
    subject_text,
)
from tests.whatif.made import made_prediction, memory_of


def test_the_subject_says_what_changed_and_what_did_not() -> None:
    assert subject_text(made_prediction()) == (
        "4 ranks (tp 2 x dp 2) -> 8 ranks (tp 2 x dp 4); 2 layers -> 4 layers; 2 microbatches; "
        "dgx-a100"
    )


def test_the_change_is_the_first_fact() -> None:
    found = made_prediction()
    facts = figures(found)

    assert [fact.name for fact in facts] == [
        "change of the step",
        "before",
        "after",
        "throughput",
        "memory, fullest rank",
    ]
    assert [fact.is_first for fact in facts] == [True, False, False, False, False]
    assert facts[3].value == "1.16 x"
    assert facts[4].remark == "+11.0 GiB; fits, 39.0 GiB to spare"


def test_throughput_and_memory_are_told_where_there_is_something_to_tell() -> None:
    found = made_prediction()
    alike = replace(found, after=found.before, memory=None)

    assert [fact.name for fact in figures(alike)][3:] == []


@pytest.mark.parametrize(
    ("after_gib", "capacity_gib", "told"),
    [
        (25, 80, "-5.0 GiB; fits, 55.0 GiB to spare"),
        (90, 80, "+60.0 GiB; DOES NOT FIT, 10.0 GiB too much"),
        (30, 80, "as before; fits, 50.0 GiB to spare"),
        (41, None, "+11.0 GiB"),
    ],
)
def test_memory_is_told_with_its_change(
    after_gib: int, capacity_gib: int | None, told: str
) -> None:
    memory = Memory(memory_of(30), memory_of(after_gib, capacity_gib))

    facts = figures(replace(made_prediction(), memory=memory))

    assert facts[-1].remark == told


def test_parts_stand_in_one_order_and_sum_to_the_step() -> None:
    *parts, whole = difference_rows(made_prediction())

    assert tuple(row.name for row in parts) == SHOWN_PARTS
    assert whole.name == "step"
    for side in ("before_ns", "after_ns", "difference_ns"):
        assert sum(getattr(row, side) for row in parts) == getattr(whole, side)


def test_only_what_differs_is_listed() -> None:
    assert edited_rows(made_prediction()) == (
        ("layers", "2", "4"),
        ("parallelism.dp", "2", "4"),
        ("batch.global_batch", "4", "8"),
    )


def test_between_a_recording_and_an_estimate_kernels_names_tell_nothing() -> None:
    found = made_prediction()

    arranged, scaled = reason_texts(found), reason_texts(replace(found, method="scaled"))

    assert any("is called" in text for text in arranged)
    assert scaled[0] == "gemm: +10.02 ms"
    assert not any("is called" in text for text in scaled)


def test_what_an_edit_cannot_know_is_left_out_of_a_chart() -> None:
    assert short_sentence("all work launched as CUDA graphs (if it can be captured)") == (
        "all work launched as CUDA graphs"
    )


def test_every_share_has_words() -> None:
    shares = made_prediction().share_by_source

    assert list(shares) == ["measured", "scaled", "fitted", "hand-overs"]
    assert sum(shares.values()) == pytest.approx(1)
    bar, _, table = source_parts(shares, of="path", title="rests on", meanings=ORIGINS)
    assert [one.name for one in bar.shares] == [row[0] for row in table.rows] == list(shares)


def test_a_sweep_says_what_is_best() -> None:
    row = SweepRow(name="a", sentences=(), step_ns=150, change_ns=50)
    found = Sweep((row,), Order.PER_RANK, 100, 100)

    assert found.headline.startswith("1 scenario, best throughput per rank first; before: ")
    assert "+50.0 %" in str(replace(found, replayed_step_ns=100))
