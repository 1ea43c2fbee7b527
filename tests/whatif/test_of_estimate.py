"""Edits of an estimate: what they begin with, what they add up to, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.api.estimates import EditableEstimate
from foretrace.base import ScenarioError
from foretrace.graph import verify
from foretrace.whatif import Edit
from tests.cli.conftest import Run, run

__all__ = ["run"]  # the fixture

PLAN = {"tp": 2, "dp": 2, "global_batch": 4, "micro_batch": 1, "batch.sequence": 256}
OF = ("--model", "llama3.2-1b", "--machine", "dgx-h100", "--plan")
GEMM = ft.Selection(named="gemm")


@pytest.fixture(scope="module")
def estimate() -> EditableEstimate:
    return ft.estimate("llama3.2-1b", PLAN, "dgx-h100")


def test_no_edit_is_the_estimate(estimate: EditableEstimate) -> None:
    found = ft.whatif(estimate.edit())

    assert found.timeline is estimate.timeline
    assert (found.step_ns, found.low_ns) == (estimate.step_ns, estimate.interval.low_ns)
    assert found.method == "estimated"


@pytest.mark.parametrize(
    ("edit", "keys"),
    [
        (ft.Parallelism(tp=4), {"tp": 4}),
        (ft.Batch(micro_batch=2), {"micro_batch": 2, "global_batch": 8}),
        (ft.PlanKeys({"memory.recompute": "full"}), {"recompute": "full"}),
    ],
    ids=["degrees", "batch", "plan"],
)
def test_another_plan_is_another_estimate(
    estimate: EditableEstimate, edit: Edit, keys: dict[str, object]
) -> None:
    whole = {f"{table}.{key}": each for table, key, each in _table(estimate)}
    renamed = {"tp": "parallelism.tp", "micro_batch": "batch.micro_batch"}
    renamed |= {"global_batch": "batch.global_batch", "recompute": "memory.recompute"}
    whole |= {renamed[key]: each for key, each in keys.items()}
    again = ft.estimate("llama3.2-1b", whole, "dgx-h100")

    assert estimate.edit(edit).prediction.step_ns == again.step_ns


def test_another_machine_and_other_sizes_are_other_estimates(estimate: EditableEstimate) -> None:
    machine = ft.estimate("llama3.2-1b", PLAN, "dgx-a100").machine

    slower = estimate.edit(ft.OnMachine(machine)).prediction
    deeper = estimate.edit(ft.Layers(32)).prediction

    assert slower.change_ns > 0
    assert slower.after.machine == machine
    assert 1.5 < deeper.step_ns / estimate.step_ns < 2.1
    assert deeper.memory is not None
    assert deeper.memory.change_bytes > 0


def test_edits_of_work_change_the_graph_and_its_durations(estimate: EditableEstimate) -> None:
    edited = estimate.edit(
        ft.Speed(2.0, GEMM), ft.Fuse(ft.Selection(named="elementwise"), 0.5), ft.CudaGraphs()
    )
    found = edited.prediction

    verify(found.graph)
    assert found.graph.num_nodes < estimate.graph.num_nodes
    assert found.change_ns < 0
    assert sum(one.change_ns for one in found.effects) == found.change_ns
    assert found.low_ns < found.step_ns < found.high_ns
    assert edited.edit(ft.Layers(8)).prediction.step_ns < found.step_ns


def test_a_speed_and_its_inverse_are_the_estimate(estimate: EditableEstimate) -> None:
    found = estimate.edit(ft.Speed(2.0, GEMM), ft.Speed(0.5, GEMM)).prediction

    assert np.array_equal(found.timeline.end_ns, estimate.timeline.end_ns)
    assert (found.low_ns, found.high_ns) == (estimate.interval.low_ns, estimate.interval.high_ns)


@pytest.mark.parametrize(
    ("edit", "told"),
    [
        (ft.DataLoading(5), "no step's data loading is known"),
        (ft.RemoveSync("cudaStream*"), "the host waits at no call named 'cudaStream*'"),
        (ft.Network(groups=("pp",)), "no transfer is of a group 'pp'"),
        (ft.Attention(flash=True), "it is fused already"),
    ],
    ids=["loading", "waits", "groups", "attention"],
)
def test_what_an_estimate_has_not_is_refused(
    estimate: EditableEstimate, edit: Edit, told: str
) -> None:
    with pytest.raises(ScenarioError, match=told.replace("*", r"\*")):
        estimate.edit(edit).predict()


def test_scenarios_are_of_recordings(estimate: EditableEstimate) -> None:
    with pytest.raises(ScenarioError, match="edit it once for each"):
        ft.scenarios(estimate.edit(), {"deeper": [ft.Layers(32)]})


def test_the_command_edits_an_estimate(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "plan.toml"
    plan.write_text(
        "[parallelism]\ntp = 2\ndp = 2\n"
        "[batch]\nglobal_batch = 4\nmicro_batch = 1\nsequence = 256\n",
        encoding="utf-8",
    )
    page = tmp_path / "page.html"

    told = run("whatif", *OF, plan, "--speed", "gemm=2", "--attention", "plain", "--report", page)
    lone = run("whatif", "--model", "llama3.2-1b", "--speed", "gemm=2")

    assert told.code == 0, told.err
    assert "estimated" in told.out
    assert "gemm x 2 as fast" in told.out
    assert "The step before is estimated" in page.read_text(encoding="utf-8")
    assert lone.code == 2
    assert "by --model, --plan and --machine" in " ".join(lone.err.split())


def _table(estimate: EditableEstimate) -> list[tuple[str, str, object]]:
    plan = estimate.as_json()["plan"]
    assert isinstance(plan, dict)
    return [(table, key, each) for table, keys in plan.items() for key, each in keys.items()]
