"""The worst moment of a stage: its units are walked in order, adding up what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foretrace.workload.footprint.parts import PartBytes
from foretrace.workload.schedule.unit import Pass, ScheduleUnit


@dataclass(frozen=True)
class ChunkBytes:
    """Bytes of one chunk of layers for one microbatch on a rank."""

    kept: int
    forward: int  # at the worst moment of its forward pass, what is kept by then included
    backward: int  # of its backward pass, what is still kept by then included
    until_weights: int


@dataclass(frozen=True)
class Peak:
    """The worst moment."""

    kept: int  # for backward passes
    more: int  # what lives within the unit
    unit: int  # position in the stage's order


def chunk_bytes(parts: tuple[PartBytes, ...]) -> ChunkBytes:
    """Bytes of a chunk from those of its parts, first to last."""
    kept = forward = backward = 0
    for part in parts:
        # Forward: parts before keep theirs. Backward: parts behind have freed theirs.
        kept += part.kept_bytes
        forward = max(forward, kept + part.forward)
        backward = max(backward, kept + part.backward)
    return ChunkBytes(kept, forward, backward, sum(part.until_weights for part in parts))


def stage_peak(units: tuple[ScheduleUnit, ...], chunks: Mapping[int, ChunkBytes]) -> Peak:
    """The worst moment of one stage; the first of those that are equal.

    Args:
        units: the stage's, in order.
        chunks: bytes of every chunk that it holds.
    """
    now = 0
    peak = Peak(0, 0, 0)
    for place, unit in enumerate(units):
        chunk = chunks[unit.chunk]
        before = now
        if unit.kind is Pass.FORWARD:
            highest = before + chunk.forward
            now += chunk.kept
        elif unit.kind is Pass.WEIGHT:
            highest = before
            now -= chunk.until_weights
        else:
            highest = before - chunk.kept + chunk.backward
            now -= chunk.kept
            if unit.kind is Pass.INPUT:
                now += chunk.until_weights
        if highest > peak.kept + peak.more:
            kept = max(before, now) if unit.kind is Pass.FORWARD else before
            peak = Peak(kept, highest - kept, place)
    return peak
