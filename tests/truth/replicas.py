"""Files of many ranks, fast, for benchmarks.

`write_replicas` makes large files that are no job: every file holds rank 0's events, and repeats of
them. Only the rank, the process id and the clock (`baseTimeNanoseconds`) differ, so nothing may be
concluded from these files but how long they take to read.

`write_widened` makes a job of more data-parallel ranks than were laid out: later replicas do what
the first ones do, at the same moments, in groups that hold all of them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path

from tests.truth.job import Job, process_id
from tests.truth.kineto import BASE_TIME_NS, Renderer, head, tail, text
from tests.truth.structure import Group

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


_LISTED_RANKS = 30  # of a group on an event: Kineto writes "..." for the others


def write_widened(job: Job, folder: Path, *, num_ranks: int) -> tuple[Path, ...]:
    """Write `job` with more data-parallel ranks, `num_ranks` in all; returns the files' paths.

    Takes time in proportion to what is written. Headers list all ranks of a group, events the first
    thirty, as Kineto does.

    Raises:
        ValueError: if the job has pipeline stages or its replicas do not divide `num_ranks`.
    """
    if job.config.pp > 1 or num_ranks % job.num_ranks:
        raise ValueError(f"{num_ranks} ranks are no whole number of {job.num_ranks} without stages")
    folder.mkdir(parents=True, exist_ok=True)
    texts = [_Widened(job, rank, num_ranks) for rank in range(job.num_ranks)]
    paths = []
    for rank in range(num_ranks):
        path = folder / f"rank{rank}.json.gz"
        content = texts[rank % job.num_ranks].text(rank).encode()
        path.write_bytes(gzip.compress(content, compresslevel=1))
        paths.append(path)
    return tuple(paths)


class _Widened:
    """One rank's file, with the places at which its copies differ."""

    def __init__(self, job: Job, rank: int, num_ranks: int) -> None:
        self.rank, self.num_ranks, self.old_num_ranks = rank, num_ranks, job.num_ranks
        self.groups = job.structure.ranks[rank].groups
        content = text(job, rank)
        for number, group in enumerate(self.groups):
            ranks = list(group.ranks)
            content = (
                content.replace(f'"pg_name": "{group.name}"', f'"pg_name": "\0name{number}\0"')
                .replace(f'Group Name": "{group.name}"', f'Group Name": "\0name{number}\0"')
                .replace(f'"pg_size": {len(ranks)}, "ranks": {ranks}', f"\0ranks{number}\0")
                .replace(f'"Process Group Ranks": "{ranks}"', f"\0listed{number}\0")
                .replace(f'"Group size": {len(ranks)},', f'"Group size": \0size{len(ranks)}\0,')
            )
        content = content.replace(f'"rank": {rank}, "world_size": {job.num_ranks}', "\0rank\0")
        content = content.replace(str(process_id(rank)), "\0pid\0")
        self.pieces = content.split("\0")

    def text(self, rank: int) -> str:
        """The file of a rank that is a copy of this one."""
        values = {
            "rank": f'"rank": {rank}, "world_size": {self.num_ranks}',
            "pid": str(process_id(rank)),
        }
        for number, group in enumerate(self.groups):
            ranks = self._ranks(group, rank)
            listed = [*map(str, ranks[:_LISTED_RANKS]), *["..."][: len(ranks) > _LISTED_RANKS]]
            values[f"name{number}"] = self._name(group, rank)
            values[f"ranks{number}"] = f'"pg_size": {len(ranks)}, "ranks": {list(ranks)}'
            values[f"listed{number}"] = f'"Process Group Ranks": "[{", ".join(listed)}]"'
            values[f"size{len(group.ranks)}"] = str(len(ranks))
        return "".join(
            values[piece] if place % 2 else piece for place, piece in enumerate(self.pieces)
        )

    def _ranks(self, group: Group, rank: int) -> range:
        first, stride = group.ranks[0], group.ranks[1] - group.ranks[0]
        if group.link == "tp":
            first += rank - self.rank
            return range(first, first + len(group.ranks))
        return range(first, self.num_ranks, stride)

    def _name(self, group: Group, rank: int) -> str:
        is_own = group.link == "tp" and rank != self.rank
        return f"{group.name}.{rank // self.old_num_ranks}" if is_own else group.name
