"""What a training run depends on, what its processes are told, and what they tell."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import msgspec


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """Sizes, degrees and disturbances of one run; ranks count along tp, dp, pp, tp innermost."""

    layers: int = 4  # over all stages
    hidden: int = 256
    heads: int = 8
    feed_forward: int = 1024
    vocabulary: int = 2048
    sequence: int = 128  # tokens
    micro_batch: int = 4  # sequences
    num_microbatches: int = 2  # of one step, on each data-parallel rank
    tensor: int = 1
    data: int = 2
    pipeline: int = 1
    bucket_bytes: int = 4 << 20  # of gradients that are reduced at once
    # Whether buckets are reduced beside the backward pass; else all of them after it.
    overlaps_gradients: bool = True
    slow_rank: int | None = None  # works `slow_ns` more in each layer's forward pass
    slow_ns: int = 0
    network_delay_ns: int = 0  # by which every reduction of gradients ends later
    device: str = "cpu"  # "cpu": gloo, one thread each; "cuda": NCCL, one GPU each

    @property
    def num_ranks(self) -> int:
        """Processes of the job."""
        return self.tensor * self.data * self.pipeline


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
