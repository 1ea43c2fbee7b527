"""The verbs that answer questions take a job or a timeline, and show themselves in a notebook."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import foretrace as ft
from foretrace.analyze import (
    AttentionProfile,
    Breakdown,
    Comparison,
    CriticalPath,
    Effect,
    IdleCauses,
    MemoryUse,
    OperatorTable,
    Roofline,
    Sensitivity,
    Stragglers,
    WhatHelps,
)
from foretrace.base import GraphError, TraceError
from foretrace.graph import Blocks
from foretrace.validate import ReplayReport
from foretrace.whatif import Prediction
from tests.truth import Job, JobConfig, KernelFamily, make_job, write


@pytest.fixture(scope="module")
def truth() -> Job:
    return make_job(JobConfig(tp=2, dp=1, num_layers=2, num_steps=2))


@pytest.fixture(scope="module")
def job(truth: Job, tmp_path_factory: pytest.TempPathFactory) -> ft.Job:
    folder = tmp_path_factory.mktemp("run")
    write(truth, folder)
    return ft.load(folder, cache=False)


@pytest.fixture(scope="module")
def slower(truth: Job, tmp_path_factory: pytest.TempPathFactory) -> ft.Job:
    folder = tmp_path_factory.mktemp("slower")
    write(truth.after(KernelFamily("gemm", 1.5)), folder)
    return ft.load(folder, cache=False)


ANSWERS: dict[type[Any], Callable[[ft.Job], Any]] = {
    Breakdown: ft.breakdown,
    CriticalPath: ft.critical_path,
    Sensitivity: ft.sensitivity,
    WhatHelps: ft.what_helps,
    Effect: lambda job: ft.effect(job, "gemm=0.8"),
    IdleCauses: ft.idle,
    Stragglers: ft.stragglers,
    OperatorTable: ft.operators,
    Roofline: ft.roofline,
    Blocks: ft.blocks,
    Comparison: lambda job: ft.compare(job, ft.simulate(job)),
    ReplayReport: ft.replay,
    AttentionProfile: ft.attention,
    MemoryUse: ft.memory,
    Prediction: lambda job: ft.whatif(job.edit(ft.Speed(2.0))),
}


@pytest.mark.parametrize("result", ANSWERS)
def test_every_answer_is_told_everywhere(job: ft.Job, result: type[Any]) -> None:
    found = ANSWERS[result](job)

    html = found._repr_html_()
    assert isinstance(found, result)
    assert json.loads(json.dumps(found.as_json()))
    assert html.startswith("<")
    assert html.count("<table>") == html.count("</table>")
    assert len(html) < 30_000
    assert "\n" not in repr(found)
    assert len(repr(found)) < 400
    assert max(map(len, str(found).splitlines())) <= 80


@pytest.mark.parametrize("result", ANSWERS)
def test_every_table_is_a_frame(job: ft.Job, result: type[Any]) -> None:
    found = ANSWERS[result](job)

    keys = [table.key for table in found.tables()]
    assert len(keys) == len(set(keys))
    for table in found.tables():
        frame = found.to_polars(table.key)
        assert frame.height == len(table)
        assert frame.columns == [column.key for column in table.columns]
    with pytest.raises(ValueError, match="no table 'nonsense'"):
        found.to_polars("nonsense")


def test_names_from_a_trace_are_escaped(job: ft.Job) -> None:
    table = ft.operators(job)
    named = replace(table, rows=(replace(table.rows[0], kind="<script>alert(1)</script>"),))

    html = named._repr_html_()

    assert "<script" not in html
    assert "&lt;script&gt;" in html


def test_a_job_is_asked_as_replayed_or_measured(job: ft.Job) -> None:
    replayed = ft.simulate(job)

    assert ft.critical_path(job).step_ns == ft.critical_path(replayed).step_ns
    assert not ft.critical_path(job).timeline.is_measured
    assert ft.breakdown(job).rows == ft.breakdown(job.measured).rows
    assert ft.breakdown(job).rows != ft.breakdown(replayed).rows
    assert ft.critical_path(job.measured).timeline.is_measured


def test_steps_are_chosen_by_number(job: ft.Job) -> None:
    number = int(job.steps[-1].removeprefix("ProfilerStep#"))

    assert ft.critical_path(job, step=number).span.step_name == job.steps[-1]
    assert ft.operators(job, step=number).step_name == job.steps[-1]
    with pytest.raises(GraphError, match="no step 'ProfilerStep#999'"):
        ft.idle(job, step=999)


def test_what_helps_may_be_asked_of_a_sensitivity(job: ft.Job) -> None:
    assert ft.what_helps(ft.sensitivity(job)).rows == ft.what_helps(job).rows


def test_a_slower_run_is_named(job: ft.Job, slower: ft.Job) -> None:
    found = ft.compare(job, slower)

    assert found.reasons[0].label == "gemm"
    assert found.difference_ns > 0


def test_a_job_that_ran_through_has_no_hang(job: ft.Job) -> None:
    assert not ft.hang(job).is_hung
    assert all(cause.topic != "hang" for cause in ft.diagnose(job).causes)


def test_memory_is_of_a_job_or_of_a_snapshot(job: ft.Job, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no pickle", encoding="utf-8")

    assert len(ft.memory(job)) == 0
    with pytest.raises(TraceError, match="text"):
        ft.memory(tmp_path / "text")
    with pytest.raises(ValueError, match="a snapshot has no steps"):
        ft.memory(tmp_path / "text", step=3)


def test_a_notebook_shows_every_row(job: ft.Job) -> None:
    table = ft.breakdown(ft.simulate(job))._repr_html_()

    assert table.count("<tr>") == 2 + 1 + 2 * 2 + 1 + 5
    assert "<th>exposed compute ms</th>" in table
