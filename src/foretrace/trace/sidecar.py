"""`StepTimes`: what a recording knows beside its trace, a small JSON file per rank.

`foretrace.record` writes `rank0.steps.json` beside `rank0.kineto.json.gz`. It holds what no
trace can: how long a step takes when no profiler slows it.
"""

from __future__ import annotations

import re
from pathlib import Path
from statistics import median
from typing import Annotated, Literal, TypeAlias

import msgspec

from foretrace.base import TraceError
from foretrace.trace.columns import ProcessGroup

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Nanoseconds: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]

# Endings of trace files, taken off one after the other: `rank0.kineto.json.gz` -> `rank0`.
_ENDING = re.compile(r"\.(gz|json|kineto|trace|pt)$")


class StepTimes(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Step times of one rank, with and without the profiler, and what ran.

    A step runs from the return of one `recorder.step()` to the next call of it, on the host's
    clock. Step N is the one that the trace marks as `ProfilerStep#N`, counted from 0.
    """

    format: Literal["foretrace-steps-1"] = "foretrace-steps-1"
    rank: Count
    world_size: Annotated[int, msgspec.Meta(ge=1)]
    host_name: str
    torch_version: str
    backend: str | None  # of the default process group; None: a job of one process
    device_name: str
    process_groups: tuple[ProcessGroup, ...]  # those this rank is in, in order of creation
    requested_steps: Annotated[int, msgspec.Meta(ge=1)]
    execution_trace: Literal["after", "together"] | None  # "together" slowed the profiled steps
    first_profiled_step: Count  # N of the trace's first `ProfilerStep#N`
    profiled_at_ns: Nanoseconds  # start of that step, in ns since 1970
    profiled_step_ns: tuple[Nanoseconds, ...]  # whole steps in the trace
    first_unprofiled_step: Count
    unprofiled_step_ns: tuple[Nanoseconds, ...]  # before the profiler started
    # The same steps between device events on the current stream; empty where there is no device.
    unprofiled_device_step_ns: tuple[Nanoseconds, ...]
    unprofiled_after_step_ns: tuple[Nanoseconds, ...]  # once the trace was written
    num_named_collectives: Count  # gloo calls whose group and sequence were added to the trace

    @property
    def median_unprofiled_ns(self) -> int | None:
        """Median step time without the profiler, rounded down to ns; None if none was timed.

        Device times where there are any: a host that runs ahead of its device measures only
        itself. Steps from before and after the trace count alike on the host.
        """
        times_ns = self.unprofiled_device_step_ns or (
            self.unprofiled_step_ns + self.unprofiled_after_step_ns
        )
        return int(median(times_ns)) if times_ns else None


_STEP_TIMES = msgspec.json.Decoder(StepTimes)


def recognises(head: bytes) -> bool:
    """Whether a file that begins so holds step times."""
    return b'"foretrace-steps-' in head


def step_times_path(trace_path: Path) -> Path:
    """Where the step times of this trace would be: same folder, same name up to its endings."""
    stem = trace_path.name
    while shorter := _ENDING.sub("", stem):
        if shorter == stem:
            break
        stem = shorter
    return trace_path.with_name(f"{stem}.steps.json")


def step_times_beside(trace_path: Path) -> StepTimes | None:
    """Step times recorded with this trace; None where no such file lies beside it.

    Raises:
        TraceError: if the file is there and cannot be read as what it should be.
    """
    path = step_times_path(trace_path)
    if not path.is_file():
        return None
    try:
        return _STEP_TIMES.decode(path.read_bytes())
    except (msgspec.DecodeError, OSError) as error:
        raise TraceError(
            f"cannot read the step times of {trace_path.name!r}: {path}: {error}; "
            "record again, or delete this file to go on without them"
        ) from error


def write_step_times(times: StepTimes, path: Path) -> None:
    """Write `times` as indented JSON; the caller gives a path that may be half written."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(times), indent=1) + b"\n")
