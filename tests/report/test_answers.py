"""The sections of the analyses, each from a result made by hand or by a small graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.analyze import (
    AttentionProfile,
    Hang,
    Roofline,
    RooflinePoint,
    Sensitivity,
    Stillness,
    Stuck,
    memory,
    read_change,
)
from foretrace.analyze.questions import attention, critical_path, operators, sensitivity, stragglers
from foretrace.analyze.questions import idle as idle_question
from foretrace.answer import Sentences, SideBySide, Table, Unit, cell_text, tables_in
from foretrace.graph import (
    BlockEvidence,
    BlocksWithEvidence,
    MemoryEvents,
    NodeKind,
    Part,
    Phase,
    blocks_of,
)
from foretrace.report.document import Section, section_of, tables_of, told_section
from foretrace.report.page import sections_of
from foretrace.report.sections import (
    help_section,
)
from tests.graphs import Block, GraphBuilder
from tests.report.sample import sample
from tests.report.test_sections import column, tables


def sentences(section: Section | None) -> list[str]:
    assert section is not None
    lists = [
        inner
        for part in section.parts
        for inner in (part.parts if isinstance(part, SideBySide) else (part,))
        if isinstance(inner, Sentences)
    ]
    return [f"{strong} {rest}".strip() for one in lists for strong, rest in one.texts]


def test_what_helps_most_comes_first() -> None:
    answers = sample().answers
    assert answers.helps is not None

    section = help_section(answers.helps, answers.lost)

    table = tables(section)["help-most"]
    gains = column(table, "gain_ns")
    assert gains == sorted(gains, reverse=True)
    assert sentences(section)[0].startswith(answers.helps.rows[0].text)
    assert answers.lost is not None
    assert answers.lost.causes[0].sentence in sentences(section)


def test_every_lever_says_how_far_it_is_linear() -> None:
    found = sample().answers.by_question["sensitivity"]
    assert isinstance(found, Sensitivity)

    table = tables(section_of(sensitivity, found))["sensitivity-rows"]

    assert len(table.rows) == len(found.rows)
    for select in filter(None, column(table, "select")):
        assert str(read_change(f"{select}=0.5")) == f"{select}=0.5"
    by_label = dict(zip(column(table, "label"), column(table, "linear_to"), strict=True))
    assert by_label == {row.label: row.linear_to for row in found.rows}


def test_the_paths_views_each_sum_to_the_step() -> None:
    paths = sample().answers.path_by_title

    section = section_of(critical_path, paths["replayed"], beside=paths["measured"])

    found = tables(section)
    assert "critical-path-by_rank" in found
    for table in found.values():
        assert sum(column(table, "time_ns")) == paths["replayed"].step_ns
        assert sum(column(table, "measured_time_ns")) == paths["measured"].step_ns


def test_idle_time_by_cause_sums_to_all_of_it() -> None:
    idle = sample().answers.idle_by_title["replayed"]

    found = tables(section_of(idle_question, idle))

    assert sum(column(found["idle-idle-by-cause"], "lost_ns")) == idle.total_ns(Stillness.IDLE)
    assert sum(column(found["idle-waiting-by-cause"], "share")) == pytest.approx(1)


def test_the_slow_rank_has_the_blame() -> None:
    found = tables(section_of(stragglers, sample().answers.by_question["stragglers"]))[
        "stragglers-ranks"
    ]

    assert column(found, "rank")[0] == 1
    assert column(found, "blame_ns")[0] == sum(column(found, "own_wait_ns"))


def test_collectives_are_drawn_in_the_colour_of_communication() -> None:
    table = tables(section_of(operators, sample().answers.by_question["operators"]))[
        "operators-by_class"
    ]

    colours = dict(zip(column(table, "class"), table.colours, strict=True))

    assert colours["allreduce"] == "communication"
    assert colours["waiting for ranks"] == "wait"
    assert set(table.colours) == {"communication", "wait", "compute"}


def test_a_hang_is_a_warning() -> None:
    place = Stuck("tp", 3, "allreduce", 1_024, (0, 1), (2,), (0, 5), ())

    section = told_section("hang", ("This run hangs", ""), Hang((place,), (), ()))

    assert section is not None
    assert "rank 2 never began" in section.warning
    assert column(tables(section)["hang-stuck"], "missing_ranks") == ["rank 2"]


@pytest.mark.parametrize(
    "section",
    [
        help_section(None),
        section_of(operators, None),
        section_of(attention, None),
        section_of(sensitivity, None),
        section_of(stragglers, None),
    ],
)
def test_without_an_answer_there_is_no_section(section: Section | None) -> None:
    assert section is None


def point(flops: int, num_bytes: int | None) -> RooflinePoint:
    return RooflinePoint(
        kind="gemm",
        family="cuBLAS gemm",
        operator="aten::mm",
        signature="",
        dtype="fp16",
        num_calls=3,
        time_ns=1_000,
        flops=flops,
        num_bytes=num_bytes,
        flops_limit_per_ns=300_000.0,
        bytes_limit_per_ns=2_000.0,
    )


def test_roofs_rise_with_the_bandwidth_up_to_the_peak() -> None:
    roofline = Roofline(
        chip_name="some chip",
        bytes_limit_per_ns=2_000.0,
        flops_limit_by_dtype={"fp16": 300_000.0},
        points=(point(200_000_000, 1_000_000), point(1_000_000, 1_000_000)),
        covered=0.9,
    )

    table = {one.key: one for one in roofline.tables()}["points"]

    assert table.chart is not None
    (roof,) = table.chart.levels
    (low, at_low), (ridge, at_ridge), (_, at_high) = roof.points
    assert at_low == pytest.approx(low * 2_000)
    assert ridge == pytest.approx(150)
    assert at_ridge == at_high == pytest.approx(300_000)
    assert column(table, "share") == pytest.approx([2 / 3, 1 / 2])
    assert "90.0 %" in roofline.headline


def test_without_a_chip_there_are_points_and_no_roofs() -> None:
    roofline = Roofline(None, None, {}, (point(10, 10), point(10, None)), 1.0)

    table = {one.key: one for one in roofline.tables()}["points"]

    assert table.chart is not None
    assert table.chart.levels == ()
    assert column(table, "intensity") == [1, None]


def attention_of(lengths: list[int]) -> AttentionProfile:
    count = len(lengths)
    one = np.ones(count, np.int32)
    return AttentionProfile(
        step_name="ProfilerStep#1",
        rank=0 * one,
        start_ns=np.arange(count),
        time_ns=np.full(count, 100),
        batch=one,
        heads=8 * one,
        kv_heads=8 * one,
        query_length=np.array(lengths, np.int32),
        kv_length=np.array(lengths, np.int32),
        head_size=64 * one,
        is_backward=np.zeros(count, np.bool_),
        is_fused=np.ones(count, np.bool_),
        share=0.25,
    )


@pytest.mark.parametrize(("lengths", "is_drawn"), [([512, 512], False), ([512, 256, 512], True)])
def test_lengths_are_drawn_where_they_differ(lengths: list[int], *, is_drawn: bool) -> None:
    found = tables(section_of(attention, attention_of(lengths)))

    assert ("attention-calls-of-a-rank" in found) is is_drawn
    assert sum(column(found["attention-by_length"], "num_calls")) == len(lengths)


def test_layers_are_drawn_by_phase_as_means_over_ranks_and_steps() -> None:
    build = GraphBuilder()
    for rank, takes_ns in ((0, 100), (1, 300)):
        for phase, factor in ((Phase.FORWARD, 1), (Phase.BACKWARD, 2)):
            for layer in (0, 1):
                build.add(
                    NodeKind.KERNEL,
                    rank=rank,
                    lane="stream 7",
                    takes_ns=takes_ns * factor * (1 + layer),
                    step="ProfilerStep#1",
                    block=Block(Part.LAYER, phase, layer),
                )
    evidence = BlockEvidence("layers", "repetition", is_inferred=True, share=1.0, note="2 layers")

    found = BlocksWithEvidence(blocks_of(build.graph()), (evidence,))

    layers, parts = tables_in(found.parts())
    assert layers.rows == ((0, 200, 400), (1, 400, 800))
    assert column(parts, "work_ns") == [600, 1_200]
    assert sentences(told_section("blocks", ("Blocks", ""), found)) == [
        "layers: repetition, 2 layers, inferred; 100.0 % of the work"
    ]


def test_without_blocks_there_is_no_such_section() -> None:
    assert blocks_of(sample().recording.graph).is_empty


def test_memory_is_drawn_up_to_its_peak() -> None:
    recording = sample().recording
    at_ns = np.array([100_000, 500_000, 900_000])
    events = MemoryEvents(
        rank=0,
        is_device=True,
        device=0,
        at_ns=at_ns,
        change_bytes=np.array([1_000, 4_000, -4_000]),
        allocated_bytes=np.array([1_000, 5_000, 1_000]),
        reserved_bytes=np.array([-1, -1, -1]),
    )

    found = {one.key: one for one in memory(replace(recording, memory=(events,))).tables()}

    assert column(found["places"], "peak_bytes") == [5_000]
    assert max(column(found["rank-0-device-0"], "high_bytes")) == 5_000
    assert "reserved_bytes" not in {one.key for one in found["rank-0-device-0"].columns}


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, Unit.NS, ""),
        ("name", Unit.TEXT, "name"),
        (1_500, Unit.NS, "1.50 us"),
        (1_500, Unit.SIGNED_NS, "+1.50 us"),
        (1_500_000, Unit.MS, "1.500"),
        (12_345, Unit.COUNT, "12,345"),
        (12_345, Unit.IDENTIFIER, "12345"),
        (3.2e14, Unit.FLOPS_PER_S, "320 TFLOP/s"),
        (1.94e12, Unit.BYTES_PER_S, "1.94 TB/s"),
        (0.25, Unit.FLOPS_PER_BYTE, "0.25 FLOP/B"),
        (2**20, Unit.BYTES, "1.0 MiB"),
        (5, Unit.FLOPS, "5.00 FLOP"),
        (0, Unit.NUMBER, "0"),
    ],
)
def test_cells_have_the_unit_that_suits_them(
    value: float | str | None, unit: Unit, text: str
) -> None:
    assert cell_text(value, unit) == text


def test_every_table_of_the_page_has_a_key_of_its_own() -> None:
    keys = [table.key for table in tables_of(sections_of(sample().page))]

    assert len(keys) > 12
    assert len(keys) == len(set(keys))


def test_charts_name_columns_that_their_tables_have() -> None:
    found: list[Table] = [
        table for table in tables_of(sections_of(sample().page)) if table.chart is not None
    ]

    assert found
    for table in found:
        chart = table.chart
        assert chart is not None
        named = {chart.category, *(one.column for one in chart.series)}
        named |= {key for key in (chart.name, chart.colour_by, chart.size_by) if key}
        assert named <= {one.key for one in table.columns}, table.key
