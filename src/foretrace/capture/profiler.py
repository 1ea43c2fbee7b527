"""PyTorch's two recorders: the profiler (Kineto) and the execution trace."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.capture.schedule import NUM_SETTLING_STEPS, ProfilerSchedule

if TYPE_CHECKING:
    from torch._C._profiler import _ExperimentalConfig
    from torch.autograd.profiler import record_function
    from torch.profiler import ExecutionTraceObserver, profile


@dataclass(frozen=True)
class Detail:
    """What the profiler records beyond operators, their shapes and the device's work."""

    stacks: bool
    memory: bool


class Profiler:
    """Follows the loop step by step; on between a schedule's settling and its last step.

    The marks in the trace, `ProfilerStep#N`, carry the loop's own step number.
    """

    def __init__(
        self, schedule: ProfilerSchedule, detail: Detail, tracer: ExecutionTracer | None = None
    ) -> None:
        self._schedule = schedule
        self._tracer = tracer  # records the same steps; None: it does not, or not with these
        self._profile = _profile(schedule, detail, tracer)
        self._collections = CollectionMarks()

    def begin(self) -> None:
        """Begin step 0.

        Raises:
            RuntimeError: if another profiler is on.
        """
        require_no_other_profiler()
        if self._schedule.settling_from == 0:
            self._before_settling()
        self._profile.start()
        self._collections.begin()

    def step(self, next_step: int) -> None:
        """End one step and begin `next_step`; the profiler goes on and off by itself.

        Raises:
            RuntimeError: if another profiler is on when this one has to start.
        """
        if next_step == self._schedule.settling_from:
            self._before_settling()
        self._profile.step()

    def stop(self) -> None:
        """End everything; what was recorded stays to be written."""
        self._collections.end()
        self._profile.stop()
        if self._tracer is not None:
            self._tracer.close()

    def write_kineto(self, path: Path) -> None:
        """Write the trace as plain JSON."""
        self._profile.export_chrome_trace(str(path))

    def _before_settling(self) -> None:
        require_no_other_profiler()
        if self._tracer is not None:
            self._tracer.open()


class CollectionMarks:
    """Marks Python's garbage collections in the trace: `Python GC, generation 2`.

    PyTorch's own marks of them come with Python stacks alone (torch 2.13), which slow a step down.
    """

    def __init__(self) -> None:
        self._open: record_function | None = None

    def begin(self) -> None:
        """Mark collections from now on."""
        gc.callbacks.append(self._mark)

    def end(self) -> None:
        """Mark no more."""
        if self._mark in gc.callbacks:
            gc.callbacks.remove(self._mark)

    def _mark(self, phase: str, info: dict[str, int]) -> None:
        # No public name says whether a profiler is on (torch 2.13).
        from torch._C._autograd import _profiler_enabled  # torch is optional
        from torch.autograd.profiler import record_function  # torch is optional

        if phase == "start" and _profiler_enabled():
            self._open = record_function(f"Python GC, generation {info['generation']}")
            self._open.__enter__()  # type: ignore[no-untyped-call]
        elif phase == "stop" and self._open is not None:
            self._open.__exit__(None, None, None)
            self._open = None


class ExecutionTracer:
    """PyTorch's execution trace: every operator with its tensors' ids, without times.

    It costs more than the profiler: 12 us per operator where Kineto takes 2, so a step of
    small operators doubles (a Llama of 3 layers on one CPU core, torch 2.13).
    """

    def __init__(self, path: Path) -> None:
        self.path = path  # plain JSON, complete once closed
        self.observer = _observer()

    def open(self) -> None:
        """Take the process' only place for an observer; nothing is recorded yet.

        Raises:
            RuntimeError: if the place is taken.
        """
        self.observer.register_callback(str(self.path))
        # A second observer reports success and writes nothing; the first one's file is made at
        # once (torch 2.13).
        if not self.path.exists():
            # It would take the first one's place away when it is deleted.
            self.observer._registered = False  # noqa: SLF001
            raise RuntimeError(
                "cannot record an execution trace: this process has another "
                "ExecutionTraceObserver already; remove it, or pass execution_trace=None"
            )

    def start(self) -> None:
        """Record from now on."""
        self.observer.start()

    def close(self) -> None:
        """Stop and complete the file."""
        self.observer.unregister_callback()


def require_no_other_profiler() -> None:
    """Raise if a profiler is on in this process: there can be only one.

    Raises:
        RuntimeError: if there is one.
    """
    # No public name says this (torch 2.13).
    from torch._C._autograd import _profiler_enabled  # torch is optional

    if _profiler_enabled():
        raise RuntimeError(
            "cannot record: another profiler is on in this process, and there can be only one; "
            "end it (torch.profiler.profile, torch.autograd.profiler) before these steps"
        )


def _observer() -> ExecutionTraceObserver:
    from torch.profiler import ExecutionTraceObserver  # torch is optional

    return ExecutionTraceObserver()


def _profile(schedule: ProfilerSchedule, detail: Detail, tracer: ExecutionTracer | None) -> profile:
    import torch  # torch is optional
    from torch.profiler import ProfilerActivity, profile  # torch is optional
    from torch.profiler import schedule as torch_schedule  # torch is optional

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    return profile(
        activities=activities,
        schedule=torch_schedule(
            wait=schedule.settling_from,
            warmup=NUM_SETTLING_STEPS,
            active=schedule.steps,
            repeat=1,
        ),
        record_shapes=True,
        profile_memory=detail.memory,
        with_stack=detail.stacks,
        experimental_config=_experimental_config(has_stacks=detail.stacks),
        execution_trace_observer=tracer.observer if tracer is not None else None,
    )


def _experimental_config(*, has_stacks: bool) -> _ExperimentalConfig:
    # No public name gives these two (torch 2.13).
    from torch._C._profiler import _ExperimentalConfig  # torch is optional

    make: Callable[..., _ExperimentalConfig] = _ExperimentalConfig
    wanted = {"enable_cuda_sync_events": True}
    # Newer ones can skip building Python objects that nobody reads here; not with stacks.
    if not has_stacks and "trace_only" in str(_ExperimentalConfig.__init__.__doc__):
        wanted["trace_only"] = True
    return make(**wanted)
