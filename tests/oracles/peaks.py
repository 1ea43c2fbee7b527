"""The worst moment of a stage's memory, unit by unit."""

from __future__ import annotations

from collections.abc import Sequence

from foretrace.workload import Pass, ScheduleUnit
from foretrace.workload.footprint.footprint import ChunkBytes


def worst_moment(
    units: Sequence[ScheduleUnit], chunks: Sequence[ChunkBytes]
) -> tuple[int, int, int]:
    """Bytes kept, bytes more, and the unit's place."""
    alive: list[tuple[str, int, int, int]] = []  # what is held, by chunk and microbatch
    peak = (0, 0, 0)
    for place, unit in enumerate(units):
        chunk, who = chunks[unit.chunk], (unit.chunk, unit.microbatch)
        before = sum(size for *_, size in alive)
        if unit.kind is Pass.FORWARD:
            alive.append(("kept", *who, chunk.kept))
            highest = before + chunk.forward
        elif unit.kind is Pass.WEIGHT:
            alive.remove(("until weights", *who, chunk.until_weights))
            highest = before
        else:
            alive.remove(("kept", *who, chunk.kept))
            highest = sum(size for *_, size in alive) + chunk.backward
            if unit.kind is Pass.INPUT:
                alive.append(("until weights", *who, chunk.until_weights))
        if highest > peak[0] + peak[1]:
            now = sum(size for *_, size in alive)
            kept = max(before, now) if unit.kind is Pass.FORWARD else before
            peak = (kept, highest - kept, place)
    return peak
