"""`PackedStream`: what a packer makes of a stream of documents: balance, delay, its own time."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from foretrace.balance.documents import Documents
from foretrace.balance.packing import (
    OutlierQueues,
    PackedStep,
    Packer,
    Piece,
    Room,
    arrivals,
    step_numbers,
)
from foretrace.balance.work import DocumentWork
from foretrace.base import NS_PER_S, Float64s, Int64s

# Where thresholds of queues are looked for, in parts of the window, and on how many steps.
_PARTS = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 5 / 8, 3 / 4)
_TUNED_ON = 60
_OTHER_DRAW = 2**32  # seeds of samples are so far from those of the steps that are told
_DELAY = 0.5  # steps that a token waits at most, on the average: Wang et al., arXiv:2503.17924


@dataclass(frozen=True, eq=False)
class PackedStream:
    """Steps that a packer made, and what that took."""

    packer: Packer
    steps: tuple[PackedStep, ...]
    numbers: tuple[int, ...]  # of the steps: which arrivals they are trained in place of
    overhead_ns: Float64s  # float64[arrivals], time of the packer itself for each step's documents

    @property
    def name(self) -> str:
        """Of the packer."""
        return self.packer.name

    def lengths(self) -> list[list[Int64s]]:
        """Lengths of the documents of every microbatch of every step."""
        return [
            [np.array([piece.length for piece in one], np.int64) for one in step]
            for step in self.steps
        ]

    def delays(self) -> Int64s:
        """Steps and tokens: int64[2, pieces], how long each piece waited, and its length."""
        found = [
            (number - piece.arrived, piece.length)
            for number, step in zip(self.numbers, self.steps, strict=True)
            for microbatch in step
            for piece in microbatch
        ]
        return np.array(found, np.int64).reshape(-1, 2).T

    def mean_delay(self) -> float:
        """Steps that a token waits for, on the average."""
        waited, tokens = self.delays()
        return float((waited * tokens).sum() / max(1, tokens.sum()))


def packed_stream(packer: Packer, arrived: Iterable[Sequence[Piece]]) -> PackedStream:
    """Pack a stream of documents.

    Args:
        packer: new.
        arrived: documents by the step that they arrive for, by `arrivals`.
    """
    steps: list[PackedStep] = []
    numbers: list[int] = []
    spent: list[int] = []
    for arrival, pieces in enumerate(arrived):
        begin = time.perf_counter_ns()
        made = packer.packed(pieces)
        spent.append(time.perf_counter_ns() - begin)
        steps.extend(made)
        numbers.extend(step_numbers(numbers[-1] if numbers else -1, arrival, len(made)))
    return PackedStream(packer, tuple(steps), tuple(numbers), np.array(spent, np.float64))


def work_by_microbatch(stream: PackedStream, work: DocumentWork) -> Float64s:
    """Work of every microbatch, float64[steps, microbatches], in ns."""
    microbatches = [one for step in stream.steps for one in step]
    if not microbatches:
        return np.zeros((0, 1))
    lengths = np.array([piece.length for one in microbatches for piece in one], np.int64)
    first = np.cumsum([0, *(len(one) for one in microbatches[:-1])])
    found: Float64s = np.add.reduceat(work.work_of(lengths), first)
    return found.reshape(len(stream.steps), -1)


def imbalance(work_ns: Float64s) -> float:
    """Work of a step's largest microbatch over that of their mean; the mean over steps."""
    return float((work_ns.max(axis=1) / work_ns.mean(axis=1)).mean())


def tuned_queues(
    room: Room, work: DocumentWork, documents: Documents, *, num_queues: int, seed: int = 0
) -> OutlierQueues:
    """Queues whose thresholds balance a sample best without delaying tokens by half a step.

    The sample is another draw than the one of that seed, so that what the queues are judged on
    was not seen.

    Args:
        room: of a step.
        work: of documents.
        documents: of the dataset.
        num_queues: 1 or more.
        seed: of the draw that they will be judged on.
    """
    sample = documents.arriving(_TUNED_ON * room.step_tokens, seed=seed + _OTHER_DRAW)
    arrived = list(arrivals(sample.tolist(), room))
    best: tuple[tuple[bool, float], tuple[int, ...]] | None = None
    for parts in combinations(_PARTS, num_queues):
        thresholds = tuple(sorted({max(1, round(part * room.window)) for part in parts}))
        stream = packed_stream(OutlierQueues(room, work, thresholds), arrived)
        if not stream.steps:
            continue
        delay = stream.mean_delay()
        value = imbalance(work_by_microbatch(stream, work)) if delay <= _DELAY else delay
        found = ((delay > _DELAY, value), thresholds)
        best = found if best is None else min(best, found)
    whole = (room.window,) if best is None else best[1]
    return OutlierQueues(room, work, whole)


def overhead_ms(stream: PackedStream) -> float:
    """The packer's own time for one step, in ms; the median."""
    return float(np.median(stream.overhead_ns)) * 1_000 / NS_PER_S if len(stream.overhead_ns) else 0
