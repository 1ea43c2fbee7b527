"""Jobs in which one thing was made to go wrong, and what a diagnosis must call it.

Generated ones are drawn from a seed: which rank, how much, and of what size the job is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foretrace.graph import Recording
from tests.acceptance.recovery import recording_of_job
from tests.truth import (
    Change,
    Job,
    JobConfig,
    LateLoader,
    LongerSegment,
    SlowFamily,
    SlowGroup,
    SlowRank,
    SlowWhile,
    make_job,
)
from tests.truth.small import (
    Hold,
    Instruction,
    Launch,
    Reduce,
    Synchronize,
    Think,
    small_job,
)

SEED = 20_261_122
VARIANTS = 4
_MS = 1_000_000


@dataclass(frozen=True)
class Plant:
    """One thing that goes wrong, in the words that a diagnosis has for it."""

    cause: str  # as a planter says it: "garbage collection"
    words: str  # what the sentence must say
    rank: int  # whose doing it is; -1: of all
    recording: Recording


def planted(cause: str, variant: int, *, seed: int = SEED) -> Plant:
    """A generated job with this cause."""
    rng = np.random.default_rng((seed, tuple(PLANTERS).index(cause), variant))
    return PLANTERS[cause](cause, rng)


# -- training jobs, some of whose durations are changed -------------------------------------------


def _training(rng: np.random.Generator) -> tuple[Job, int]:
    """A job, and one of its ranks."""
    job = make_job(
        JobConfig(
            seed=int(rng.integers(1_000)),
            tp=2,
            dp=2,
            num_layers=int(rng.integers(2, 4)),
            num_steps=4,
            data_loading_ns=200_000,
        )
    )
    return job, int(rng.integers(job.num_ranks))


def _changed(cause: str, words: str, rank: int, job: Job, change: Change) -> Plant:
    return Plant(cause, words, rank, recording_of_job(job.after(change)))


def _stall(cause: str, rng: np.random.Generator) -> Plant:
    job, rank = _training(rng)
    launches = [each for each in job.operations(rank) if "fwd" in each.name or "gemm" in each.name]
    at = launches[int(rng.integers(len(launches) // 4, 3 * len(launches) // 4))]
    change = LongerSegment(rank, at.correlation, int(rng.integers(25, 60)) * _MS)
    return _changed(cause, "host stalls, cause not recorded", rank, job, change)


def _slow_operator(cause: str, rng: np.random.Generator) -> Plant:
    job, rank = _training(rng)
    families = {"gemm": 1.4, "norm": 4.0, "attention": 1.8, "elementwise": 4.0}
    family = str(rng.choice(list(families)))
    factor = families[family] * float(rng.uniform(1, 1.3))
    return _changed(cause, "slow operator", rank, job, SlowFamily(rank, family, factor))


def _slow_rank(cause: str, rng: np.random.Generator) -> Plant:
    job, rank = _training(rng)
    return _changed(cause, "slow chip", rank, job, SlowRank(rank, float(rng.uniform(1.15, 1.6))))


def _late_loader(cause: str, rng: np.random.Generator) -> Plant:
    job, rank = _training(rng)
    change = LateLoader(rank, int(rng.integers(8, 40)) * _MS)
    return _changed(cause, "data loading", rank, job, change)


def _throttled(cause: str, rng: np.random.Generator) -> Plant:
    job, rank = _training(rng)
    begin = float(rng.uniform(0.1, 0.5))
    change = SlowWhile(rank, float(rng.uniform(1.6, 2.5)), begin, begin + 0.3)
    return _changed(cause, "chip slow for a while", rank, job, change)


def _slow_link(cause: str, rng: np.random.Generator) -> Plant:
    job, rank = _training(rng)
    link = str(rng.choice(["tp", "dp"]))
    change = SlowGroup(link, rank, float(rng.uniform(4, 8)))
    return _changed(cause, "slow transfers", rank, job, change)


# -- small jobs, some of whose programs are other programs ----------------------------------------


def _small(
    cause: str,
    words: str,
    rng: np.random.Generator,
    *,
    extra: Callable[[int], list[Instruction]],
    on_all: bool = False,
) -> Plant:
    """Ranks that launch kernels and meet; `extra` comes into every layer of one rank, or of all."""
    num_ranks, num_layers = int(rng.choice([2, 4])), 6
    rank = int(rng.integers(num_ranks))
    kernels = [int(each) for each in rng.integers(150_000, 400_000, size=3)]
    programs: list[list[Instruction]] = []
    for each in range(num_ranks):
        program: list[Instruction] = []
        for layer in range(num_layers):
            program.append(Think(20_000))
            program += [Launch(ns) for ns in kernels]
            program += extra(layer) if on_all or each == rank else []
            program.append(Reduce(1_000_000))
        programs.append(program)
    job = small_job(programs, JobConfig(tp=num_ranks, num_steps=4, seed=int(rng.integers(1_000))))
    return Plant(cause, words, -1 if on_all else rank, recording_of_job(job))


def _garbage(cause: str, rng: np.random.Generator) -> Plant:
    pause_ns, at = int(rng.integers(15, 40)) * _MS, int(rng.integers(6))
    mark = Hold("Python GC, generation 2", pause_ns, is_annotation=True)
    return _small(cause, cause, rng, extra=lambda layer: [mark] if layer == at else [])


def _allocator(cause: str, rng: np.random.Generator) -> Plant:
    each_ns = int(rng.integers(2, 5)) * _MS
    calls: list[Instruction] = [Hold("cudaFree", each_ns), Hold("cudaMalloc", each_ns)]
    on_all = bool(rng.integers(2))
    return _small(cause, "memory allocation", rng, extra=lambda _: calls, on_all=on_all)


def _blocking(cause: str, rng: np.random.Generator) -> Plant:
    after_ns = int(rng.integers(300, 900)) * 1_000
    calls: list[Instruction] = [Synchronize(7), Think(after_ns)]
    return _small(cause, "synchronisation", rng, extra=lambda _: calls, on_all=True)


def _uneven(cause: str, rng: np.random.Generator) -> Plant:
    more: list[Instruction] = [Launch(int(rng.integers(150_000, 400_000)))] * int(
        rng.integers(1, 3)
    )
    return _small(cause, cause, rng, extra=lambda _: more)


PLANTERS: dict[str, Callable[[str, np.random.Generator], Plant]] = {
    "stall": _stall,
    "garbage collection": _garbage,
    "slow operator": _slow_operator,
    "slow rank": _slow_rank,
    "late loader": _late_loader,
    "allocator": _allocator,
    "blocking synchronisation": _blocking,
    "throttled chip": _throttled,
    "slow link": _slow_link,
    "uneven work": _uneven,
}
