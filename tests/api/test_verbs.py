from __future__ import annotations

from pathlib import Path

import pytest

import foretrace as ft
from foretrace.base import ModelError, TraceError
from foretrace.graph import Ablation
from tests.truth import Job, JobConfig, make_job, write


@pytest.fixture(scope="module")
def truth() -> Job:
    return make_job(JobConfig(tp=2, dp=1, num_layers=2, num_steps=2))


@pytest.fixture(scope="module")
def folder(truth: Job, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("run-of-two")
    write(truth, made)
    return made


@pytest.fixture(scope="module")
def job(folder: Path) -> ft.Job:
    return ft.load(folder, cache=False)


def test_a_job_knows_its_ranks_steps_and_origin(job: ft.Job, folder: Path) -> None:
    assert job.ranks == (0, 1)
    assert len(job.steps) == 2
    assert job.title == folder.name
    assert repr(job).startswith("Job(ranks=(0, 1), steps=")


def test_blocks_are_those_of_the_job_s_graph_and_a_file_corrects_them(
    job: ft.Job, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "my.toml"
    path.write_text('[[rule]]\noperator = "aten::cross_entropy_loss"\npart = "head"\n', "utf-8")

    found = ft.blocks(job).to_polars()
    corrected = ft.blocks(ft.load(folder, cache=False, blocks=str(path))).to_polars()

    assert set(found["layer"]) == {-1, 0, 1}
    assert "loss" in set(found["part"])
    assert "loss" not in set(corrected["part"])
    assert ft.blocks(job.measured).to_polars().equals(found)


def test_paths_may_be_one_or_many(job: ft.Job, folder: Path) -> None:
    by_text = ft.load(str(folder), cache=False)
    by_list = ft.load(sorted(folder.iterdir()), cache=False)

    assert by_text.graph.num_nodes == by_list.graph.num_nodes == job.graph.num_nodes


def test_replay_is_close_and_breaks_down_to_the_step(job: ft.Job) -> None:
    timeline = ft.simulate(job)
    parts = ft.breakdown(timeline)
    report = ft.replay(job)

    assert not timeline.is_measured
    assert [row.parts.total_ns for row in parts.rows] == [
        rank.replayed_ns for step in report.steps for rank in step.ranks
    ]


def test_classes_of_dependency_are_left_out_by_name_or_value(job: ft.Job) -> None:
    by_name = ft.simulate(job, without="rendezvous")
    by_value = ft.simulate(job, without=[Ablation.RENDEZVOUS])
    whole = ft.simulate(job)

    assert (by_name.end_ns == by_value.end_ns).all()
    assert (by_name.end_ns != whole.end_ns).any()


def test_an_unknown_class_of_dependency_names_the_known_ones(job: ft.Job) -> None:
    with pytest.raises(ValueError, match=r"'gravity': expected one of .*'rendezvous'"):
        ft.simulate(job, without=["gravity"])


def test_steps_are_chosen_by_name_or_number(job: ft.Job) -> None:
    name = job.steps[-1]
    number = int(name.removeprefix("ProfilerStep#"))

    assert [step.name for step in ft.replay(job, steps=[number]).steps] == [name]
    assert [step.name for step in ft.replay(job, steps=[name]).steps] == [name]
    with pytest.raises(ModelError, match="no such steps"):
        ft.replay(job, steps=[999])


def test_cache_stands_where_it_is_told(folder: Path, tmp_path: Path) -> None:
    ft.load(folder, cache=tmp_path / "kept")

    assert list((tmp_path / "kept").rglob("*"))


def test_progress_is_told(folder: Path) -> None:
    seen: list[tuple[int, int]] = []

    ft.load(folder, cache=False, progress=lambda done, total: seen.append((done, total)))

    assert seen[-1] == (2, 2)


def test_contents_are_told_for_every_file(folder: Path) -> None:
    assert len(ft.inspect(folder).files) == 2


def test_files_without_durations_are_not_replayed(data_dir: Path) -> None:
    job = ft.load(data_dir / "traces" / "execution-traces" / "linear_et.json.gz")

    with pytest.raises(TraceError, match=r"linear_et\.json\.gz has no times"):
        ft.replay(job)
