"""`ray_workers`: chunks of a sweep on a Ray cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

from foretrace.base.errors import MissingExtraError
from foretrace.base.processes import Answered, WorkChunk, timed

_PATIENCE_S = 600.0  # that nothing may come back for before it is asked again


@contextmanager
def ray_workers(count: int) -> Iterator[RayWorkers]:
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

    def share(self, function: Callable[[Any], Any]) -> object:
        """In the cluster's store, once."""
        return self.ray.put(function)

    def start(self, shared: object, chunk: WorkChunk) -> None:
        """Hand a chunk over; what it shares is an argument, so that nodes fetch it once."""
        if self._task is None:
            self._task = self.ray.remote(max_retries=0)(timed)
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
