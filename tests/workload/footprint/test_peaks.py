"""Microbatches in flight, from the order of a stage's units."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.workload import Plan, Schedule, schedule_of
from foretrace.workload.footprint.footprint import ChunkBytes, chunk_bytes, peaks_of
from foretrace.workload.footprint.kept import Kept
from foretrace.workload.footprint.parts import PartBytes
from tests.oracles.peaks import worst_moment
from tests.workload.schedule.schedules import schedules


def in_flight(schedule: Schedule, stage: int, *, until_weights: int = 0) -> int:
    """Most chunks that a stage keeps, when each keeps one byte... times a thousand."""
    chunk = ChunkBytes(1000, 1000, 1000, until_weights)
    peaks = peaks_of(schedule.orders, [chunk] * len(schedule.stage_of_chunk))
    return int(peaks.kept[stage]) // 1000


def plan(name: str, *, chunks: int = 1, microbatches: int = 16, stages: int = 4) -> Plan:
    """A pipeline of one sequence a microbatch."""
    return Plan(pipeline=stages, num_chunks=chunks, schedule=name, global_batch=microbatches)


def test_gpipe_keeps_every_microbatch() -> None:
    schedule = schedule_of(plan("gpipe"))

    assert [in_flight(schedule, stage) for stage in range(4)] == [16] * 4


def test_1f1b_keeps_one_microbatch_less_on_every_later_stage() -> None:
    schedule = schedule_of(plan("1f1b"))

    assert [in_flight(schedule, stage) for stage in range(4)] == [4, 3, 2, 1]


def test_few_microbatches_are_all_that_is_kept() -> None:
    schedule = schedule_of(plan("1f1b", microbatches=2))

    assert [in_flight(schedule, stage) for stage in range(4)] == [2, 2, 2, 1]


@pytest.mark.parametrize("chunks", [2, 4])
def test_interleaved_keeps_more_by_the_factor_of_its_paper(chunks: int) -> None:
    # Korthikanti et al., arXiv 2205.05198, section 4.2.3: 1 + (p - 1) / (p v) of 1F1B's on the
    # first stage: p v + p - 1 chunks.
    stages = 4
    schedule = schedule_of(plan("interleaved", chunks=chunks))

    assert in_flight(schedule, 0) == stages * chunks + stages - 1


def test_zero_bubble_keeps_no_more_than_1f1b_where_weights_wait_for_nothing() -> None:
    # Qi et al., arXiv 2401.10241, table 1: ZB-H1 has 1F1B's peak on the first stage.
    first = in_flight(schedule_of(plan("zb-h1")), 0)

    assert first == in_flight(schedule_of(plan("1f1b")), 0)


@pytest.mark.parametrize("stages", [4, 6, 8])
def test_dualpipe_keeps_a_stage_more_than_there_are(stages: int) -> None:
    # DeepSeek-AI, arXiv 2412.19437, table 2: activations of PP + 1, where 1F1B has PP.
    schedule = schedule_of(plan("dualpipe", stages=stages, microbatches=4 * stages))

    assert [in_flight(schedule, stage) for stage in range(stages)] == [stages + 1] * stages


def test_weights_of_zb_h1_wait_within_the_memory_of_1f1b() -> None:
    # Qi et al., arXiv 2401.10241, table 2: p M_B on every stage, even if nothing is freed by B.
    schedule = schedule_of(plan("zb-h1"))

    assert [in_flight(schedule, stage, until_weights=1000) for stage in range(4)] == [4] * 4


def test_what_waits_for_weights_is_kept_until_their_pass() -> None:
    schedule = schedule_of(plan("zb-h1"))

    without = in_flight(schedule, 3)
    held = in_flight(schedule, 3, until_weights=1000)

    assert held > without


@given(schedule=schedules(), data=st.data())
def test_peaks_are_what_adding_up_unit_by_unit_gives(
    schedule: Schedule, data: st.DataObject
) -> None:
    chunks = []
    for _ in schedule.stage_of_chunk:
        kept, more, again, until = (data.draw(st.integers(0, 50)) for _ in range(4))
        chunks.append(ChunkBytes(kept, kept + more, kept + again, until))

    peaks = peaks_of(schedule.orders, chunks)

    found = list(zip(peaks.kept.tolist(), peaks.more.tolist(), peaks.unit.tolist(), strict=True))
    assert found == [worst_moment(units, chunks) for units in schedule.units]


def test_a_chunk_is_fullest_where_its_parts_before_and_a_moment_add_up_to_most() -> None:
    first = PartBytes(kept=(Kept("a", 10),), forward=100, backward=5)
    second = PartBytes(kept=(Kept("b", 20),), forward=1, backward=200)

    assert chunk_bytes([(first, 1), (second, 1)]) == ChunkBytes(30, 110, 230, 0)
    assert chunk_bytes([(second, 3)]) == chunk_bytes([(second, 1)] * 3)
