"""Microbenchmarks of whatever device PyTorch has, as rows for tables of measurements.

Each shape runs a few times unmeasured, then as often as its share of the time allows; the median
counts. On a GPU a run is as many calls, one behind the other, as take some 50 us, timed by events
on its stream; else it is one call, timed by the clock around it. Shapes come in a shuffled order
that is always alike, so that a run that is cut short has seen a bit of everything.
`foretrace calibrate --table` reads what comes out.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit
from foretrace.base import NS_PER_MS, NS_PER_S, ModelError, written_beside
from foretrace.capture.job import require_torch
from foretrace.capture.workloads import FAMILIES, Device, Row, Shape, shapes

_NUM_WARMUP = 3
_SLEEP_CYCLES = 200_000  # about 0.1 ms, more than one call takes to launch
_MOST_CYCLES_PER_NS = 2  # no GPU's clock is faster by much
_RUN_NS, _MOST_CALLS = 50_000, 20  # events tell times in steps of 500 ns
_LEAST_RUNS, _MOST_RUNS = 3, 100
_SHAPE_NS = 50_000_000  # a shape is run for so long, if that is more than a few runs


def device_of(name: str | None = None) -> Device:
    """The device PyTorch has, or the one that is asked for.

    Args:
        name: "cuda" or "cpu"; None: a GPU where there is one.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        ModelError: if PyTorch has no such device.
    """
    require_torch()
    import torch  # on demand: an optional dependency

    kind = name or ("cuda" if torch.cuda.is_available() else "cpu")
    if kind == "cuda":
        if not torch.cuda.is_available():
            raise ModelError("PyTorch sees no GPU: leave out --device, or ask for cpu.")
        return Device("cuda", torch.cuda.get_device_name(), ("bf16", "fp16", "fp32"))
    if kind != "cpu":
        raise ModelError(f"device {kind!r} cannot be measured: ask for cuda or cpu.")
    return Device("cpu", f"CPU, {torch.get_num_threads()} threads", ("fp32", "bf16"))


def usable_cores() -> int:
    """Processor cores that this process may use; where the system does not tell, that there are."""
    affinity = getattr(os, "sched_getaffinity", None)  # of Linux alone
    return len(affinity(0)) if affinity is not None else os.cpu_count() or 1


def num_devices(device: Device) -> int:
    """How many of a device there are: GPUs, or processor cores that this process may use."""
    import torch  # on demand: an optional dependency

    return torch.cuda.device_count() if device.is_gpu else usable_cores()


def measured_rows(
    device: Device,
    *,
    families: Iterable[str] = FAMILIES,
    seconds: float = 60.0,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, list[Row]]:
    """Rows of each family, measured within about so many seconds.

    Args:
        device: of `device_of`.
        families: of `FAMILIES`.
        seconds: for all of them together, shared evenly.
        progress: called with the seconds that are over, and all of them.

    Raises:
        ModelError: for an unknown family, or no time.
    """
    wanted = tuple(families)
    unknown = [family for family in wanted if family not in FAMILIES]
    if unknown or seconds <= 0:
        raise ModelError(
            f"cannot measure {', '.join(unknown) or 'nothing'} in {seconds} s: families are "
            f"{', '.join(FAMILIES)}, and seconds are more than 0."
        )
    found: dict[str, list[Row]] = {family: [] for family in wanted}
    begun = time.perf_counter()
    for number, family in enumerate(wanted):
        until = begun + seconds * (number + 1) / len(wanted)
        for shape in shapes(family, device):
            found[family].append(_measured(shape, device, until=until))
            over = time.perf_counter()
            if progress is not None:
                progress(int(min(over - begun, seconds)), int(seconds))
            if over >= until:
                break
    return found


def _measured(shape: Shape, device: Device, *, until: float) -> Row:
    import torch  # on demand: an optional dependency

    left_ns = max(0.0, (until - time.perf_counter()) * NS_PER_S)
    budget_ns = min(_SHAPE_NS, left_ns)
    forward_ns = _within(budget_ns, shape.forward, device)
    row = {
        "gpu": device.name,
        **shape.labels,
        "time_ns": median(forward_ns),
        "time_ns_min": min(forward_ns),
        "time_ns_max": max(forward_ns),
        "n_meas": len(forward_ns),
        "framework": f"torch {torch.__version__}",
        "source": "foretrace measure",
    }
    if shape.backward is not None:
        row["bwd_time_ns"] = median(_within(budget_ns, shape.backward, device))
    return row


def median(times_ns: list[float]) -> float:
    """The middle of some times; the later of two."""
    ordered = sorted(times_ns)
    return ordered[len(ordered) // 2]


def times_ns(
    run: Callable[[], object],
    device: Device,
    *,
    num_runs: int,
    calls: int = 1,
    launch_ns: float = 0.0,
) -> list[float]:
    """Durations of a call in single runs, after some that are not measured, in ns.

    Args:
        run: what is called.
        device: where it works.
        num_runs: how many are measured.
        calls: of one run, one behind the other.
        launch_ns: what the host takes for a call; work in front lets it get ahead of a GPU.
    """
    for _ in range(_NUM_WARMUP):
        _run_ns(run, device, calls, launch_ns)
    return [_run_ns(run, device, calls, launch_ns) for _ in range(num_runs)]


def _within(budget_ns: float, run: Callable[[], object], device: Device) -> list[float]:
    """Durations of a call in as many runs as so much time is enough for."""
    _run_ns(run, device, 1, 0.0)
    launch_ns = _passed_ns(run) if device.is_gpu else 0.0
    once_ns = max(1.0, _run_ns(run, device, 1, launch_ns))
    calls = min(_MOST_CALLS, math.ceil(_RUN_NS / once_ns)) if device.is_gpu else 1
    passed_ns = _passed_ns(lambda: _run_ns(run, device, calls, launch_ns))
    num_runs = int(min(_MOST_RUNS, max(_LEAST_RUNS, budget_ns / passed_ns)))
    return times_ns(run, device, num_runs=num_runs, calls=calls, launch_ns=launch_ns)


def _run_ns(run: Callable[[], object], device: Device, calls: int, launch_ns: float) -> float:
    """How long a call of one run takes, in ns."""
    if not device.is_gpu:
        return _passed_ns(run, calls)
    import torch  # on demand: an optional dependency

    start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    end = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
    cycles = max(_SLEEP_CYCLES, round(_MOST_CYCLES_PER_NS * launch_ns * calls))
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # noqa: SLF001
    start.record()
    for _ in range(calls):
        run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) * NS_PER_MS / calls


def _passed_ns(run: Callable[[], object], calls: int = 1) -> float:
    """How long a call takes on the host's clock, in ns."""
    start = time.perf_counter_ns()
    for _ in range(calls):
        run()
    return (time.perf_counter_ns() - start) / calls


