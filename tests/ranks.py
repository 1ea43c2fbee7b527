"""Jobs of a few processes with PyTorch: copies of one that has imported it, which takes seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from typing import Any

PATIENCE_S = 120

_copies = get_context("forkserver")
# No more than this: of a process that has imported `torch._dynamo` one copy in some twenty hangs.
_copies.set_forkserver_preload(["torch"])


def started(main: Callable[..., None], *arguments: Any) -> BaseProcess:
    """A process that runs `main(*arguments)`."""
    process = _copies.Process(target=main, args=arguments)
    process.start()
    return process


class CopiedProcess:
    """In the place of a `Popen`, one that runs `main(*arguments)` and need not import PyTorch."""

    stdin = None

    def __init__(self, main: Callable[..., None], *arguments: Any) -> None:
        self._process = started(main, *arguments)

    def poll(self) -> int | None:
        """Its exit code, once it has ended."""
        return self._process.exitcode

    def kill(self) -> None:
        """End it."""
        self._process.kill()

    def wait(self) -> None:
        """Until it has ended."""
        self._process.join()


@contextmanager
def running(main: Callable[..., None], *arguments: Any, num_ranks: int = 2) -> Iterator[None]:
    """Within, processes run `main(rank, *arguments)`; afterwards all have ended well."""
    ranks = [started(main, rank, *arguments) for rank in range(num_ranks)]
    try:
        yield
        for one in ranks:
            one.join(PATIENCE_S)
        assert [one.exitcode for one in ranks] == [0] * num_ranks
    finally:
        for one in ranks:
            one.kill()
            one.join()
            one.close()


def run(main: Callable[..., None], *arguments: Any, num_ranks: int = 2) -> None:
    """Processes run `main(rank, *arguments)` and end well."""
    with running(main, *arguments, num_ranks=num_ranks):
        pass
