"""How fast processes go when so many of them compute at once on this host's processor cores.

One loop for all: a product and a GELU of fixed sizes, one thread each. Every number of processes
takes its turn several times, so that a machine that grows slower does so for all of them.
"""

from __future__ import annotations

import multiprocessing
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import BrokenBarrierError

import msgspec

from foretrace.base import ModelError
from foretrace.capture.job import require_torch
from foretrace.capture.measure import median, usable_cores

NUM_ROUNDS = 4
_ROWS, _WIDTH, _COLUMNS = 512, 512, 1024  # about 10 ms of one core
_PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class HostSpeed:
    """The processor cores of a host, as processes that compute at once find them."""

    num_cores: int  # that this process may use
    # Of each process, when 1, 2, 3, ... compute at once; of one alone: 1.
    speed: tuple[float, ...]
    spread: tuple[float, ...]  # of each: largest over smallest speed of the rounds, less 1


def measured_host(
    num_processes: int = 4,
    *,
    seconds: float = 8.0,
) -> HostSpeed:
    """The speed of up to so many processes at once.

    Args:
        num_processes: the most that compute at once.
        seconds: for all of it, the start of the processes not counted.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        ModelError: if a process fails.
    """
    require_torch()
    turns = tuple(count for _ in range(NUM_ROUNDS) for count in range(1, num_processes + 1))
    context = multiprocessing.get_context("spawn")
    barrier = context.Barrier(num_processes + 1)
    with TemporaryDirectory(prefix="foretrace-") as folder:
        work = _Work(turns, seconds / len(turns), folder)
        processes = [
            context.Process(target=_compute, args=(number, work, barrier), daemon=True)
            for number in range(num_processes)
        ]
        try:
            for process in processes:
                process.start()
            for _ in turns:
                barrier.wait(_PATIENCE_SECONDS)
                barrier.wait(_PATIENCE_SECONDS)
            for process in processes:
                process.join()
        except BrokenBarrierError as error:
            raise ModelError(
                f"the speed of {num_processes} processes could not be measured: one of them "
                "failed, and what it printed says why"
            ) from error
        finally:
            for process in processes:
                process.kill()
        rates = [
            msgspec.json.decode((Path(folder) / f"{number}.json").read_bytes(), type=list[float])
            for number in range(num_processes)
        ]
    return _speed(turns, rates)


@dataclass(frozen=True)
class _Work:
    """What every process must know."""

    turns: tuple[int, ...]  # how many processes compute in each
    seconds: float  # of a turn
    folder: str  # where each leaves its loops per second of each turn


def _compute(number: int, work: _Work, barrier: Barrier) -> None:
    """Compute in each turn that has a place for this process, and wait in the others."""
    import torch  # on demand: an optional dependency

    torch.set_num_threads(1)
    left, right = torch.rand(_ROWS, _WIDTH), torch.rand(_WIDTH, _COLUMNS)
    rates: list[float] = []
    for count in work.turns:
        barrier.wait(_PATIENCE_SECONDS)
        done, begun = 0, time.perf_counter()
        while number < count and time.perf_counter() - begun < work.seconds:
            torch.nn.functional.gelu(left @ right)
            done += 1
        rates.append(done / (time.perf_counter() - begun))
        barrier.wait(_PATIENCE_SECONDS)
    (Path(work.folder) / f"{number}.json").write_bytes(msgspec.json.encode(rates))


def _speed(turns: tuple[int, ...], rates: list[list[float]]) -> HostSpeed:
    """Mean over the processes of a turn, median over turns, by one process alone."""
    by_count: dict[int, list[float]] = {}
    for turn, count in enumerate(turns):
        shares = [rate[turn] for rate in rates[:count]]
        by_count.setdefault(count, []).append(sum(shares) / count)
    alone = median(by_count[1])
    return HostSpeed(
        num_cores=usable_cores(),
        speed=tuple(median(found) / alone for found in by_count.values()),
        spread=tuple(max(found) / min(found) - 1 for found in by_count.values()),
    )
