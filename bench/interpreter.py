"""Python's lock: real threads and processes beside what the closed form says of them.

A request works in Python for a while and then waits without the lock, as for a device; times vary.
Prints requests in a second, measured and predicted, and their ratio.

    python bench/interpreter.py --workers 1 2 4 --seconds 4
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import threading
import time
from collections.abc import Callable

from foretrace.analyze.interpreter import lock_throughput

_LOOPS = 2_000


def spin(loops: int) -> None:
    """Work in Python."""
    total = 0
    for at in range(loops):
        total += at * at


def serve(until: float, *, loops: int, wait_s: float, counts: list[int] | None, seed: int) -> int:
    """Requests till then."""
    draw, done = random.Random(seed), 0
    while time.monotonic() < until:
        spin(int(draw.expovariate(1 / loops)))
        time.sleep(draw.expovariate(1 / wait_s))
        done += 1
    if counts is not None:
        counts.append(done)
    return done


def of_threads(workers: int, seconds: float, *, loops: int, wait_s: float) -> float:
    """Requests in a second of threads."""
    counts: list[int] = []
    until = time.monotonic() + seconds
    how = {"loops": loops, "wait_s": wait_s, "counts": counts}
    threads = [
        threading.Thread(target=serve, args=(until,), kwargs={**how, "seed": seed})
        for seed in range(workers)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return sum(counts) / seconds


def _process(job: tuple[float, int, float, int]) -> int:
    seconds, loops, wait_s, seed = job
    until = time.monotonic() + seconds
    return serve(until, loops=loops, wait_s=wait_s, counts=None, seed=seed)


def of_processes(workers: int, seconds: float, *, loops: int, wait_s: float) -> float:
    """Requests in a second of processes."""
    jobs = [(seconds, loops, wait_s, seed) for seed in range(workers)]
    with multiprocessing.Pool(workers) as pool:
        pool.map(time.sleep, [0.2] * workers, chunksize=1)
        return sum(pool.map(_process, jobs, chunksize=1)) / seconds


def alone_ns(once: Callable[[], object], times: int = 20) -> int:
    """The least time of some tries."""
    best = 2**62
    for _ in range(times):
        begin = time.perf_counter_ns()
        once()
        best = min(best, time.perf_counter_ns() - begin)
    return best


def main() -> None:
    """Measure and predict."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument("--wait", type=float, default=1.0, help="of waiting, to one of work")
    options = parser.parse_args()
    per_loop = alone_ns(lambda: spin(_LOOPS * 50)) / (_LOOPS * 50)
    loops = int(5e6 / per_loop)  # 5 ms: the interval after which the interpreter lets go
    wait_s = options.wait * loops * per_loop * 1e-9
    extra = alone_ns(lambda: time.sleep(1e-4)) * 1e-9 - 1e-4
    locked, waiting = int(loops * per_loop), int((wait_s + extra) * 1e9)
    cores = multiprocessing.cpu_count()
    found = lock_throughput(locked, 0, waiting, num_cores=cores, workers=options.workers)
    for row in found.rows:
        how = {"loops": loops, "wait_s": wait_s}
        threads = of_threads(row.num_workers, options.seconds, **how)
        processes = of_processes(row.num_workers, options.seconds, **how)
        print(
            f"{row.num_workers} workers: threads {threads:.1f}/s, predicted {row.threads_low:.1f} "
            f"({row.threads_low / threads - 1:+.1%}), at most {row.threads_high:.1f}; processes "
            f"{processes:.1f}/s, predicted {row.processes:.1f} "
            f"({row.processes / processes - 1:+.1%})"
        )


if __name__ == "__main__":
    main()
