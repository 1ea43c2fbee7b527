"""CUDA allocator snapshots, written by hand in the structure that PyTorch documents.

There is no CUDA device where these tests run, so no snapshot of a real run is among them. The
structure is that of the docstring of `torch.cuda.memory._snapshot`, PyTorch 2.13.
"""

from __future__ import annotations

import pickle
from pathlib import Path


def frames(name: str) -> list[object]:
    """A stack of two frames."""
    return [
        {"filename": "/home/user/train.py", "line": 12, "name": name},
        {"filename": "/home/user/train.py", "line": 99, "name": "main"},
    ]


def entry(
    action: str, address: int, size: int, name: str, *, at_us: int | None = None
) -> dict[str, object]:
    """One entry of a device's history."""
    time = {} if at_us is None else {"time_us": at_us}
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "frames": frames(name),
        **time,
    }


def segment(*, blocks: list[object], device: int = 0) -> dict[str, object]:
    """A segment of 2,048 bytes with these blocks."""
    return {
        "device": device,
        "address": 0,
        "total_size": 2048,
        "stream": 0,
        "segment_type": "small",
        "segment_pool_id": (0, 0),
        "blocks": blocks,
    }


def written(folder: Path, content: object) -> Path:
    """The file as `torch.cuda.memory._dump_snapshot` would write it."""
    path = folder / "snapshot.pickle"
    path.write_bytes(pickle.dumps(content))
    return path
