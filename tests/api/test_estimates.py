"""`estimate` by names, files and values; what a user does with the answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import windows
from foretrace.api import write_estimate_trace
from foretrace.base import MachineError, WorkloadError
from foretrace.estimate import Estimate
from foretrace.machine import load_machine
from foretrace.workload import PlanDraft, complete, load_model
from tests.exchange.chrome_rules import broken_rules
from tests.exchange.test_perfetto import events_of

KEYS = {
    "tp": 2,
    "pp": 2,
    "dp": 2,
    "global_batch": 8,
    "micro_batch": 1,
    "batch.sequence": 256,
    "sharding.level": "zero1",
    "recompute": "none",
    "schedule": "1f1b",
    "chunks": 1,
    "sequence_parallel": True,
}


@pytest.fixture(scope="module")
def found() -> Estimate:
    return ft.estimate("llama3.2-1b", KEYS, "dgx-h100")


def test_names_files_and_values_are_one(found: Estimate, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "[parallelism]\ntp = 2\npp = 2\ndp = 2\nsequence_parallel = true\n"
        "[batch]\nglobal_batch = 8\nmicro_batch = 1\nsequence = 256\n"
        '[sharding]\nlevel = "zero1"\n[memory]\nrecompute = "none"\n'
        '[pipeline]\nschedule = "1f1b"\nchunks = 1\n'
    )
    model, machine = load_model("llama3.2-1b"), load_machine("dgx-h100")
    draft = PlanDraft().with_keys(KEYS)
    by_plan = ft.estimate(model, complete(draft, model), machine)

    for other in (by_plan, ft.estimate(model, path, machine), ft.estimate(model, draft, machine)):
        assert other.step_ns == found.step_ns
        assert other.as_json()["plan"] == found.as_json()["plan"]


def test_a_config_of_hugging_face_is_a_model(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(
            {
                "architectures": ["LlamaForCausalLM"],
                "model_type": "llama",
                "hidden_size": 256,
                "intermediate_size": 512,
                "num_attention_heads": 4,
                "num_key_value_heads": 4,
                "num_hidden_layers": 4,
                "vocab_size": 1000,
                "max_position_embeddings": 256,
            }
        )
    )

    found = ft.estimate(path, KEYS, "dgx-h100")

    assert found.step_ns > 0
    assert found.plan.num_ranks == 8


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
        ft.attention,
        ft.blocks,
        ft.roofline,
        lambda one: ft.effect(one, "gemm=0.5"),
        lambda one: ft.compare(one, one),
    ],
)
def test_every_question_has_an_answer(
    found: Estimate, question: Callable[[Estimate], object]
) -> None:
    assert question(found) is not None


def test_the_critical_path_and_the_roofline_are_whole(found: Estimate) -> None:
    path, roof = ft.critical_path(found), ft.roofline(found)

    assert sum(share.time_ns for share in path.by_class()) == found.step_ns
    assert roof.chip_name == "h100-sxm"
    assert roof.covered > 0.9
    assert ft.operators(found).unrecognised.share == 0.0
    blocks = ft.blocks(found).to_polars()
    assert {"layer", "embedding", "head", "optimizer"} <= set(blocks["part"].to_list())


def test_the_trace_breaks_no_rule_and_has_the_path(found: Estimate, tmp_path: Path) -> None:
    write_estimate_trace(tmp_path / "t.json.gz", found)

    events = events_of(tmp_path / "t.json.gz")

    assert broken_rules(events) == []
    named = [event for event in events if event.get("name") == "process_name"]
    assert any("rank 0 estimated" in str(event) for event in named)


def test_the_report_is_written_and_has_no_steps_to_choose(found: Estimate, tmp_path: Path) -> None:
    ft.report(found, tmp_path / "page.html", title="my estimate")

    assert "<h1>my estimate</h1>" in (tmp_path / "page.html").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="one step"):
        ft.report(found, tmp_path / "page.html", step=1)


def test_it_shows_itself_in_a_notebook(found: Estimate) -> None:
    html = found._repr_html_()

    assert "llama3.2-1b on 8 x h100-sxm" in html
    assert "exposed: tensor parallel (tp)" in html


def test_the_step_of_the_timeline_is_the_answer(found: Estimate) -> None:
    assert windows(found.timeline).duration_ns.tolist() == [found.step_ns]


def test_wrong_names_are_told() -> None:
    with pytest.raises(WorkloadError, match="no model is called"):
        ft.estimate("nothing", KEYS, "dgx-h100")
    with pytest.raises(MachineError, match="no machine is called"):
        ft.estimate("llama3.2-1b", KEYS, "nothing")
    with pytest.raises(WorkloadError, match="no plan is called"):
        ft.estimate("llama3.2-1b", "nothing", "dgx-h100")
