"""`record`: the few lines in a training loop that leave complete traces of every rank.

The loop runs; `Recorder.step` ends each of its steps. First some steps warm up, then some are
timed without the profiler, then the profiler settles, then the recorded steps come, and their
trace is written. One more step gives the execution trace. What follows is timed again, without
the profiler.

A folder that cannot hold the files is refused before the loop. Once it runs nothing is raised into
it: what goes wrong is a warning, what was recorded until then is written, and training goes on.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

from msgspec.structs import replace

from foretrace.base import NS_PER_MS, written_beside
from foretrace.capture import files
from foretrace.capture.gloo import flight_entries
from foretrace.capture.job import JobFacts, job_facts, rank_and_world_size, require_torch
from foretrace.capture.profiler import Detail, ExecutionTracer, Profiler
from foretrace.capture.schedule import ProfilerSchedule
from foretrace.trace import StepTimes, step_times_path, write_step_times

if TYPE_CHECKING:
    from torch.cuda import Event

# The first step after the files are written waits for ranks that still write theirs.
_NUM_STEPS_AFTER_WRITING = 1

ExecutionTraceWindow: TypeAlias = Literal["after", "together"]


class StepClock:
    """Times steps on the host and, where there is a device, between events on its stream.

    Nothing is synchronised: a host that waits for its device after every step loses the lead
    that hides its launches, and the step grows. An event costs one small call instead, and is
    read only when everything is over.
    """

    def __init__(self) -> None:
        self._began_ns = 0
        self._host_ns: dict[int, int] = {}  # step -> duration
        self._began_at_ns: dict[int, int] = {}  # step -> start, ns since 1970
        self._boundaries: dict[int, Event] = {}  # step -> device event at its start

    def begin(self, step: int, *, marks_device: bool) -> None:
        """A step starts now."""
        if marks_device:
            self._mark_device(step)
        self._began_at_ns[step] = time.time_ns()
        self._began_ns = time.perf_counter_ns()

    def end(self, step: int) -> None:
        """The step that began last ends now."""
        self._host_ns[step] = time.perf_counter_ns() - self._began_ns

    def began_at_ns(self, step: int) -> int:
        """When the step started, in ns since 1970."""
        return self._began_at_ns[step]

    def host_ns(self, steps: range) -> tuple[int, ...]:
        """Durations on the host of those of these steps that have ended."""
        return tuple(self._host_ns[step] for step in steps if step in self._host_ns)

    def device_ns(self, steps: range) -> tuple[int, ...]:
        """Durations between device events of those of these steps that have both, in ns.

        Waits for the device to reach the last of them. The device's clock counts in steps of
        0.5 us (CUDA runtime, `cudaEventElapsedTime`).
        """
        pairs = [
            (self._boundaries[step], self._boundaries[step + 1])
            for step in steps
            if step in self._boundaries and step + 1 in self._boundaries
        ]
        if not pairs:
            return ()
        pairs[-1][1].synchronize()
        return tuple(round(start.elapsed_time(end) * NS_PER_MS) for start, end in pairs)

    def _mark_device(self, step: int) -> None:
        import torch  # torch is optional

        if not torch.cuda.is_available():
            return
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        self._boundaries[step] = event


def record(
    folder: str | os.PathLike[str],
    *,
    steps: int = 3,
    warmup: int = 2,
    unprofiled: int = 5,
    ranks: Iterable[int] | None = None,
    execution_trace: ExecutionTraceWindow | None = "after",
    stacks: bool = False,
    memory: bool = False,
) -> Recorder:
    """A recorder for this process, to put around its training loop.

    Every rank runs the same lines, and each writes its own files into the folder:
    `rank0.kineto.json.gz` (with shapes, synchronisation events and collective metadata),
    `rank0.et.json.gz` (the execution trace) and `rank0.steps.json` (step times with and
    without the profiler).

    Args:
        folder: made if missing; files of an earlier recording are replaced.
        steps: steps to profile.
        warmup: steps to leave alone first, while allocators and caches fill.
        unprofiled: steps to time without the profiler; 0 leaves that out.
        ranks: ranks to record; the others run as if nothing was there. None: all of them.
        execution_trace: "after" gives it one step of its own, right after the profiled ones:
            recording it slows a step far more than the profiler does. "together" records it
            over the profiled steps, so that `rf_id` there is `Record function id` in the
            profiler's trace, whose times it spoils. None leaves it out.
        stacks: whether to record Python stacks; the files grow several times larger.
        memory: whether to record every allocation.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        ValueError: if a number of steps makes no sense, or a rank is not in the job.
        RuntimeError: if torchrun started this process and it has no process group yet.

    Example:
        with foretrace.record("traces/", steps=3) as recorder:
            for batch in loader:
                train_step(batch)
                recorder.step()
    """
    if execution_trace not in {"after", "together", None}:
        raise ValueError(
            f"execution_trace must be 'after', 'together' or None, got {execution_trace!r}"
        )
    schedule = ProfilerSchedule(
        warmup=warmup,
        unprofiled=unprofiled,
        steps=steps,
        traced=1 if execution_trace == "after" else 0,
    )
    require_torch()
    rank, world_size = rank_and_world_size()
    return Recorder(
        Path(folder),
        schedule,
        Detail(stacks=stacks, memory=memory),
        execution_trace=execution_trace,
        rank=rank,
        world_size=world_size,
        is_recorded=rank in _chosen(ranks, world_size),
    )


def _chosen(ranks: Iterable[int] | None, world_size: int) -> frozenset[int]:
    if ranks is None:
        return frozenset(range(world_size))
    chosen = frozenset(ranks)
    unknown = sorted(rank for rank in chosen if not 0 <= rank < world_size)
    if unknown or not chosen:
        found = f"got {unknown[:5]}" if unknown else "got none"
        raise ValueError(f"ranks must name some of this job's ranks 0..{world_size - 1}, {found}")
    return chosen


class Recorder:
    """Counts the steps of one process' loop and records some of them; made by `record`."""

    def __init__(
        self,
        folder: Path,
        schedule: ProfilerSchedule,
        detail: Detail,
        *,
        execution_trace: ExecutionTraceWindow | None,
        rank: int,
        world_size: int,
        is_recorded: bool,
    ) -> None:
        self.folder = folder
        self.schedule = schedule
        self._detail = detail
        self._execution_trace = execution_trace
        self._rank = rank
        self._world_size = world_size
        self._is_recorded = is_recorded
        self._is_open = False
        self._step = 0  # the step that runs now
        self._clock = StepClock()
        self._cleanup = ExitStack()  # removes raw files
        self._profiler: Profiler | None = None  # set until the trace is written
        self._tracer: ExecutionTracer | None = None  # set until the execution trace is written
        self._times: StepTimes | None = None  # set once the trace is written

    @property
    def is_done(self) -> bool:
        """Whether everything is recorded; the loop may stop, or go on as it likes."""
        return self._step >= self.schedule.num_needed

    def __enter__(self) -> Self:
        if self._is_open or self._step:
            raise RuntimeError("this recorder was used already; call foretrace.record() again")
        if self._is_recorded:
            files.require_usable(self.folder, self._world_size)
            self._guarded(self._open)
        self._is_open = True
        self._begin_step()
        return self

    def step(self) -> None:
        """Say that one step of the loop has ended and the next begins.

        Whatever goes wrong is a warning: the step is not recorded, and the loop goes on.
        """
        if not self._is_open:
            warnings.warn(
                "recorder.step() was called outside of its block, which records nothing; "
                "write: with foretrace.record(...) as recorder:",
                stacklevel=2,
            )
            return
        if self._is_recorded and self._step < self._after.stop:
            self._clock.end(self._step)
            self._step += 1
            self._guarded(self._advance)
        else:
            self._step += 1
        self._guarded(self._begin_step)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_open = False
        self._guarded(self._end)
        self._guarded(self._cleanup.close)
        missing = "" if self.is_done or not self._is_recorded else self._missing()
        if missing and error is None:
            what = "nothing was recorded" if self._times is None else "the recording is incomplete"
            warnings.warn(f"{what} on {missing}", stacklevel=2)

    def _guarded(self, action: Callable[[], None]) -> None:
        """Do something; if that fails, warn, let go of everything and record no more."""
        try:
            action()
        except Exception as error:  # noqa: BLE001  PyTorch raises anything; training must go on
            self._is_recorded = False
            for end in self._ends():
                with suppress(Exception):
                    end()
            self._profiler = self._tracer = None
            warnings.warn(
                f"rank {self._rank} records no more in {str(self.folder)!r}: {error}; "
                "the loop goes on",
                stacklevel=3,
            )

    def _ends(self) -> Iterator[Callable[[], None]]:
        """What frees the process' profiler, its place for an observer, and raw files."""
        if self._profiler is not None:
            yield self._profiler.stop
        if self._tracer is not None:
            yield self._tracer.close
        yield self._cleanup.close

    @property
    def _after(self) -> range:
        """Steps to time once the files are written."""
        first = self.schedule.num_needed + _NUM_STEPS_AFTER_WRITING
        return range(first, first + self.schedule.unprofiled)

    def _open(self) -> None:
        if self._execution_trace is not None:
            raw = self._cleanup.enter_context(files.raw_file(self.folder, f"rank{self._rank}.et"))
            self._tracer = ExecutionTracer(raw)
        together = self._tracer if self._execution_trace == "together" else None
        self._profiler = Profiler(self.schedule, self._detail, together)
        self._profiler.begin()

    def _advance(self) -> None:
        """Do what is due between the step that ended and the one that begins."""
        if self._profiler is not None:
            self._profiler.step(self._step)
            if self._step == self.schedule.traced_from:
                self._write(self._profiler, unfinished_step=None)
                if self._tracer is not None:
                    self._tracer.open()
                    self._tracer.start()
        elif self._tracer is not None:
            self._write_execution_trace(self._tracer)
        elif self._times is not None and self._step == self._after.stop:
            self._write_steps_after(self._times)

    def _begin_step(self) -> None:
        if not self._is_recorded or self._step >= self._after.stop:
            return
        marks_device = self.schedule.unprofiled_from <= self._step <= self.schedule.settling_from
        self._clock.begin(self._step, marks_device=marks_device)

    def _end(self) -> None:
        """The loop is over: keep what is whole."""
        if self._profiler is not None:
            if self._step > self.schedule.profiled_from:
                self._write(self._profiler, unfinished_step=self._step)
            else:
                self._profiler.stop()
        elif self._times is not None:
            self._write_steps_after(self._times)
        if self._tracer is not None:
            self._tracer.close()

    def _missing(self) -> str:
        schedule = self.schedule
        num_profiled = min(max(self._step - schedule.profiled_from, 0), schedule.steps)
        return (
            f"rank {self._rank}: the loop ended after {self._step} of {schedule.num_needed} steps "
            f"({schedule.warmup} warm-up, {schedule.unprofiled} unprofiled, "
            f"{schedule.profiled_from - schedule.settling_from} settling, {schedule.steps} "
            f"profiled, {schedule.traced} for the execution trace), so {num_profiled} were "
            "profiled; run it longer, call recorder.step() after every step, or ask for less"
        )

    def _write(self, profiler: Profiler, *, unfinished_step: int | None) -> None:
        """Write the trace and the step times, each whole or not at all."""
        entries = flight_entries()
        self._profiler = None
        profiler.stop()
        facts = job_facts()
        if self._tracer is not None and self._execution_trace == "together":
            self._write_execution_trace(self._tracer)
        with files.raw_file(self.folder, f"rank{self._rank}.kineto") as raw:
            profiler.write_kineto(raw)
            num_named = files.write_completed(
                raw,
                files.kineto_path(self.folder, self._rank),
                entries=entries,
                groups=facts.process_groups,
                unfinished_step=unfinished_step,
            )
        self._times = self._step_times(facts, num_named)
        self._write_times(self._times)

    def _write_execution_trace(self, tracer: ExecutionTracer) -> None:
        self._tracer = None
        tracer.close()
        files.write_compressed(tracer.path, files.execution_trace_path(self.folder, self._rank))
        self._cleanup.close()

    def _write_times(self, times: StepTimes) -> None:
        with written_beside(step_times_path(files.kineto_path(self.folder, self._rank))) as beside:
            write_step_times(times, beside)

    def _write_steps_after(self, times: StepTimes) -> None:
        """Write the step times again, with the steps that ran after the files were written."""
        after_ns = self._clock.host_ns(self._after)
        if after_ns != times.unprofiled_after_step_ns:
            self._times = replace(times, unprofiled_after_step_ns=after_ns)
            self._write_times(self._times)

    def _step_times(self, facts: JobFacts, num_named: int) -> StepTimes:
        schedule = self.schedule
        unprofiled = range(schedule.unprofiled_from, schedule.settling_from)
        profiled = range(schedule.profiled_from, schedule.traced_from)
        return StepTimes(
            rank=self._rank,
            world_size=self._world_size,
            host_name=facts.host_name,
            torch_version=facts.torch_version,
            backend=facts.backend,
            device_name=facts.device_name,
            process_groups=facts.process_groups,
            requested_steps=schedule.steps,
            execution_trace=self._execution_trace,
            first_profiled_step=schedule.profiled_from,
            profiled_at_ns=self._clock.began_at_ns(schedule.profiled_from),
            profiled_step_ns=self._clock.host_ns(profiled),
            first_unprofiled_step=schedule.unprofiled_from,
            unprofiled_step_ns=self._clock.host_ns(unprofiled),
            unprofiled_device_step_ns=self._clock.device_ns(unprofiled),
            unprofiled_after_step_ns=(),
            num_named_collectives=num_named,
        )
