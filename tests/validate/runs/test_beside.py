"""What is known of rows from a table beside them."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.validate import read_description, read_runs
from foretrace.validate.runs.configuration import model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.workload import Copies, Recompute
from tests.validate.runs.sample import DESCRIPTION, published, write_table

_DESCRIBED = """
kind = "runs"
hosts = { A100-80GB = "dgx-a100" }

[[beside]]
table = "beside.csv"
same = ["software", "gpu"]
alike = ["tp", "pp", "vp"]
most_different = 1

[[plans]]
where = { graphs = "whole" }
plan = { implementation = { launch = "graph" } }
"""
_LINES = """software,gpu,tp,pp,vp,graphs,recompute
megatron-*,A100-80GB,2,2,,whole,full
megatron-*,A100-80GB,4,4,2,layer,none
megatron-*,H100,2,2,,layer,none
"""


def described(folder: Path, lines: str = _LINES) -> Path:
    """A description with a table beside it."""
    (folder / "beside.csv").write_text(lines, encoding="utf-8")
    path = folder / "own.toml"
    path.write_text(_DESCRIBED, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("row", "launch", "recompute"),
    [
        ({"recompute": ""}, "graph", Recompute.FULL),
        ({"recompute": "selective"}, "graph", Recompute.SELECTIVE),  # its own cell counts first
        ({"recompute": "", "tp": 4, "dp": 1}, "graph", Recompute.FULL),  # one degree differs
        ({"recompute": "", "tp": 4, "pp": 4, "vp": 2, "num_gpus": 32}, "eager", Recompute.NONE),
        ({"recompute": "none", "tp": 1, "pp": 1, "dp": 8}, "eager", Recompute.NONE),  # two do
        ({"recompute": "none", "software": "jax"}, "eager", Recompute.NONE),
    ],
)
def test_the_line_that_names_the_same_and_agrees_most_belongs_to_a_row(
    tmp_path: Path, row: dict[str, object], launch: str, recompute: Recompute
) -> None:
    description = read_description(described(tmp_path))

    run = read_runs(write_table(tmp_path / "runs.csv", row), description)[0]
    said = description.stated_plan(run.texts).plan()

    assert said.implementation.launch == launch
    assert run.recompute == recompute.value


def test_configurations_of_megatron_bridge_say_what_its_tables_do_not(tmp_path: Path) -> None:
    run = published(
        tmp_path,
        model="qwen3-235b-a22b",
        software="nemo-26.06",
        gpu="GB300",
        precision="mxfp8",
        recompute="",
        **dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn"), ""),
        vocab="",
        num_gpus=256,
        gpus_per_node=4,
        nvlink_domain=72,
        tp=1,
        pp=4,
        vp=12,
        ep=32,
        dp=64,
        micro_batch=2,
        global_batch=8192,
        seq_len=4096,
    )

    assert run.beside["tag"] == "v0.5.0"
    assert run.beside["graphs"] == "full_iteration"
    plan = plans_of(run, model_of(run)).plans[0]
    assert plan.dispatch.copies is Copies.BY_RANK
    assert plan.overlap.expert
    assert plan.implementation.launch == "graph"


def test_rows_of_other_software_have_nothing_beside(tmp_path: Path) -> None:
    assert not {"dispatcher", "graphs"} & published(tmp_path).beside.keys()
    assert DESCRIPTION.beside


@pytest.mark.parametrize(
    ("lines", "told"),
    [("software,tp\na,1\n", "lacks the columns gpu, pp, vp"), (None, "cannot be read as a table")],
)
def test_a_table_beside_that_is_none_is_refused(
    tmp_path: Path, lines: str | None, told: str
) -> None:
    path = described(tmp_path, lines or "")
    if lines is None:
        (tmp_path / "beside.csv").unlink()

    with pytest.raises(WorkloadError, match=told):
        read_description(path)
