"""Processes of a training run: started, waited for, and never left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec

from foretrace.base import ModelError
from foretrace.capture.job import require_torch
from foretrace.capture.training.settings import Task, Times, TrainingSettings, times_path

_POLL_SECONDS = 0.05
_LAST_CHARACTERS = 2_000  # of what a failed process said


@dataclass(frozen=True)
class TrainedSteps:
    """How long the steps of a run took."""

    times_by_rank: tuple[Times, ...]

    @property
    def step_ns(self) -> tuple[int, ...]:
        """Each step of the job: from the end of the one before on all ranks to its own."""
        ends_ns = [
            max(ends) for ends in zip(*(each.end_ns for each in self.times_by_rank), strict=True)
        ]
        return tuple(end - begin for begin, end in pairwise(ends_ns))


def trained(
    settings: TrainingSettings,
    *,
    steps: int,
    warmup: int = 3,
    recording: Path | None = None,
    profiled: int = 3,
    unprofiled: int = 0,
    timeout_seconds: float = 300.0,
) -> TrainedSteps:
    """Train a few steps with as many processes as the settings ask for.

    Args:
        settings: of the run.
        steps: to time, without the profiler.
        warmup: steps before them.
        recording: folder for a recording of steps after them; None: no recording.
        profiled: steps of the recording.
        unprofiled: steps that the recording times before, without the profiler.
        timeout_seconds: after which the run is given up.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        ModelError: if a process fails or takes too long.
    """
    require_torch()
    with tempfile.TemporaryDirectory(prefix="foretrace-") as folder:
        task = Task(
            settings=settings,
            meeting=f"file://{folder}/meeting",
            results=folder,
            warmup=warmup,
            steps=steps,
            recording=None if recording is None else str(recording.resolve()),
            profiled=profiled,
            unprofiled=unprofiled,
        )
        written = Path(folder) / "task.json"
        written.write_bytes(msgspec.json.encode(task))
        paths = [times_path(task, rank) for rank in range(settings.num_ranks)]
        _run(written, paths, timeout_seconds)
        return TrainedSteps(
            tuple(msgspec.json.decode(path.read_bytes(), type=Times) for path in paths)
        )


def _run(task: Path, results: list[Path], timeout_seconds: float) -> None:
    """Start a process for each result and wait for all; whatever happens, none is left."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(len(results)):
            processes.append(_started(task, rank))  # noqa: PERF401  those begun must be known
        _wait(processes, results, task, until=time.monotonic() + timeout_seconds)
    finally:
        for process in processes:
            process.kill()
        for process in processes:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()


def _started(task: Path, rank: int) -> subprocess.Popen[bytes]:
    # OpenMP makes its threads before PyTorch is told how many; a session of their own keeps
    # an interrupt from the keyboard away from them, so that it is the starter who ends them.
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # the starter's own, passed on
    with task.with_name(f"rank{rank}.log").open("wb") as log:
        return subprocess.Popen(  # noqa: S603  our own module, started by its name
            [sys.executable, "-m", "foretrace.capture.training", str(task), str(rank)],
            stdin=subprocess.PIPE,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )


def _wait(
    processes: list[subprocess.Popen[bytes]], results: list[Path], task: Path, *, until: float
) -> None:
    while not all(result.exists() for result in results):
        for rank, process in enumerate(processes):
            if process.poll() is not None and not results[rank].exists():
                log = task.with_name(f"rank{rank}.log").read_text(errors="replace").strip()
                raise ModelError(
                    f"rank {rank} of {len(processes)} failed while it trained, exit code "
                    f"{process.returncode}; it said: {log[-_LAST_CHARACTERS:] or 'nothing'}"
                )
        if time.monotonic() > until:
            missing = sum(not result.exists() for result in results)
            raise ModelError(
                f"{missing} of {len(processes)} training processes had not done their steps in "
                "time: ask for fewer steps, or leave the machine less to do"
            )
        time.sleep(_POLL_SECONDS)
