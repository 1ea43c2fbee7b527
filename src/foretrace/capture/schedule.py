"""Which step of the loop is timed, which is profiled."""

from __future__ import annotations

from dataclasses import dataclass

# Steps during which the profiler is on and what it sees is thrown away: it sets up its device
# buffers there, hundreds of ms on a GPU, which would otherwise stand in the first step.
NUM_SETTLING_STEPS = 1


@dataclass(frozen=True)
class ProfilerSchedule:
    """The steps of a recording, in order: warm-up, unprofiled, settling, profiled, traced.

    Steps are counted from 0; each property is the number of the first step of its part.
    """

    warmup: int
    unprofiled: int
    steps: int
    traced: int  # steps for the execution trace alone

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise ValueError(f"steps must be at least 1, got {self.steps}")
        if self.warmup < 0:
            raise ValueError(f"warmup must not be negative, got {self.warmup}")
        if self.unprofiled < 0:
            raise ValueError(f"unprofiled must not be negative, got {self.unprofiled}")

    @property
    def unprofiled_from(self) -> int:
        """First step that is timed without the profiler."""
        return self.warmup

    @property
    def settling_from(self) -> int:
        """First step with the profiler on."""
        return self.warmup + self.unprofiled

    @property
    def profiled_from(self) -> int:
        """First step that the trace holds."""
        return self.settling_from + NUM_SETTLING_STEPS

    @property
    def traced_from(self) -> int:
        """First step after the trace; the execution trace's own, if it has one."""
        return self.profiled_from + self.steps

    @property
    def num_needed(self) -> int:
        """How often `recorder.step()` must be called for a complete recording."""
        return self.traced_from + self.traced
