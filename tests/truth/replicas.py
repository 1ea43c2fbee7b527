"""Many large files, fast, for ingestion benchmarks.

Not a job: every file holds rank 0's events, and repeats of them. Only the rank, the process id
and the clock (`baseTimeNanoseconds`) differ, so nothing may be concluded from these files but how
long they take to read.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from tests.truth.job import Job, process_id
from tests.truth.kineto import BASE_TIME_NS, Renderer, head, tail

_OFFSET_STEP_NS = 1_000_003  # between the clocks of neighbouring ranks
_SHIFT_ID = 10_000_000  # correlations and external ids of one repeat to the next


def _body(job: Job, min_bytes: int) -> str:
    """Rank 0's events, repeated later and later until they fill the size."""
    span_ns = int(job.times.end_ns.max()) + 1_000_000
    parts: list[str] = []
    num_bytes, index = 0, 0
    while num_bytes < min_bytes or index == 0:
        repeat = Renderer(
            job,
            0,
            shift_ns=index * span_ns,
            shift_id=index * _SHIFT_ID,
            shift_step=index * job.config.num_steps,
        )
        part = ",\n".join(repeat.events())
        parts.append(part)
        num_bytes += len(part) + 2
        index += 1
    return ",\n".join(parts)


def _heads(job: Job, num_ranks: int) -> Iterator[str]:
    """Each rank's head: rank, world size, and a clock that differs."""
    distributed = {"backend": "nccl", "rank": 0, "world_size": job.num_ranks}
    first = head(job, 0)
    begin = json.dumps(distributed)[:-1]
    for rank in range(num_ranks):
        own = json.dumps({**distributed, "rank": rank, "world_size": num_ranks})[:-1]
        base = f'"baseTimeNanoseconds": {BASE_TIME_NS + rank * _OFFSET_STEP_NS}'
        yield first.replace(begin, own).replace(f'"baseTimeNanoseconds": {BASE_TIME_NS}', base)


def write_replicas(
    job: Job, folder: Path, *, num_ranks: int, min_bytes: int = 0, compress: bool = True
) -> tuple[Path, ...]:
    """Write `num_ranks` files of at least `min_bytes` of JSON each; returns their paths.

    Every file is rank 0 of `job` with another rank, process id and clock: for measuring how fast
    files are read, and for nothing else. The job must write nanoseconds.

    Raises:
        ValueError: if the job's files have whole microseconds: their clock is in every timestamp.
    """
    if job.config.style.whole_microseconds:
        raise ValueError("replicas differ by baseTimeNanoseconds, which this style does not write")
    folder.mkdir(parents=True, exist_ok=True)
    body = _body(job, min_bytes).encode()
    own = f'"pid": {process_id(0)}'.encode()
    paths = []
    for rank, start in enumerate(_heads(job, num_ranks)):
        events = body.replace(own, f'"pid": {process_id(rank)}'.encode())
        content = start.encode() + events + tail(rank).encode()
        path = folder / f"rank{rank}.json{'.gz' if compress else ''}"
        path.write_bytes(gzip.compress(content, compresslevel=1) if compress else content)
        paths.append(path)
    return tuple(paths)
