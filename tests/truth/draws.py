"""Random draws that belong to a work item, not to its place in a sequence.

Each item has a 64-bit key made of what it is (rank, step, phase, layer, number). The same key
gives the same draw, so a changed job draws the same for everything that is still in it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

MASK = (1 << 64) - 1


def mixed(*parts: int) -> int:
    """One 64-bit number from several small ones."""
    state = 0x9E3779B97F4A7C15
    for part in parts:
        state = ((state ^ (part & MASK)) * 0xBF58476D1CE4E5B9 + 0x94D049BB133111EB) & MASK
        state ^= state >> 29
    return state


def _scrambled(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's output function. Source: Steele, Lea, Flood, OOPSLA 2014."""
    state = keys + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def normals(keys: NDArray[np.uint64], salt: int) -> NDArray[np.float64]:
    """One standard normal number per key, float64[keys]; no more than 4 from zero."""
    first = _scrambled(_scrambled(keys ^ np.uint64(salt)))
    second = _scrambled(first ^ np.uint64(0xD6E8FEB86659FD93))
    scale = 1.0 / (1 << 53)
    radius = ((first >> np.uint64(11)).astype(np.float64) + 0.5) * scale
    angle = (second >> np.uint64(11)).astype(np.float64) * (2.0 * np.pi * scale)
    drawn: NDArray[np.float64] = np.sqrt(-2.0 * np.log(radius)) * np.cos(angle)
    return np.minimum(np.maximum(drawn, -4.0), 4.0)
