"""What the processes of one training run are told, and what each of them tells."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import msgspec

from foretrace.capture.training.settings import TrainingSettings


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the training program; every rank gets the same."""

    settings: TrainingSettings
    meeting: str  # URL at which the processes find each other
    results: str  # folder for each rank's `Times`
    warmup: int  # steps that are not timed: allocators, DDP's order of buckets
    steps: int  # steps that are timed
    recording: str | None = None  # folder for traces of some steps after these
    profiled: int = 3  # steps of the recording
    unprofiled: int = 0  # steps that the recording times before, without the profiler


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank saw."""

    rank: int
    # When the warm-up and then each timed step ended, on a clock that all processes of the host
    # share (CLOCK_MONOTONIC); steps + 1 of them.
    end_ns: tuple[int, ...]
    loss: float | None  # after the last step; `None` where no loss is computed

    @property
    def step_ns(self) -> tuple[int, ...]:
        """How long this rank's own steps took."""
        return tuple(end - begin for begin, end in pairwise(self.end_ns))


def times_path(task: Task, rank: int) -> Path:
    """Where a rank leaves its times."""
    return Path(task.results) / f"rank{rank}.times.json"