@dataclass(frozen=True)
class MeasuredTable(Plain):
    """One file of measurements."""

    family: str
    rows: int
    file: str


@dataclass(frozen=True, repr=False)
class MeasuredTables(Answer):
    """What was measured of a device, and where it stands."""

    note = "fit the cost models to it with: foretrace calibrate --table DIR"

    json_names: ClassVar = {"files": "tables"}

    device: str
    files: tuple[MeasuredTable, ...]

    @property
    def headline(self) -> str:
        """The device."""
        return self.device

    def parts(self) -> tuple[Told, ...]:
        """Every file."""
        columns = (
            Column("family", "measured"),
            Column("rows", unit=Unit.COUNT),
            Column("file", "table"),
        )
        return (Table.of("tables", self.files, *columns),)


def write_measured(found: Mapping[str, Sequence[Row]], device: str, folder: Path) -> MeasuredTables:
    """A Parquet file for every family that has rows, named after it and the device."""
    import polars as pl  # on demand: it takes longer to import than most commands take

    folder.mkdir(parents=True, exist_ok=True)
    label = re.sub(r"[^a-z0-9]+", "-", device.casefold()).strip("-")
    written = []
    for family, rows in found.items():
        if not rows:
            continue
        path = folder / f"{family}-{label}.parquet"
        with written_beside(path) as beside:
            pl.DataFrame(rows, infer_schema_length=None).write_parquet(beside)
        written.append(MeasuredTable(family, len(rows), str(path)))
    return MeasuredTables(device, tuple(written))
