"""Python's lock: real threads and processes beside what the closed form says of them.

A request works in Python for a while and then waits without the lock, as for a device; times vary.
One worker alone says what a request works and waits on the average, two that never wait what a
hand-over of the lock takes; several workers are predicted from these, in turns with them, so that
what else the machine does weighs alike. Prints how far predictions lie from what was measured;
where other programs have part of the cores, threads by processes is what can be believed.

    python bench/interpreter.py --workers 1 2 4 --seconds 4
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import random
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from foretrace.analyze.interpreter import lock_throughput

_LOOPS = 2_000


def spin(loops: int) -> None:
    """Work in Python."""
    total = 0
    for at in range(loops):
        total += at * at


@dataclass(frozen=True)
class Served:
    """What one worker did."""

    requests: int
    work_ns: int  # of its own, on a core

    def __add__(self, other: Served) -> Served:
        """Of both."""
        return Served(self.requests + other.requests, self.work_ns + other.work_ns)


def serve(until: float, *, loops: int, wait_s: float, seed: int) -> Served:
    """Requests till then."""
    draw, done = random.Random(seed), 0
    begin = time.thread_time_ns()
    while time.monotonic() < until:
        spin(int(draw.expovariate(1 / loops)))
        time.sleep(draw.expovariate(1 / wait_s))
        done += 1
    return Served(done, time.thread_time_ns() - begin)


def of_threads(workers: int, seconds: float, *, loops: int, wait_s: float, seed: int) -> Served:
    """What threads do together."""
    until = time.monotonic() + seconds
    how: dict[str, Any] = {"loops": loops, "wait_s": wait_s}
    with ThreadPoolExecutor(workers) as pool:
        jobs = [pool.submit(serve, until, seed=seed + at, **how) for at in range(workers)]
        return sum((job.result() for job in jobs), Served(0, 0))


def _process(job: tuple[float, int, float, int]) -> Served:
    seconds, loops, wait_s, seed = job
    return serve(time.monotonic() + seconds, loops=loops, wait_s=wait_s, seed=seed)


def of_processes(workers: int, seconds: float, *, loops: int, wait_s: float, seed: int) -> Served:
    """What processes do together."""
    jobs = [(seconds, loops, wait_s, seed + at) for at in range(workers)]
    with multiprocessing.Pool(workers) as pool:
        pool.map(time.sleep, [0.2] * workers, chunksize=1)
        return sum(pool.map(_process, jobs, chunksize=1), Served(0, 0))


def turns(until: float) -> int:
    """How often a thread spins until then, never letting go of the lock by itself."""
    done = 0
    while time.monotonic() < until:
        spin(_LOOPS)
        done += 1
    return done


def handing_over_ns(seconds: float) -> int:
    """From one thread's letting go of the lock to the other's working.

    It is what is lost where two that never wait take turns, one turn each interval.
    """
    alone = turns(time.monotonic() + seconds)
    until = time.monotonic() + seconds
    with ThreadPoolExecutor(2) as pool:
        both = sum(job.result() for job in [pool.submit(turns, until) for _ in range(2)])
    return max(0, int(sys.getswitchinterval() * 1e9 * (1 - both / alone)))


def main() -> None:
    """Measure and predict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=4.0, help="of a turn")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--wait", type=float, default=1.0, help="of waiting, to one of work")
    options = parser.parse_args()
    begin = time.thread_time_ns()
    spin(_LOOPS * 100)
    per_loop = (time.thread_time_ns() - begin) / (_LOOPS * 100)
    loops = int(sys.getswitchinterval() * 1e9 / per_loop)
    how: dict[str, Any] = {"loops": loops, "wait_s": options.wait * loops * per_loop * 1e-9}
    cores = len(os.sched_getaffinity(0))
    for workers in options.workers:
        ratios: dict[str, list[float]] = {"threads": [], "processes": [], "one by the other": []}
        for turn in range(options.turns):
            seeds = {"seed": 1000 * turn, **how}
            alone = of_threads(1, options.seconds, **seeds)
            threads = of_threads(workers, options.seconds, **seeds)
            processes = of_processes(workers, options.seconds, **seeds)
            locked_ns = alone.work_ns // alone.requests
            whole_ns = int(options.seconds * 1e9) // alone.requests
            [row] = lock_throughput(
                locked_ns,
                0,
                max(0, whole_ns - locked_ns),
                num_cores=cores,
                workers=[workers],
                handing_over_ns=handing_over_ns(options.seconds / 4),
            ).rows
            by_threads = row.threads_low * options.seconds / threads.requests
            by_processes = row.processes_low * options.seconds / processes.requests
            ratios["threads"].append(by_threads - 1)
            ratios["processes"].append(by_processes - 1)
            ratios["one by the other"].append(by_threads / by_processes - 1)
        told = "; ".join(
            f"{kind} {statistics.median(found):+.1%} ({min(found):+.1%} to {max(found):+.1%})"
            for kind, found in ratios.items()
        )
        print(f"{workers} workers, predicted beside measured, median of {options.turns}: {told}")


if __name__ == "__main__":
    main()
