"""`StepClock`: how long steps take, without making them longer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch.cuda import Event

NS_PER_MS = 1_000_000


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
