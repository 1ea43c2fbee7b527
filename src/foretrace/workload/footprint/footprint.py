"""`Footprint`: bytes that ranks hold, by what they are for, at the worst moment of a step."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageFootprint:
    """Bytes on one rank of a pipeline stage."""

    stage: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int  # kept for backward passes at the worst moment
    buffers: int  # gathered parameters, messages, logits: what lives within one operation
    context: int  # of the framework: CUDA context, libraries' workspaces, with their source
    num_in_flight: float  # microbatches whose activations are held then, in whole stages
    peak_unit: int  # position in the stage's order of units where the peak is reached

    @property
    def total(self) -> int:
        """All of them."""
        return (
            self.parameters
            + self.gradients
            + self.optimizer
            + self.activations
            + self.buffers
            + self.context
        )


@dataclass(frozen=True)
class Footprint:
    """Bytes of every stage, and what a chip has."""

    stages: tuple[StageFootprint, ...]
    capacity: int | None  # usable bytes of one chip; `None`: not said
    notes: tuple[str, ...] = ()

    @property
    def peak(self) -> StageFootprint:
        """The fullest stage."""
        return max(self.stages, key=lambda stage: stage.total)

    @property
    def margin(self) -> int | None:
        """Bytes that are left on the fullest stage; negative: it does not fit."""
        return None if self.capacity is None else self.capacity - self.peak.total
