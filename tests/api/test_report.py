"""`report`: what it writes, and what it refuses."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.analyze import steps
from foretrace.base import ModelError
from tests.truth import JobConfig, make_job, write


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> ft.Job:
    folder = tmp_path_factory.mktemp("traces")
    made = make_job(JobConfig(tp=2, num_layers=1, num_steps=2))
    return ft.load(write(made, folder), cache=False)


def test_the_step_can_be_chosen(job: ft.Job, tmp_path: Path) -> None:
    for step in (4, "ProfilerStep#5"):
        ft.report(job, tmp_path / "page.html", step=step, title="my run")

        html = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "<h1>my run</h1>" in html
        number = str(step).removeprefix("ProfilerStep#")
        assert f"From the end of ProfilerStep#{number} back" in html


def test_a_step_that_is_not_there_is_refused(job: ft.Job, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"no step 'ProfilerStep#9': the recording has"):
        ft.report(job, tmp_path / "page.html", step=9)

    assert not (tmp_path / "page.html").exists()


def test_what_the_replay_leaves_out_is_said(job: ft.Job, tmp_path: Path) -> None:
    ft.report(job, tmp_path / "page.html", without="rendezvous")

    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Replayed without: rendezvous." in html


def test_what_a_step_gets_done_stands_at_the_top_and_below(job: ft.Job, tmp_path: Path) -> None:
    done = ft.throughput(job)
    ft.report(job, tmp_path / "page.html")

    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    top, rest = html.split('id="timeline"', 1)
    names = {fact.name: fact for fact in done.facts()}
    assert not names["tokens/s"].is_missing
    assert "Tokens/s" in top
    assert names["tokens/s"].value in top
    assert "Samples/s" not in top
    assert 'id="throughput"' in rest


def test_alarms_of_an_optimizer_stand_at_their_steps(job: ft.Job, tmp_path: Path) -> None:
    for meta in job.metas:
        shutil.copy(meta.path, tmp_path)
    copied = ft.load(tmp_path, cache=False)
    table = steps(copied.measured)
    [row] = [at for at in range(len(table)) if (table.step[at], table.rank[at]) == (1, 1)]
    inside_ns = int(table.begin_ns[row] + table.end_ns[row]) // 2
    zero_ns = int(copied.recording.on_timeline(1, np.zeros(1, np.int64))[0])
    lines = [
        {
            "step": step,
            "time_ns": inside_ns - zero_ns + (step - 42) * 10**9,
            "rank": 1,
            "expected_std": 0.23,
            "layers": {"first": {"ratio_std": 0.2 + 0.01 * (step % 3) + (step >= 40)}},
        }
        for step in range(50)
    ]
    text = "".join(f"{json.dumps(one)}\n" for one in lines)
    (tmp_path / "optimizer.jsonl").write_text(text, encoding="utf-8")
    (tmp_path / "other.jsonl").write_text('{"loss": 3.0}\n', encoding="utf-8")

    ft.report(copied, tmp_path / "page.html")

    html = (tmp_path / "page.html").read_text(encoding="utf-8")
    section = html.split('id="optimizer"', 1)[1].split("</section>", 1)[0]
    assert "1 alarm in 50 observations of 1 layer, the first at step 42: first" in section
    assert f'data-stretch="1,{table.begin_ns[row]},{inside_ns}"' in section
    assert '"first: updates of the whole layer point one way"' in html
