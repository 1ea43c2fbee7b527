"""Compiled pool of unique texts: what the readers of Kineto's and Chakra's files put names into."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np

from foretrace.base import Int32s, Int64s, UInt8s, njit

Scalar: TypeAlias = Any  # an int or bool, inside numba one of its own
NO_ROOM = -3  # instead of a text: the pool is full
HASH_START = 2166136261  # FNV-1a, 32 bits: http://www.isthe.com/chongo/tech/comp/fnv/
HASH_FACTOR = 16777619
HASH_MASK = 0xFFFFFFFF

# Nothing here allocates, so arrays need no reference counts: without them 1.8 times faster.
compiled = njit(_nrt=False)
inlined = njit(_nrt=False, forceinline=True)


class Pool(NamedTuple):
    """Unique texts; text `s` is `arena[begins[s]:begins[s + 1]]`."""

    arena: UInt8s  # uint8[bytes]
    begins: Int64s  # int64[texts + 1]
    hashes: Int64s  # int64[texts]
    slots: Int32s  # int32[a power of two], text; -1 empty
    size: Int64s  # int64[1], how many texts there are


@inlined
def hash_of(text: UInt8s, begin: int, end: int) -> Scalar:
    """FNV-1a of these bytes."""
    h = np.int64(HASH_START)
    for k in range(begin, end):
        h = ((h ^ np.int64(text[k])) * HASH_FACTOR) & HASH_MASK
    return h


@compiled
def text_of(buffer: UInt8s, begin: int, end: int, h: int, pool: Pool) -> Scalar:
    """The text with these bytes and this hash, added if it is new; NO_ROOM if there is none.

    out: pool
    """
    mask = len(pool.slots) - 1
    length = end - begin
    slot = h & mask
    while True:
        s = np.int64(pool.slots[slot])
        if s < 0:
            break
        if pool.hashes[s] == h:
            other = pool.begins[s]
            if pool.begins[s + 1] - other == length:
                difference = np.int64(0)
                mine, its = np.uint64(begin), np.uint64(other)
                for k in range(np.uint64(length)):
                    difference |= np.int64(buffer[mine + k]) ^ np.int64(pool.arena[its + k])
                if difference == 0:
                    return s
        slot = (slot + 1) & mask
    s = pool.size[0]
    used = pool.begins[s]
    if s >= len(pool.hashes) or used + length > len(pool.arena) or 2 * s + 2 > len(pool.slots):
        return np.int64(NO_ROOM)
    # Unsigned places: signed ones might count from the end, which costs a branch a byte.
    to, start = np.uint64(used), np.uint64(begin)
    for k in range(np.uint64(length)):
        pool.arena[to + k] = buffer[start + k]
    pool.begins[s + 1] = used + length
    pool.hashes[s] = h
    pool.slots[slot] = s
    pool.size[0] = s + 1
    return s


@compiled
def text_at(buffer: UInt8s, begin: int, end: int, pool: Pool) -> Scalar:
    """The text with these bytes, added if it is new; NO_ROOM if there is none. out: pool."""
    return text_of(buffer, begin, end, hash_of(buffer, begin, end), pool)


@compiled
def fill_slots(slots: Int32s, hashes: Int64s, num_texts: int) -> None:
    """Put texts back into a larger, empty table. out: slots."""
    mask = len(slots) - 1
    for s in range(num_texts):
        slot = hashes[s] & mask
        while slots[slot] >= 0:
            slot = (slot + 1) & mask
        slots[slot] = s
