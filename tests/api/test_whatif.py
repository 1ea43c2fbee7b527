"""Jobs under edits: what a user does with them, and with the answer."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.api import write_whatif_trace
from foretrace.base import MachineError, ScenarioError
from foretrace.whatif import Edit
from tests.exchange.chrome_rules import broken_rules
from tests.exchange.test_perfetto import events_of
from tests.truth import JobConfig, make_job, write

EXAMPLE = Path(__file__).parents[2] / "examples" / "cpu-llama-tp2-dp2" / "traces"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("whatif-traces")
    write(make_job(JobConfig(tp=2, dp=2, num_layers=2, num_steps=2)), made)
    return made


@pytest.fixture(scope="module")
def job(folder: Path) -> ft.Job:
    return ft.load(folder, cache=False)


@pytest.fixture(scope="module")
def edited(job: ft.Job) -> ft.Edited:
    return job.edit(ft.Layers(4), ft.Speed(2.0, ft.Selection(named="gemm")), name="deeper")


def test_no_edit_is_the_replay(job: ft.Job) -> None:
    replayed, same = ft.simulate(job), ft.simulate(job.edit())

    assert np.array_equal(same.start_ns, replayed.start_ns)
    assert np.array_equal(same.end_ns, replayed.end_ns)


def test_a_job_under_edits_is_predicted_once(edited: ft.Edited) -> None:
    found = ft.whatif(edited)

    assert found is edited.predict()
    assert ft.simulate(edited) is found.timeline
    assert found.name == "deeper"
    assert [one.sentence for one in found.effects] == ["layers 2 -> 4", "gemm x 2 as fast"]
    assert found.effects[-1].step_ns == found.step_ns
    assert sum(one.change_ns for one in found.effects) == found.change_ns


def test_an_edit_and_a_change_of_a_lever_take_as_long() -> None:
    job = ft.load(EXAMPLE)

    edited = ft.whatif(job.edit(ft.Speed(1.25, ft.Selection(named="gemm"))))
    lever = ft.effect(job, "gemm=0.8")

    assert lever.step_ns == edited.replayed_step_ns
    assert lever.changed_ns == pytest.approx(edited.step_ns, abs=1_000)  # rounded node by node


def test_further_edits_start_from_the_same_ground(job: ft.Job) -> None:
    first = job.edit(ft.Layers(4))
    second = first.edit(ft.Speed(2.0), name="both")

    assert second.basis is first.basis
    assert second.edits == (ft.Layers(4), ft.Speed(2.0))
    assert ft.whatif(second).step_ns < ft.whatif(first).step_ns
    assert second.title == f"{job.title}: both"


@pytest.mark.parametrize(
    "edits",
    [
        (ft.Layers(4), ft.Layers(2)),
        (ft.Parallelism(dp=4, pp=2), ft.Parallelism(dp=2, pp=1)),
        (ft.Batch(num_microbatches=4), ft.Batch(num_microbatches=1)),
        (ft.Widths(hidden=2048), ft.Widths(hidden=4096)),
        (ft.PlanKeys({"overlap.gradients": False}), ft.PlanKeys({"overlap.gradients": True})),
        (ft.Speed(3.0), ft.Speed(1 / 3)),
        (ft.Delay(5_000), ft.Delay(-5_000)),
        (ft.Network(factor=1.5), ft.Network(factor=1 / 1.5)),
    ],
    ids=lambda edits: type(edits[0]).__name__,
)
def test_an_edit_and_its_inverse_are_the_replay(job: ft.Job, edits: tuple[Edit, ...]) -> None:
    found = ft.whatif(job.edit(*edits))

    assert found.effects[0].change_ns != 0
    assert found.step_ns == found.replayed_step_ns
    assert np.array_equal(found.timeline.end_ns, found.replayed.end_ns)


def test_edits_of_different_things_commute(job: ft.Job) -> None:
    edits = (ft.Layers(4), ft.Speed(2.0, ft.Selection(named="gemm")), ft.Batch(num_microbatches=4))

    steps = {
        ft.whatif(job.edit(*order)).step_ns for order in (edits, edits[::-1], edits[1:] + edits[:1])
    }

    assert len(steps) == 1


@pytest.mark.parametrize(
    "question",
    [
        ft.breakdown,
        ft.critical_path,
        ft.sensitivity,
        ft.what_helps,
        ft.idle,
        ft.stragglers,
        ft.diagnose,
        ft.operators,
        ft.blocks,
        lambda one: ft.effect(one, "gemm=0.5"),
        lambda one: ft.compare(one, one),
    ],
)
def test_every_question_has_an_answer(
    edited: ft.Edited, question: Callable[[object], object]
) -> None:
    assert question(edited) is not None
    assert question(edited.prediction) is not None


def test_the_replay_and_the_edited_job_are_compared(job: ft.Job, edited: ft.Edited) -> None:
    found = ft.compare(ft.simulate(job), edited)

    layers = (found.before.layers, found.after.layers)
    assert layers == (2, 4)
    assert found.difference_ns == pytest.approx(ft.whatif(edited).change_ns, abs=1)


def test_a_roofline_takes_the_chip_that_was_stated(job: ft.Job) -> None:
    roof = ft.roofline(job.edit(ft.Speed(2.0), machine="dgx-a100"))

    assert roof.chip_name == "a100-sxm-80gb"


def test_the_report_has_no_step_to_choose(edited: ft.Edited, tmp_path: Path) -> None:
    ft.report(edited, tmp_path / "page.html")

    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert f"<h1>{edited.title}</h1>" in html
    with pytest.raises(ValueError, match="all steps"):
        ft.report(edited, tmp_path / "page.html", step=1)
    with pytest.raises(ValueError, match="leave out `without`"):
        ft.simulate(edited, without="rendezvous")


def test_the_trace_breaks_no_rule(edited: ft.Edited, tmp_path: Path) -> None:
    write_whatif_trace(tmp_path / "t.json.gz", edited.prediction)

    events = events_of(tmp_path / "t.json.gz")

    assert broken_rules(events) == []
    named = {str(event) for event in events if event.get("name") == "process_name"}
    for title in ("rank 0 before", "rank 0 after"):
        assert any(title in one for one in named)


def test_scenarios_stand_best_first_and_refused_ones_last(job: ft.Job) -> None:
    found = ft.scenarios(
        job.edit(ft.Layers(4)),
        {
            "impossible": [ft.Speed(2.0, ft.Selection(ranks=(99,)))],
            "slow": [ft.Speed(0.5)],
            "fast": [ft.Speed(2.0)],
        },
    )

    assert [row.name for row in found.rows] == ["fast", "slow", "impossible"]
    assert found.best is found.rows[0]
    assert found.rows[2].is_refused
    assert "99" in found.rows[2].refusal
    assert found.rows[0].sentences == ("layers 2 -> 4", "all work x 2 as fast")
    assert found.to_polars()["step_ns"].to_list()[:2] == [row.step_ns for row in found.rows[:2]]


def test_orders_differ_where_ranks_do(job: ft.Job) -> None:
    written: dict[str, list[Edit]] = {"more": [ft.Parallelism(dp=4)], "faster": [ft.Speed(1.01)]}

    by_order = {
        order: ft.scenarios(job, written, order=order).rows[0].name
        for order in ("step", "throughput", "per-rank")
    }

    assert by_order == {"step": "faster", "throughput": "more", "per-rank": "faster"}


@pytest.mark.slow
def test_processes_give_the_same_table(job: ft.Job) -> None:
    written = {f"x {factor}": [ft.Speed(factor)] for factor in (1.5, 2.0, 3.0)}
    told: list[tuple[int, int]] = []

    alone = ft.scenarios(job, written)
    together = ft.scenarios(
        job, written, workers=2, progress=lambda done, total: told.append((done, total))
    )

    assert together == alone
    assert told[-1] == (3, 3)


def test_answers_show_themselves_in_a_notebook(job: ft.Job, edited: ft.Edited) -> None:
    for html in (edited.prediction._repr_html_(), edited._repr_html_()):
        assert "layers 2 -&gt; 4" in html
        assert "exposed compute" in html
    assert "x 2" in ft.scenarios(job, {"x 2": [ft.Speed(2.0)]})._repr_html_()
    assert "layers 2 -> 4" in str(edited.prediction)
    assert "deeper: " in repr(edited.prediction)


def test_what_the_profiler_cost_is_taken_off_where_it_was_measured(job: ft.Job) -> None:
    recorded = ft.load(EXAMPLE, cache=False)
    target_ns = np.mean(list(recorded.recording.unprofiled_step_ns.values()))

    found = ft.whatif(recorded.edit(without_profiler=True))

    assert found.measured_step_ns == pytest.approx(target_ns, abs=1)
    assert found.replayed_step_ns == pytest.approx(target_ns, rel=0.001)
    assert any("without the profiler" in note for note in found.notes)
    with pytest.raises(ScenarioError, match="not recorded"):
        ft.whatif(job.edit(without_profiler=True))


def test_wrong_names_are_told(job: ft.Job) -> None:
    with pytest.raises(MachineError, match="no machine is called"):
        job.edit(machine="nothing")
    with pytest.raises(ScenarioError, match="layers must be"):
        job.edit(ft.Layers(0))
