"""`Snapshot`: what PyTorch's CUDA allocator held, and its recent history, from its pickle file.

`torch.cuda.memory._dump_snapshot(path)` writes the file; its structure stands in the docstring of
`torch.cuda.memory._snapshot` (PyTorch 2.13) and in "Understanding CUDA Memory Usage",
https://pytorch.org/docs/stable/torch_cuda_memory.html. A pickle can run code when it is read, so
this reader takes plain containers, texts and numbers and refuses everything else.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import NoReturn

import numpy as np

from foretrace.base import NS_PER_US, Int32s, Int64s, TraceError, UInt8s

UNKNOWN_NS = -1
_ACTIVE = ("active_allocated", "active_awaiting_free")
MAX_FRAMES = 5  # of a stack that are kept in a place's text, innermost first


class AllocatorAction(IntEnum):
    """What the allocator did; entries of other kinds (snapshots, marks) are left out."""

    ALLOC = 0
    FREE = 1  # `free_completed`: the bytes can be used again
    SEGMENT_ALLOC = 2  # more memory from the device, `segment_map` too
    SEGMENT_FREE = 3
    OUT_OF_MEMORY = 4


_ACTIONS = {
    "alloc": AllocatorAction.ALLOC,
    "free_completed": AllocatorAction.FREE,
    "segment_alloc": AllocatorAction.SEGMENT_ALLOC,
    "segment_map": AllocatorAction.SEGMENT_ALLOC,
    "segment_free": AllocatorAction.SEGMENT_FREE,
    "segment_unmap": AllocatorAction.SEGMENT_FREE,
    "oom": AllocatorAction.OUT_OF_MEMORY,
}


@dataclass(frozen=True)
class DeviceSnapshot:
    """One device: its history, oldest first, and the blocks in use when the file was written."""

    device: int
    reserved_bytes: int  # all segments together
    active_bytes: int  # blocks in use, or waiting for another stream to be free
    action: UInt8s  # uint8[entries], AllocatorAction
    at_ns: Int64s  # int64[entries], since the epoch; UNKNOWN_NS in files of old versions
    address: Int64s  # int64[entries]
    num_bytes: Int64s  # int64[entries]
    place: Int32s  # int32[entries], position in `Snapshot.places`
    block_address: Int64s  # int64[blocks], of blocks in use
    block_bytes: Int64s  # int64[blocks]
    block_place: Int32s  # int32[blocks]


@dataclass(frozen=True)
class Snapshot:
    """What a file says."""

    path: Path
    devices: tuple[DeviceSnapshot, ...]  # those with memory or a history
    places: tuple[str, ...]  # where allocations were asked for: frames, innermost first


class _PlainUnpickler(pickle.Unpickler):
    """Reads containers, texts and numbers; names of classes and functions end the reading."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse it."""
        raise pickle.UnpicklingError(f"it names {module}.{name}")

    def persistent_load(self, pid: object) -> NoReturn:
        """Refuse it."""
        raise pickle.UnpicklingError(f"it refers to an object outside, {pid!r}")


def load_snapshot(path: Path) -> Snapshot:
    """What an allocator snapshot says.

    Raises:
        TraceError: if the file cannot be read, or is no such snapshot.
    """
    content = _content(path)
    segments, traces = content.get("segments"), content.get("device_traces")
    if not isinstance(segments, list) or not isinstance(traces, list):
        raise TraceError(
            f"cannot read {path}: it holds no 'segments' and 'device_traces' lists but "
            f"{sorted(map(str, content))[:5]}; pass a file that "
            "torch.cuda.memory._dump_snapshot wrote."
        )
    places: dict[str, int] = {}
    numbers = {_number(one, "device") for one in map(_mapping, segments)}
    numbers |= {device for device, entries in enumerate(traces) if entries}
    devices = [
        _device(
            device,
            [one for one in map(_mapping, segments) if _number(one, "device") == device],
            list(traces[device]) if 0 <= device < len(traces) else [],
            places,
        )
        for device in sorted(numbers)
    ]
    return Snapshot(path, tuple(devices), tuple(places))


def _content(path: Path) -> Mapping[str, object]:
    try:
        with path.open("rb") as file:
            content = _PlainUnpickler(file).load()
    except OSError as error:
        raise TraceError(f"cannot read {path}: {error.strerror}.") from error
    except Exception as error:
        # The pickle module raises whatever a broken file leads it to, documented as such.
        raise TraceError(
            f"cannot read {path} as an allocator snapshot: {error}; expected a pickle of plain "
            "containers, texts and numbers, as torch.cuda.memory._dump_snapshot writes."
        ) from error
    if not isinstance(content, dict):
        raise TraceError(
            f"cannot read {path} as an allocator snapshot: it holds a {type(content).__name__}, "
            "expected the dictionary that torch.cuda.memory._dump_snapshot writes."
        )
    return content


def _device(
    device: int,
    segments: Sequence[Mapping[str, object]],
    entries: Sequence[object],
    places: dict[str, int],
) -> DeviceSnapshot:
    """One device's columns; new places are added to `places`."""
    history = [
        (
            _ACTIONS[str(one["action"])],
            _number(one, "time_us", UNKNOWN_NS) * NS_PER_US if "time_us" in one else UNKNOWN_NS,
            _number(one, "addr"),
            _number(one, "size"),
            _place(one.get("frames"), places),
        )
        for one in map(_mapping, entries)
        if one.get("action") in _ACTIONS
    ]
    blocks = [
        (address, _number(block, "size"), _place(_frames_of(block), places))
        for segment in segments
        for address, block in _addressed(segment)
        if block.get("state") in _ACTIVE
    ]
    columns = np.array(history, np.int64).reshape(-1, 5)
    held = np.array(blocks, np.int64).reshape(-1, 3)
    return DeviceSnapshot(
        device=device,
        reserved_bytes=sum(_number(segment, "total_size") for segment in segments),
        active_bytes=int(held[:, 1].sum()),
        action=columns[:, 0].astype(np.uint8),
        at_ns=columns[:, 1].copy(),
        address=columns[:, 2].copy(),
        num_bytes=columns[:, 3].copy(),
        place=columns[:, 4].astype(np.int32),
        block_address=held[:, 0].copy(),
        block_bytes=held[:, 1].copy(),
        block_place=held[:, 2].astype(np.int32),
    )


def _addressed(segment: Mapping[str, object]) -> list[tuple[int, Mapping[str, object]]]:
    """A segment's blocks with their addresses, which files of PyTorch before 2.1 leave out."""
    at, found = _number(segment, "address"), []
    blocks = segment.get("blocks")
    for block in map(_mapping, blocks if isinstance(blocks, list) else []):
        address = _number(block, "address", at)
        found.append((address, block))
        at = address + _number(block, "size")
    return found


def _frames_of(block: Mapping[str, object]) -> object:
    """A block's frames; PyTorch before 2.1 keeps them under its history."""
    if "frames" in block:
        return block["frames"]
    history = block.get("history")
    return _mapping(history[0]).get("frames") if isinstance(history, list) and history else None


def _place(frames: object, places: dict[str, int]) -> int:
    """Position of a stack's text; added if it is new."""
    lines = [
        f"{one.get('name')} at {str(one.get('filename')).rpartition('/')[2]}:{one.get('line')}"
        for one in map(_mapping, frames[:MAX_FRAMES] if isinstance(frames, list) else [])
    ]
    return places.setdefault(" < ".join(lines), len(places))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _number(entry: Mapping[str, object], key: str, otherwise: int = 0) -> int:
    value = entry.get(key, otherwise)
    return value if isinstance(value, int) else otherwise
