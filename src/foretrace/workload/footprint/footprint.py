"""`Footprint`: bytes that ranks hold, by what they are for, at the worst moment of a step.

A stage's worst moment is found by walking its units in order, adding up what is kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from foretrace.answer import Answer, Column, Plain, Shown, Table, Told, Unit, bytes_text
from foretrace.base import Int64s
from foretrace.workload.footprint._compiled import peaks
from foretrace.workload.footprint.kept import Kept
from foretrace.workload.footprint.parts import PartBytes
from foretrace.workload.schedule.schedule import Orders

_PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers", "context")


@dataclass(frozen=True)
class StageFootprint(Plain):
    """Bytes on one rank of a pipeline stage."""

    json_also: ClassVar = ("allocated", "total")

    stage: int
    parameters: int
    gradients: int
    optimizer: int
    activations: int  # kept for backward passes at the worst moment
    buffers: int  # gathered parameters, messages, logits: what lives within one operation
    context: int  # outside the framework's allocator: CUDA context and kernels, with their source
    num_in_flight: float  # microbatches whose activations are held then, in whole stages
    peak_unit: int  # position in the stage's order of units where the peak is reached

    @property
    def total(self) -> int:
        """All of them."""
        return self.allocated + self.context

    @property
    def allocated(self) -> int:
        """All but the context: what the framework's own statistics show."""
        return self.parameters + self.gradients + self.optimizer + self.activations + self.buffers


@dataclass(frozen=True, repr=False)
class Footprint(Answer):
    """Bytes of every stage, and what a chip has."""

    json_only: ClassVar = (
        *("fits", "capacity", "margin", "peak.stage", "stages", "tensors", "notes"),
    )
    json_names: ClassVar = {"peak.stage": "peak_stage", "tensors": "layer_tensors"}

    stages: tuple[StageFootprint, ...]
    capacity: int | None  # usable bytes of one chip; `None`: not said
    notes: tuple[str, ...] = ()
    tensors: tuple[Kept, ...] = ()  # that the first layer keeps of one microbatch

    @property
    def peak(self) -> StageFootprint:
        """The fullest stage; the first of those that are equal."""
        return max(self.stages, key=lambda stage: stage.total)

    @property
    def margin(self) -> int | None:
        """Bytes that are left on the fullest stage; negative: it does not fit."""
        return None if self.capacity is None else self.capacity - self.peak.total

    @property
    def fits(self) -> bool | None:
        """Whether every stage fits; `None`: nobody said into what."""
        return None if self.margin is None else self.margin >= 0

    def with_buffer(self, num_bytes: int) -> Footprint:
        """With a buffer more on every stage."""
        if not num_bytes:
            return self
        stages = tuple(replace(one, buffers=one.buffers + num_bytes) for one in self.stages)
        return replace(self, stages=stages)

    @property
    def headline(self) -> str:
        """What the fullest stage takes, and whether it fits."""
        words = {None: "", True: ", which fits", False: ", which does not fit"}[self.fits]
        return f"{bytes_text(self.peak.total)} on stage {self.peak.stage}{words}"

    @property
    def note(self) -> str:
        """What is to know of the count."""
        return "; ".join(self.notes)

    def parts(self) -> tuple[Told, ...]:
        """Every stage, and what the first layer keeps of one microbatch."""
        return (
            Table.of(
                "stages",
                self.stages,
                Column("stage"),
                Column("total", unit=Unit.BYTES),
                *(Column(part, unit=Unit.BYTES) for part in _PARTS),
                Column("allocated", unit=Unit.BYTES, shown=Shown.FILES),
                Column("num_in_flight", "in flight", Unit.NUMBER),
                Column("peak_unit", unit=Unit.COUNT, shown=Shown.FILES),
            ),
            Table.of(
                "layer_tensors",
                self.tensors,
                Column("tensor", value="label"),
                Column("bytes", value="num_bytes"),
                title="kept by the first layer of one microbatch",
            ),
        )


@dataclass(frozen=True)
class ChunkBytes:
    """Bytes of one chunk of layers for one microbatch on a rank."""

    kept: int
    forward: int  # at the worst moment of its forward pass, what is kept by then included
    backward: int  # of its backward pass, what is still kept by then included
    until_weights: int

    @property
    def row(self) -> tuple[int, int, int, int]:
        """As the compiled walk over a schedule takes them."""
        return self.kept, self.forward, self.backward, self.until_weights


@dataclass(frozen=True)
class Peaks:
    """The worst moment of every stage; the first of those that are equal."""

    kept: Int64s  # int64[stages], for backward passes
    more: Int64s  # int64[stages], what lives within the unit
    unit: Int64s  # int64[stages], position in the stage's order


def chunk_bytes(runs: Sequence[tuple[PartBytes, int]]) -> ChunkBytes:
    """Bytes of a chunk from those of its parts, first to last; and how many of each in a row."""
    kept = forward = backward = until_weights = 0
    for part, count in runs:
        # Forward: parts before keep theirs. Backward: parts behind have freed theirs. The last of
        # a run has most before it.
        kept += part.kept_bytes * count
        forward = max(forward, kept + part.forward)
        backward = max(backward, kept + part.backward)
        until_weights += part.until_weights * count
    return ChunkBytes(kept, forward, backward, until_weights)


def peaks_of(orders: Orders, chunks: Sequence[ChunkBytes], row: Int64s | None = None) -> Peaks:
    """The worst moment of every stage of a schedule.

    Args:
        orders: of its units.
        chunks: bytes of each of its chunks, or of the distinct ones.
        row: int64[units], place of each one's chunk among the distinct ones.
    """
    own = [one.row for one in chunks]
    found = np.zeros((3, len(orders.begin) - 1), np.int64)
    row = orders.chunk if row is None else row
    peaks(orders.kind, row, orders.begin, np.array(own, np.int64), found)
    return Peaks(*found)
