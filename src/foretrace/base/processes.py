"""`mapped`: work spread over workers, answered in order; all sweeps start theirs here.

Work is cut into chunks of about two seconds, whatever one piece takes. What a chunk finds is kept
by the number of its work, so that every answer comes once, also where a worker was killed and its
chunk is done again. The function, which holds what all pieces share, goes to a worker once: a
method of the same object is the same function.
"""

from __future__ import annotations

import pickle
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from functools import lru_cache
from hashlib import sha256
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol, TypeVar

from foretrace.base.errors import EngineError, MissingExtraError

_CHUNK_S = 2.0  # that a chunk should take: long beside handing it over, short beside a sweep
_LONGEST_GROWTH = 8  # times as many pieces in a chunk as in the one before
_BEHIND = 2  # chunks for each worker that are handed over at once
_MOST_LOSSES = 3  # of one chunk, whose workers ended before they answered
_PATIENCE_S = 600.0  # that Ray may be silent for before it is asked again

_Asked = TypeVar("_Asked")
_Found = TypeVar("_Found")


class SweepEngine(StrEnum):
    """Where workers run."""

    PROCESSES = "processes"  # of this machine
    RAY = "ray"  # of the cluster that Ray finds, or starts here


class Mapper(Protocol):
    """What `map` is, wherever the function runs."""

    def __call__(
        self, function: Callable[[_Asked], _Found], asked: Iterable[_Asked], /
    ) -> Iterator[_Found]:
        """What the function finds for each, in order."""


@contextmanager
def mapped(workers: int, engine: SweepEngine = SweepEngine.PROCESSES) -> Iterator[Mapper]:
    """A `map` over so many workers; one process does its work here.

    An interrupt is this process's to answer; others end what they are at.

    Args:
        workers: processes, or what a cluster does at once.
        engine: where they run.

    Raises:
        MissingExtraError: if Ray is asked for and not installed.
        EngineError: if workers end again and again before they answer.
    """
    if engine is SweepEngine.RAY:
        with _ray_workers(workers) as cluster:
            yield lambda function, asked: swept(cluster, function, asked)
    elif workers <= 1:
        yield _here
    else:
        with TemporaryDirectory(prefix="foretrace-") as folder:
            processes = ProcessWorkers(workers, Path(folder))
            try:
                yield lambda function, asked: swept(processes, function, asked)
            finally:
                processes.end()


def _here(function: Callable[[_Asked], _Found], asked: Iterable[_Asked], /) -> Iterator[_Found]:
    return map(function, asked)


def swept(
    workers: Workers, function: Callable[[_Asked], _Found], asked: Iterable[_Asked]
) -> Iterator[_Found]:
    """What a function finds for each, in order, each once.

    Raises:
        EngineError: if the workers of a chunk end again and again before they answer.
    """
    left, shared = deque(asked), workers.share(function)
    again: deque[WorkChunk] = deque()
    found: dict[int, _Found] = {}
    size, num_begun, num_out, told = 1, 0, 0, 0
    try:
        while left or again or num_out:
            while num_out < _BEHIND * workers.count and (again or left):
                chunk = again.popleft() if again else _cut(left, num_begun, size, workers.count)
                num_begun = max(num_begun, chunk.first + len(chunk.asked))
                workers.start(shared, chunk)
                num_out += 1
            for one in workers.answered():
                num_out -= 1
                if one.found is None:
                    again.append(_once_more(one.chunk))
                    continue
                found.update(enumerate(one.found, one.chunk.first))
                each_s = max(one.time_s / len(one.found), 1e-6)
                size = max(1, min(round(_CHUNK_S / each_s), len(one.found) * _LONGEST_GROWTH))
            while told in found:
                yield found.pop(told)
                told += 1
    finally:
        workers.forget()


