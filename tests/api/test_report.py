"""`report`: what it writes, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
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
