"""Runs of a live test, kept in a folder so that predictions can be made of them again.

| in the folder | what it holds |
|---|---|
| `host.json` | the machine: how processes share it, how long collectives take |
| `base/` | the recording that everything is predicted from |
| `runs.json` | all timed steps, run by run |
| `recordings/NAME/` | a recording of each configuration, of its first run: components only |
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from foretrace.base import ModelError, write_whole
from foretrace.capture import Device, TrainingSettings, device_of, num_devices, trained
from foretrace.validate.live.configurations import BASE, CONFIGURATIONS, Configuration
from foretrace.validate.live.host import described_host, write_host

BASE_NAME = "base"
_HOST_SECONDS = 45.0
_SEED = 0  # of the order in each round
_PROFILED_BASE, _PROFILED = 12, 3  # steps

Progress = Callable[[str, int, int], None]


class LiveRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of one configuration."""

    name: str
    round: int
    step_ns: tuple[int, ...]  # of the job, not profiled


class Runs(msgspec.Struct, frozen=True, kw_only=True):
    """All that was run."""

    device: Device  # of each rank
    num_devices: int  # GPUs; of a CPU, processor cores
    runs: tuple[LiveRun, ...] = ()


@dataclass(frozen=True)
class LivePaths:
    """Where a live test keeps what."""

    folder: Path

    @property
    def host(self) -> Path:
        """The machine."""
        return self.folder / "host.json"

    @property
    def base(self) -> Path:
        """The recording that is predicted from."""
        return self.folder / BASE_NAME

    @property
    def runs(self) -> Path:
        """Timed steps."""
        return self.folder / "runs.json"

    def recording(self, name: str) -> Path:
        """A configuration's own recording."""
        return self.folder / "recordings" / name


def runnable(settings: TrainingSettings, num_devices: int) -> bool:
    """Whether there is a device for each rank; processor cores are shared."""
    return settings.device == "cpu" or settings.num_ranks <= num_devices


def measure_live(
    folder: Path,
    *,
    device: Device | None = None,
    rounds: int = 5,
    steps: int = 12,
    seconds: float | None = None,
    configurations: Sequence[Configuration] = CONFIGURATIONS,
    progress: Progress | None = None,
) -> None:
    """Describe the machine, record the base, then time every configuration in turns.

    Every round runs all of them once, the base too, in another order, so that a machine that
    grows slower does so for all. What has been run is in the folder after every run; a test that
    was interrupted goes on with what is missing.

    Args:
        folder: to keep everything in; made if missing.
        device: of the ranks; a GPU where there is one, else the CPU, if left out.
        rounds: repetitions of each configuration.
        steps: timed in each run.
        seconds: no round begins later than this; None: all rounds are run.
        configurations: to run.
        progress: called with what is done, how much of it is over, and all of it.

    Raises:
        ModelError: if the folder holds runs on another device, if there are too few GPUs for the
            base, or if a run fails.
    """
    begun = time.monotonic()
    paths, tell = LivePaths(folder), progress or (lambda *_: None)
    chosen = device or device_of()
    todo = {BASE_NAME: BASE} | {one.name: one.settings for one in configurations}
    there = {name: replace(each, device=chosen.kind) for name, each in todo.items()}
    count = num_devices(chosen)
    ready = [(name, each) for name, each in there.items() if runnable(each, count)]
    if not runnable(there[BASE_NAME], count):
        raise ModelError(
            f"the base of a live test needs {BASE.num_ranks} GPUs, and there are {count}: "
            "run it with --device cpu"
        )
    runs = _prepared(paths, chosen, [each for _, each in ready], steps=steps, progress=tell)
    order = random.Random(_SEED)  # noqa: S311 - an order, no secret
    for number in range(rounds):
        if seconds is not None and number and time.monotonic() - begun > seconds:
            break
        over = {run.name for run in runs.runs if run.round == number}
        for done, (name, settings) in enumerate(order.sample(ready, len(ready))):
            if name in over:
                continue
            tell(f"round {number + 1} of {rounds}: {name}", done, len(ready))
            recording = paths.recording(name) if number == 0 and name != BASE_NAME else None
            found = trained(settings, steps=steps, recording=recording, profiled=_PROFILED)
            run = LiveRun(name=name, round=number, step_ns=found.step_ns)
            runs = msgspec.structs.replace(runs, runs=(*runs.runs, run))
            _write_runs(runs, paths)


def _prepared(
    paths: LivePaths,
    device: Device,
    ready: Sequence[TrainingSettings],
    *,
    steps: int,
    progress: Progress,
) -> Runs:
    """The runs so far; of a new test none, with the machine described and the base recorded."""
    if paths.runs.exists():
        runs = read_live_runs(paths.folder)
        if runs.device != device:
            raise ModelError(
                f"{str(paths.folder)!r} holds runs on {runs.device.name!r}, and this is "
                f"{device.name!r}: choose another folder"
            )
        return runs
    paths.folder.mkdir(parents=True, exist_ok=True)
    counts = sorted({each.num_ranks for each in ready} - {1})
    host = described_host(device, counts, seconds=_HOST_SECONDS, progress=progress)
    write_host(host, paths.host)
    progress("recording the base", 0, 1)
    trained(
        ready[0],
        steps=steps,
        recording=paths.base,
        profiled=_PROFILED_BASE,
        unprofiled=steps,
    )
    runs = Runs(device=device, num_devices=num_devices(device))
    _write_runs(runs, paths)
    return runs


def _write_runs(runs: Runs, paths: LivePaths) -> None:
    write_whole(paths.runs, msgspec.json.encode(runs))


def read_live_runs(folder: Path) -> Runs:
    """The runs that a folder holds.

    Raises:
        ModelError: if it holds none.
    """
    path = LivePaths(folder).runs
    try:
        return msgspec.json.decode(path.read_bytes(), type=Runs)
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelError(
            f"no runs of a live test in {str(folder)!r} ({error}): make them with "
            f"`foretrace validate live --out {folder}`"
        ) from error