def _cut(left: deque[Any], first: int, size: int, num_workers: int) -> WorkChunk:
    """The next chunk; the last ones are so small that all workers have one."""
    fair = -(-len(left) // (_BEHIND * num_workers))
    return WorkChunk(first, tuple(left.popleft() for _ in range(min(size, fair))))


def _once_more(chunk: WorkChunk) -> WorkChunk:
    if chunk.losses + 1 >= _MOST_LOSSES:
        raise EngineError(
            f"{_MOST_LOSSES} workers ended without an answer while they were at pieces "
            f"{chunk.first:,} to {chunk.first + len(chunk.asked) - 1:,} of the work: memory may "
            "have run out; take fewer workers"
        )
    return WorkChunk(chunk.first, chunk.asked, chunk.losses + 1)


def _timed(function: Callable[[Any], Any], asked: Sequence[Any]) -> tuple[tuple[Any, ...], float]:
    """What a function finds for each of a chunk, and the seconds of it; in a worker."""
    begin_s = time.monotonic()
    return tuple(function(one) for one in asked), time.monotonic() - begin_s


@dataclass(frozen=True)
class WorkChunk:
    """Consecutive pieces of work."""

    first: int  # number of the first piece
    asked: tuple[Any, ...]
    losses: int = 0


@dataclass(frozen=True)
class Answered:
    """What came of a chunk that was handed over."""

    chunk: WorkChunk
    found: tuple[Any, ...] | None  # `None`: its worker ended before it answered
    time_s: float = 0.0


class Workers(Protocol):
    """Processes that chunks can be handed to."""

    count: int

    def share(self, function: Callable[[Any], Any]) -> Any:
        """Put a function where workers find it; what `start` takes."""

    def start(self, shared: Any, chunk: WorkChunk) -> None:
        """Hand a chunk over."""

    def answered(self) -> list[Answered]:
        """Wait until something has come of a chunk."""

    def forget(self) -> None:
        """Nobody wants what is still out."""


@dataclass
class ProcessWorkers:
    """Processes of this machine; a new pool takes the place of one whose process was killed."""

    count: int
    folder: Path
    _out: dict[Future[tuple[tuple[Any, ...], float]], WorkChunk] = field(default_factory=dict)
    _pool: ProcessPoolExecutor | None = None
    _shared: dict[Callable[[Any], Any], Path] = field(default_factory=dict)

    def share(self, function: Callable[[Any], Any]) -> Path:
        """As a file, which every process reads once."""
        if function not in self._shared:
            written = pickle.dumps(function)
            path = self._shared[function] = self.folder / sha256(written).hexdigest()
            path.write_bytes(written)
        return self._shared[function]

    def start(self, shared: Path, chunk: WorkChunk) -> None:
        """Hand a chunk over."""
        if self._pool is None:
            # A fork would copy the locks that numba and polars hold.
            context = get_context("spawn")
            self._pool = ProcessPoolExecutor(self.count, context, initializer=_leave_interrupts)
        try:
            self._out[self._pool.submit(_timed_file, shared, chunk.asked)] = chunk
        except BrokenProcessPool:
            lost: Future[tuple[tuple[Any, ...], float]] = Future()
            lost.set_exception(BrokenProcessPool())
            self._out[lost] = chunk

    def answered(self) -> list[Answered]:
        """Wait until something has come of a chunk; what a killed process was at has no answer."""
        done, _ = wait(self._out, return_when=FIRST_COMPLETED)
        if any(isinstance(one.exception(), BrokenProcessPool) for one in done):
            wait(self._out)  # all that were out end with the pool
            done = set(self._out)
            self.end()
        found = []
        for future in done:
            chunk = self._out.pop(future)
            if isinstance(future.exception(), BrokenProcessPool):
                found.append(Answered(chunk, None))
            else:
                found.append(Answered(chunk, *future.result()))
        return found

    def forget(self) -> None:
        """Nobody wants what is still out."""
        for future in self._out:
            future.cancel()
        self._out.clear()

    def end(self) -> None:
        """End the processes."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


@lru_cache(maxsize=4)  # functions of one sweep that take turns
def _read(path: Path) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = pickle.loads(path.read_bytes())  # noqa: S301  written by us
    return function


def _timed_file(path: Path, asked: Sequence[Any]) -> tuple[tuple[Any, ...], float]:
    return _timed(_read(path), asked)


def _leave_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _ray_workers(count: int) -> Iterator[RayWorkers]:
    """Workers of the cluster that Ray finds (RAY_ADDRESS, or a running one), else of one here.

    Raises:
        MissingExtraError: if Ray is not installed.
    """
    try:
        ray = import_module("ray")  # an extra, loaded where it is asked for
    except ImportError:
        raise MissingExtraError(
            "--engine ray needs Ray: install it with pip install 'foretrace[ray]'"
        ) from None
    is_ours = not ray.is_initialized()
    if is_ours:
        ray.init(log_to_driver=False, include_dashboard=False)
    try:
        yield RayWorkers(ray, max(count, 1))
    finally:
        if is_ours:
            ray.shutdown()


@dataclass
class RayWorkers:
    """Tasks of a cluster; one whose worker was killed comes back without an answer."""

    ray: Any  # the module
    count: int
    _out: dict[Any, WorkChunk] = field(default_factory=dict)
    _task: Any = None
    _shared: dict[Callable[[Any], Any], object] = field(default_factory=dict)

    def share(self, function: Callable[[Any], Any]) -> object:
        """In the cluster's store, once."""
        if function not in self._shared:
            self._shared[function] = self.ray.put(function)
        return self._shared[function]

    def start(self, shared: object, chunk: WorkChunk) -> None:
        """Hand a chunk over; what it shares is an argument, so that nodes fetch it once."""
        if self._task is None:
            self._task = self.ray.remote(max_retries=0)(_timed)
        self._out[self._task.remote(shared, chunk.asked)] = chunk

    def answered(self) -> list[Answered]:
        """Wait until something has come of a chunk."""
        done: list[Any] = []
        while not done:
            done, _ = self.ray.wait(list(self._out), num_returns=1, timeout=_PATIENCE_S)
        return [self._answer(one) for one in done]

    def forget(self) -> None:
        """Nobody wants what is still out."""
        for task in self._out:
            self.ray.cancel(task)
        self._out.clear()

    def _answer(self, task: Any) -> Answered:
        chunk, exceptions = self._out.pop(task), self.ray.exceptions
        try:
            return Answered(chunk, *self.ray.get(task))
        except exceptions.RayTaskError as err:
            raise err.cause if isinstance(err.cause, Exception) else err from None
        except exceptions.RayError:  # its worker, its node or its answer is lost
            return Answered(chunk, None)
