"""`Profiler`: PyTorch's two recorders, Kineto and execution trace, over one window of steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.capture.schedule import NUM_SETTLING_STEPS, Schedule

if TYPE_CHECKING:
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ExecutionTraceObserver, profile


@dataclass(frozen=True)
class Detail:
    """What is recorded beyond the operators, their shapes and the device's work."""

    execution_trace: bool
    stacks: bool
    memory: bool


class Profiler:
    """Follows the loop step by step; on between a schedule's settling and its last step.

    The marks in the trace, `ProfilerStep#N`, carry the loop's own step number.
    """

    def __init__(self, schedule: Schedule, detail: Detail, execution_trace_path: Path) -> None:
        self._schedule = schedule
        self._execution_trace_path = execution_trace_path
        self._observer = _observer() if detail.execution_trace else None
        self._profile = _profile(schedule, detail, self._observer)

    def begin(self) -> None:
        """Begin step 0.

        Raises:
            RuntimeError: if another profiler is on.
        """
        require_no_other_profiler()
        if self._schedule.settling_from == 0:
            self._register()
        self._profile.start()

    def step(self, next_step: int) -> None:
        """End one step and begin `next_step`; the profiler goes on and off by itself.

        Raises:
            RuntimeError: if another profiler is on when this one has to start.
        """
        if next_step == self._schedule.settling_from:
            self._register()
        self._profile.step()

    def stop(self) -> None:
        """End everything; what was recorded stays to be written."""
        self._profile.stop()
        if self._observer is not None:
            self._observer.unregister_callback()

    def write_kineto(self, path: Path) -> None:
        """Write the trace as plain JSON."""
        self._profile.export_chrome_trace(str(path))

    def _register(self) -> None:
        require_no_other_profiler()
        if self._observer is None:
            return
        self._observer.register_callback(str(self._execution_trace_path))
        if not self._observer.is_registered:
            raise RuntimeError(
                "cannot record an execution trace: this process has another "
                "ExecutionTraceObserver already; remove it, or pass execution_trace=False"
            )


def require_no_other_profiler() -> None:
    """Raise if a profiler is on in this process: there can be only one.

    Raises:
        RuntimeError: if there is one.
    """
    # No public name says this (torch 2.4 to 2.13).
    from torch._C._autograd import _profiler_enabled  # torch is optional

    if _profiler_enabled():
        raise RuntimeError(
            "cannot record: another profiler is on in this process, and there can be only one; "
            "end it (torch.profiler.profile, torch.autograd.profiler) before these steps"
        )


def _observer() -> ExecutionTraceObserver:
    from torch.profiler import ExecutionTraceObserver  # torch is optional

    return ExecutionTraceObserver()


def _profile(
    schedule: Schedule, detail: Detail, observer: ExecutionTraceObserver | None
) -> profile:
    import torch  # torch is optional
    from torch.profiler import (  # torch is optional
        ProfilerActivity,
        profile,
    )
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
        execution_trace_observer=observer,
    )


def _experimental_config(*, has_stacks: bool) -> _ExperimentalConfig:
    # No public name gives these two (torch 2.4 to 2.13).
    from torch._C._profiler import _ExperimentalConfig  # torch is optional

    make: Callable[..., _ExperimentalConfig] = _ExperimentalConfig
    wanted = {"enable_cuda_sync_events": True}
    # Newer ones can skip building Python objects that nobody reads here; not with stacks.
    if not has_stacks and "trace_only" in str(_ExperimentalConfig.__init__.__doc__):
        wanted["trace_only"] = True
    return make(**wanted)
