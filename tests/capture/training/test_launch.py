"""A training run's steps are the job's, and no process outlives it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

import foretrace as ft
from foretrace.base import ModelError
from foretrace.capture import TrainedSteps, TrainingSettings, trained
from foretrace.capture.training import launch
from foretrace.capture.training.settings import Task, Times
from foretrace.graph import NodeKind, Part
from foretrace.whatif import program_of
from tests import ranks

TINY = TrainingSettings(
    layers=4,
    hidden=32,
    heads=4,
    feed_forward=64,
    vocabulary=128,
    sequence=16,
    micro_batch=2,
    bucket_bytes=16 << 10,
)


def test_a_step_of_the_job_ends_with_its_last_rank() -> None:
    steps = TrainedSteps(
        (
            Times(rank=0, end_ns=(100, 220, 300), loss=None),
            Times(rank=1, end_ns=(110, 200, 330), loss=2.0),
        )
    )

    assert steps.step_ns == (110, 110)
    assert [each.step_ns for each in steps.times_by_rank] == [(120, 80), (90, 130)]


def waits_for_ever(*_: object) -> subprocess.Popen[bytes]:
    """In the place of a rank."""
    return subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
    )


def test_processes_that_take_too_long_are_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("torch")
    started: list[subprocess.Popen[bytes]] = []

    def start(*_: object) -> subprocess.Popen[bytes]:
        started.append(waits_for_ever())
        return started[-1]

    monkeypatch.setattr(launch, "_started", start)

    with pytest.raises(ModelError, match="2 of 2 training processes had not done"):
        trained(TINY, steps=1, timeout_seconds=0.05)

    assert len(started) == 2
    assert all(process.returncode is not None for process in started)


def test_an_interrupt_ends_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch")
    started: list[subprocess.Popen[bytes]] = []

    def start(*_: object) -> subprocess.Popen[bytes]:
        if started:
            raise KeyboardInterrupt
        started.append(waits_for_ever())
        return started[-1]

    monkeypatch.setattr(launch, "_started", start)

    with pytest.raises(KeyboardInterrupt):
        trained(TINY, steps=1)

    assert started[0].returncode is not None


@pytest.mark.slow
def test_a_failing_rank_says_what_it_said() -> None:
    pytest.importorskip("torch")

    with pytest.raises(ModelError, match=r"rank 0 of 1 failed .* exit code 1"):
        trained(replace(TINY, heads=0, data=1), steps=1)


@pytest.mark.slow
def test_a_rank_ends_when_whoever_started_it_is_gone(tmp_path: Path) -> None:
    """It waits for a second rank that never comes, and its standard input is closed."""
    pytest.importorskip("torch")
    task = tmp_path / "task.json"
    told = Task(
        settings=TINY,
        meeting=f"file://{tmp_path / 'meeting'}",
        results=str(tmp_path),
        warmup=0,
        steps=1,
    )
    task.write_bytes(msgspec.json.encode(told))
    process = subprocess.Popen(
        [sys.executable, "-m", "foretrace.capture.training", str(task), "0"],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None

    process.stdin.close()

    assert process.wait(timeout=60) == 1


def learns(found: TrainedSteps) -> None:
    """Twelve timed steps, after which the loss is below that of a guess."""
    losses = [each.loss for each in found.times_by_rank if each.loss is not None]
    assert len(found.step_ns) == 12
    assert min(found.step_ns) > 0
    assert losses
    assert max(losses) < 4.7  # log(128) = 4.85 before anything is learnt


def train_here(task: Path, rank: int) -> None:
    """What a rank's process does, but for waiting to be ended."""
    from foretrace.capture.training.train import train  # needs PyTorch

    train(msgspec.json.decode(task.read_bytes(), type=Task), rank)


@pytest.fixture
def _copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "_started", partial(ranks.CopiedProcess, train_here))


@pytest.mark.slow
@pytest.mark.usefixtures("_copied")
@pytest.mark.parametrize(
    "settings",
    [
        replace(TINY, data=1, tensor=2),
        replace(TINY, overlaps_gradients=False, network_delay_ns=1_000_000),
    ],
    ids=["tensor", "own reduction"],
)
def test_every_way_to_divide_the_work_learns(settings: TrainingSettings) -> None:
    pytest.importorskip("torch")

    learns(trained(settings, steps=12, warmup=1))


@pytest.mark.slow
def test_copies_learn_and_a_recording_shows_layers_microbatches_and_buckets(
    tmp_path: Path,
) -> None:
    pytest.importorskip("torch")

    learns(
        trained(TINY, steps=12, warmup=1, recording=tmp_path / "traces", profiled=2, unprofiled=2)
    )

    job = ft.load(tmp_path / "traces", cache=False)
    graph = job.graph
    assert job.ranks == (0, 1)
    assert len(job.steps) == 2
    assert set(graph.layer[graph.part == Part.LAYER].tolist()) == set(range(TINY.layers))
    assert set(graph.microbatch[graph.part == Part.LAYER].tolist()) == {0, 1}
    finishes = (graph.kind == NodeKind.FINISH) & (graph.rank == 0)
    assert (graph.part[finishes] == Part.BUCKET).all()
    assert finishes.sum() > 2 * len(job.steps)
    assert set(job.recording.unprofiled_step_ns) == {0, 1}


@pytest.mark.slow
@pytest.mark.usefixtures("_copied")
@pytest.mark.parametrize("layers", [4, 2], ids=["layers repeat", "one layer each"])
def test_a_pipeline_learns_and_its_recording_shows_stages_and_schedule(
    tmp_path: Path, layers: int
) -> None:
    pytest.importorskip("torch")
    settings = replace(TINY, data=1, pipeline=2, num_microbatches=4, layers=layers)

    learns(
        trained(
            settings, steps=12, warmup=1, recording=tmp_path / "traces", profiled=2, unprofiled=1
        )
    )

    job = ft.load(tmp_path / "traces", cache=False)
    graph = job.graph
    assert {each.recorded_ranks for each in graph.collectives} == {(0, 1)}
    assert set(graph.layer[graph.part == Part.LAYER].tolist()) == set(range(layers))
    assert set(graph.microbatch[graph.part == Part.LAYER].tolist()) == {0, 1, 2, 3}
    plan = program_of(job.recording).plan
    assert (plan.pipeline, plan.schedule, plan.num_microbatches) == (2, "1f1b", 4)
    error = ft.replay(job).summary.worst_step_error_percent
    assert error < 1
