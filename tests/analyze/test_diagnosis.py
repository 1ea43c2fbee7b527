"""What causes are called."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import foretrace as ft
from foretrace.analyze import Cause, Diagnosis, IdleCause, diagnosis
from foretrace.analyze.loss_causes import ALL_RANKS
from foretrace.graph import NodeKind
from foretrace.simulate import simulate
from tests.graph.recorded import recording_of
from tests.graphs import GraphBuilder
from tests.truth import JobConfig, make_job


def test_an_all_to_all_of_sends_and_receives_is_no_pipeline(data_dir: Path) -> None:
    job = ft.load(data_dir / "traces" / "a100-dlrm-rank3-of-8")

    found = ft.diagnose(job)

    assert not [one for one in found.causes if one.topic == "pipeline"]
    assert any("rank 3 waits for what was not recorded" in one.sentence for one in found.causes)


def test_stages_of_a_pipeline_wait_for_each_other() -> None:
    config = JobConfig(pp=2, num_layers=2, num_steps=2, num_microbatches=2)
    job = ft.api.job.Job(recording_of(make_job(config)), ())

    found = ft.diagnose(job)

    assert [one for one in found.causes if one.topic == "pipeline"]


def test_waits_for_what_was_not_recorded_are_told_of_stages_and_of_many_ranks() -> None:
    def named(topic: str, rank: int) -> str:
        cause = IdleCause.UNRECORDED
        one = Cause(topic, rank, cause, "not recorded", "ghost", 2_000_000, subject_ns=1_500_000)
        return replace(one, num_ranks=14).sentence

    assert named("pipeline", ALL_RANKS).startswith(
        "pipeline stages wait for what was not recorded: 2"
    )
    assert named("idle", ALL_RANKS).startswith("14 ranks wait for what was not recorded: 2")
    assert "ghost" not in named("pipeline", ALL_RANKS) + named("idle", ALL_RANKS)


def test_what_stands_for_unrecorded_work_is_named_and_ghosts_are_not() -> None:
    def cause(subject: str) -> Cause:
        return Cause(
            "idle",
            0,
            IdleCause.UNRECORDED,
            "not recorded",
            subject,
            2_000_000,
            subject_ns=2_000_000,
        )

    assert cause("ghost").sentence.startswith("rank 0 waits for what was not recorded: 2")
    assert (
        "(unrecorded kernels of a CUDA graph)"
        in cause("unrecorded kernels of a CUDA graph").sentence
    )


def test_a_cause_of_little_is_no_sentence() -> None:
    causes = [
        Cause("idle", 0, IdleCause.HOST, "host work", "a", lost_ns, share=lost_ns / 1_000_000)
        for lost_ns in (90_000, 4_000)
    ]

    found = Diagnosis(tuple(causes), 1_000_000, 0)

    assert len(found.sentences()) == 1
    assert [one.lost_ns for one in found.told()] == [90_000]


def test_stalls_inside_operators_of_a_host_without_a_device_are_a_cause() -> None:
    build = GraphBuilder()
    last = build.add(NodeKind.RANK_START)
    for number in range(6):
        step = f"ProfilerStep#{number}"
        last = build.add(NodeKind.STEP_BEGIN, step=step, after=[last])
        for call in range(8):
            longer_ns = 6_000_000 if (number, call) == (2, 5) else 0
            last = build.add(
                NodeKind.OPERATOR,
                name=f"aten::{call}",
                takes_ns=20_000 + longer_ns,
                step=step,
                after=[last],
            )
        last = build.add(NodeKind.STEP_END, step=step, after=[last])

    found = diagnosis(simulate(build.graph()))

    assert found.causes[0].lost_ns == 1_000_000  # of 6 ms in 6 steps
    assert found.is_told
    assert found.headline.startswith(
        "rank 0's host stalls, cause not recorded (aten::5): 1.00 ms per step and rank"
    )


def test_a_recording_with_little_device_work_says_so() -> None:
    found = Diagnosis((), 1_000_000, 0, lost_ns=990_000, edge_ns=970_000)

    assert "97.0 % of the step lies before the first or after the last device work" in (
        found.headline
    )
    assert "edge_ns" not in found.as_json()


def test_what_is_all_of_a_cause_within_its_digits_is_no_part_of_it() -> None:
    one = Cause(
        "idle", 0, IdleCause.HOST, "host work", "aten::mm", 217_930_000, subject_ns=217_910_000
    )

    assert one.sentence.startswith("rank 0's host work (aten::mm): 217.9 ms")
