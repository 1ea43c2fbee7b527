"""`record`: a loop's own process writes its traces, or its script runs as ranks of a world."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, Self, overload

from foretrace.base import WorkloadError
from foretrace.capture import Recorder, stands_for_a_rank
from foretrace.capture import record as record_process
from foretrace.machine import Machine
from foretrace.world import run


class WorldRecorder:
    """Stands where a `Recorder` does, in a script that runs as ranks of a world."""

    is_done = False

    def __enter__(self) -> Self:
        return self

    def step(self) -> None:
        """Optimizers' steps are the steps of a world: nothing is left to say."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...


@overload
def record(folder: str | os.PathLike[str], *, world: None = None, **settings: Any) -> Recorder: ...


@overload
def record(
    folder: str | os.PathLike[str],
    *,
    world: int,
    device: str = ...,
    machine: Machine | None = ...,
    ranks: Iterable[int] | None = ...,
    steps: int = ...,
    warmup: int = ...,
) -> WorldRecorder: ...


def record(
    folder: str | os.PathLike[str], *, world: int | None = None, **settings: Any
) -> Recorder | WorldRecorder:
    """A recorder to put around a training loop.

    Without `world` it records this process, as `foretrace.capture.record` says. With it, the
    script that calls it is run as a few ranks of a world of so many, as `foretrace.run` does: this
    process runs them, says what came of it and ends; in theirs the loop goes on as it stands.

    Args:
        folder: for the traces.
        world: ranks of a world that is not there.
        settings: of `foretrace.capture.record`; with `world`, those of `foretrace.run` named
            device, machine, software, ranks, steps and warmup.

    Raises:
        SystemExit: with `world`, once the ranks have run.
        WorkloadError: if there is no script to run.

    Example:
        with foretrace.record("job/", world=1024, machine=machine) as recorder:
            for batch in loader:
                train_step(batch)
                recorder.step()
    """
    if world is None:
        return record_process(folder, **settings)
    if stands_for_a_rank():
        return WorldRecorder()
    script = Path(sys.argv[0])
    if not script.is_file():
        raise WorkloadError(
            f"record(world={world}) runs the script that calls it once for every role, and "
            f"{str(script)!r} is no file: call it in a script, or call foretrace.run"
        )
    found = run(script, sys.argv[1:], world=world, out=Path(folder), **settings)
    sys.stdout.write(f"{found}\n")
    raise SystemExit(0)
