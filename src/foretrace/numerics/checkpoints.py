"""Checkpoints of any common form as named tensors that are read one piece at a time.

safetensors (one file, or shards with an index), PyTorch's own files (mapped into memory), and
folders of torch.distributed.checkpoint. Of no tensor more than a piece is in memory.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foretrace.base import TraceError, optional

if TYPE_CHECKING:
    import torch
    from torch import Tensor
else:
    torch = optional("torch", extra="numerics")

_INDEX = ".index.json"
_MOST_HEAD = 1 << 28  # bytes of a safetensors head
# The names that safetensors gives to types. Source: its format description, version 0.4.
_TYPES = {
    "F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16", "F8_E4M3":
    "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "I64": "int64", "I32": "int32", "I16": "int16",
    "I8": "int8", "U8": "uint8", "BOOL": "bool",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """One tensor of a checkpoint, not read yet."""

    name: str
    shape: tuple[int, ...]
    type: str  # PyTorch's name
    read: Callable[[int, int], Tensor]  # elements from, to; of the flat tensor

    @property
    def num_elements(self) -> int:
        """Of the whole tensor."""
        return math.prod(self.shape)

    def pieces(self, size: int) -> Iterator[Tensor]:
        """The flat tensor in fp32, so many elements at a time."""
        for begin in range(0, self.num_elements, size):
            yield self.read(begin, min(begin + size, self.num_elements)).float()


def stored_tensors(path: str | Path) -> Mapping[str, StoredTensor]:
    """The tensors of a checkpoint by their names.

    Args:
        path: a safetensors or PyTorch file, an index of shards, or a folder of either kind.

    Raises:
        TraceError: if it cannot be read, a shard is missing or cut off, or no tensor is in it.
    """
    place = Path(path)
    try:
        found = {one.name: one for one in _tensors(place)}
    except TraceError:
        raise
    except Exception as error:  # whatever the readers of other libraries raise
        raise TraceError(
            f"{place} cannot be read as a checkpoint: {type(error).__name__}: {error}; give a "
            "safetensors or PyTorch file, or the folder of its shards"
        ) from error
    if not found:
        raise TraceError(f"{place} holds no tensor: give a checkpoint, or the folder of its shards")
    return found


def _tensors(place: Path) -> Iterator[StoredTensor]:
    if not place.exists():
        raise TraceError(f"{place} does not exist: give a checkpoint, or the folder of its shards")
    if place.is_dir():
        yield from _folder(place)
    elif place.name.endswith(_INDEX):
        yield from _sharded(place)
    elif place.suffix == ".safetensors":
        yield from _safetensors(place)
    else:
        yield from _pytorch(place)


def _folder(place: Path) -> Iterator[StoredTensor]:
    if (place / ".metadata").exists():
        yield from _distributed(place)
        return
    indexes = sorted(place.glob(f"*{_INDEX}"))
    if indexes:
        yield from _sharded(indexes[0])
        return
    files = sorted(place.glob("*.safetensors"))
    files = files or sorted(
        one for ending in ("*.pt", "*.pth", "*.bin") for one in place.glob(ending)
    )
    for one in files:
        yield from _tensors(one)


def _sharded(index: Path) -> Iterator[StoredTensor]:
    """Every shard that the index names; each tensor once."""
    by_name: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    shards = sorted(set(by_name.values()))
    missing = [one for one in shards if not (index.parent / one).exists()]
    if missing:
        raise TraceError(
            f"{index} names {len(shards)} shards, of which {len(missing)} are missing, the first "
            f"{missing[0]}: fetch them, or give a checkpoint that is whole"
        )
    for shard in shards:
        for one in _tensors(index.parent / shard):
            if by_name.get(one.name) == shard:
                yield one


def _safetensors(path: Path) -> Iterator[StoredTensor]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MOST_HEAD, path.stat().st_size):  # noqa: PLR2004  "{}"
            raise TraceError(
                f"{path} is no safetensors file, or cut off in its head: fetch it again"
            )
        head: dict[str, Any] = json.loads(file.read(length))
    begin, size = 8 + length, path.stat().st_size
    for name, one in head.items():
        if name == "__metadata__":
            continue
        start, end = one["data_offsets"]
        if begin + end > size:
            raise TraceError(
                f"{path} is cut off: the tensor {name} ends at byte {begin + end:,} of "
                f"{size:,}; fetch it again"
            )
        if one["dtype"] not in _TYPES:
            raise TraceError(f"{path}: the tensor {name} is of the unknown type {one['dtype']!r}")
        kind = getattr(torch, _TYPES[one["dtype"]])
        yield StoredTensor(
            name=name,
            shape=tuple(one["shape"]),
            type=_TYPES[one["dtype"]],
            read=_reader(path, begin + start, kind),
        )


def _reader(path: Path, begin: int, kind: torch.dtype) -> Callable[[int, int], Tensor]:
    width = torch.empty(0, dtype=kind).element_size()

    def read(first: int, last: int) -> Tensor:
        held = bytearray((last - first) * width)
        with path.open("rb") as file:  # mapped pages would count as memory that is taken
            file.seek(begin + first * width)
            file.readinto(held)
        return torch.frombuffer(held, dtype=kind) if held else torch.empty(0, dtype=kind)

    return read


def _pytorch(path: Path) -> Iterator[StoredTensor]:
    held = torch.load(path, map_location="cpu", mmap=True, weights_only=True)
    yield from _nested(held, "")


def _nested(held: object, name: str) -> Iterator[StoredTensor]:
    """Tensors of mappings in mappings: optimizers' states are such."""
    if isinstance(held, torch.Tensor):
        flat = held.detach().reshape(-1)
        yield StoredTensor(
            name=name,
            shape=tuple(held.shape),
            type=str(held.dtype).removeprefix("torch."),
            read=lambda first, last: flat[first:last],
        )
    elif isinstance(held, Mapping):
        for key, one in held.items():
            yield from _nested(one, f"{name}.{key}".strip("."))
    elif isinstance(held, (list, tuple)):
        for at, one in enumerate(held):
            yield from _nested(one, f"{name}.{at}".strip("."))


def _distributed(folder: Path) -> Iterator[StoredTensor]:
    """Tensors of torch.distributed.checkpoint, loaded one at a time."""
    # On demand: it loads much of PyTorch.
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    reader = FileSystemReader(folder)
    held: dict[str, Tensor] = {}  # the tensor that was read last
    for name, one in reader.read_metadata().state_dict_metadata.items():
        if isinstance(one, TensorStorageMetadata):
            kind = one.properties.dtype
            yield StoredTensor(
                name=name,
                shape=tuple(one.size),
                type=str(kind).removeprefix("torch."),
                read=_distributed_reader(folder, name, tuple(one.size), (kind, held)),
            )


def _distributed_reader(
    folder: Path, name: str, shape: tuple[int, ...], at: tuple[torch.dtype, dict[str, Tensor]]
) -> Callable[[int, int], Tensor]:
    kind, held = at

    def read(first: int, last: int) -> Tensor:
        # On demand: it loads much of PyTorch.
        from torch.distributed.checkpoint.state_dict_loader import load

        if name not in held:
            held.clear()
            state = {name: torch.empty(shape, dtype=kind)}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # that this is one process is meant
                load(state, checkpoint_id=folder, no_dist=True)
            held[name] = state[name].reshape(-1)
        return held[name][first:last]

    return read
