"""Checkpoints of any common form as named tensors that are read one piece at a time.

safetensors (one file, or shards, whole tensors or blocks of them), PyTorch's own files (mapped into
memory), and folders of torch.distributed.checkpoint. Of no tensor more than a piece is in memory.
"""

from __future__ import annotations

import io
import json
import math
import re
import struct
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from foretrace.base import TraceError
from foretrace.numerics.checkpoint_pieces import ReadElements, TensorPiece, joined
from foretrace.numerics.libraries import Tensor, torch

_INDEX = ".index.json"
_BLOCKS = "DCP_SHARDING_INFO"  # PyTorch's word, in a safetensors head
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
    read: ReadElements

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
    found: dict[str, StoredTensor] = {}
    twice = None
    try:
        for one in _tensors(place):
            twice = one.name if one.name in found else twice
            found[one.name] = one
    except TraceError:
        raise
    except Exception as error:  # whatever the readers of other libraries raise
        raise TraceError(
            f"{place} cannot be read as a checkpoint: {type(error).__name__}: {error}; give a "
            "safetensors or PyTorch file, or the folder of its shards"
        ) from error
    if twice is not None:
        raise TraceError(
            f"{place} holds {twice} in several files that do not say which part of it: give one of "
            "the files, or a checkpoint of torch.distributed.checkpoint"
        )
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
        yield from _safetensors([place])
    else:
        yield from _pytorch(place)


def _folder(place: Path) -> Iterator[StoredTensor]:
    if (place / ".metadata").exists():
        yield from _distributed(place)
        return
    if any(place.glob("*.distcp")):
        raise TraceError(
            f"{place} has pieces of torch.distributed.checkpoint, but no .metadata, which says "
            "what they are: fetch it too"
        )
    indexes = sorted(place.glob(f"*{_INDEX}"))
    if indexes:
        yield from _sharded(indexes[0])
        return
    files = sorted(place.glob("*.safetensors"))
    if files:
        _require_all(place, _numbered(files))
        yield from _safetensors(files)
        return
    for ending in ("*.pt", "*.pth", "*.bin"):
        for one in sorted(place.glob(ending)):
            yield from _pytorch(one)


def _numbered(files: Sequence[Path]) -> Iterator[str]:
    """Files that these are some of, where their names say so: 1-of-3, 2-of-3, 3-of-3."""
    for one in files:
        yield one.name
        if found := re.fullmatch(r"(.*?)(\d+)-of-(\d+)(\D*)", one.name):
            before, number, last, after = found.groups()
            for at in range(1, int(last) + 1):
                yield f"{before}{str(at).zfill(len(number))}-of-{last}{after}"


def _require_all(where: Path, names: Iterable[str]) -> None:
    """That every file which `where`, an index or a folder, speaks of is there."""
    folder, wanted = where if where.is_dir() else where.parent, sorted(set(names))
    missing = [one for one in wanted if not (folder / one).exists()]
    if missing:
        raise TraceError(
            f"{where} names {len(wanted)} shards, of which {len(missing)} are missing, the first "
            f"{missing[0]}: fetch them, or give a checkpoint that is whole"
        )


def _require_bytes(path: Path, end: int, name: str) -> None:
    size = path.stat().st_size
    if end > size:
        raise TraceError(
            f"{path} is cut off: the tensor {name} ends at byte {end:,} of {size:,}; fetch it again"
        )


def _sharded(index: Path) -> Iterator[StoredTensor]:
    """Every shard that the index names; each tensor once."""
    by_name: dict[str, str] = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    shards = sorted(set(by_name.values()))
    _require_all(index, shards)
    for shard in shards:
        for one in _tensors(index.parent / shard):
            if by_name.get(one.name) == shard:
                yield one


def _safetensors(paths: Iterable[Path]) -> Iterator[StoredTensor]:
    """Tensors of files that each hold whole ones, or blocks and where these belong."""
    pieces: dict[str, list[TensorPiece]] = {}
    kinds: dict[str, str] = {}
    for path in paths:
        for name, kind, piece in _blocks_of(path):
            pieces.setdefault(name, []).append(piece)
            if kinds.setdefault(name, kind) != kind:
                raise TraceError(f"{path}: {name} is {kind}, and {kinds[name]} in another file")
    for name, some in pieces.items():
        ends = ([o + s for o, s in zip(one.offsets, one.sizes, strict=True)] for one in some)
        shape = tuple(map(max, zip(*ends, strict=True)))
        where = f"{path.parent}: {name}"
        yield StoredTensor(
            name=name, shape=shape, type=kinds[name], read=joined(where, shape, some)
        )


def _blocks_of(path: Path) -> Iterator[tuple[str, str, TensorPiece]]:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(_MOST_HEAD, path.stat().st_size):  # noqa: PLR2004  "{}"
            raise TraceError(
                f"{path} is no safetensors file, or cut off in its head: fetch it again"
            )
        head: dict[str, Any] = json.loads(file.read(length))
    begin = 8 + length
    blocks = json.loads(head.pop("__metadata__", {}).get(_BLOCKS, "{}"))
    for name, one in head.items():
        start, end = one["data_offsets"]
        _require_bytes(path, begin + end, name)
        if one["dtype"] not in _TYPES:
            raise TraceError(f"{path}: the tensor {name} is of the unknown type {one['dtype']!r}")
        kind, sizes = _TYPES[one["dtype"]], tuple(one["shape"])
        offsets = tuple(blocks[name]["saved_offsets"]) if name in blocks else (0,) * len(sizes)
        read = _reader(path, begin + start, getattr(torch, kind))
        yield name, kind, TensorPiece(offsets=offsets, sizes=sizes, read=read)


def _reader(path: Path, begin: int, kind: torch.dtype) -> ReadElements:
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
    """Tensors of torch.distributed.checkpoint, out of the pieces that processes wrote."""
    # On demand: it loads much of PyTorch.
    from torch.distributed.checkpoint.filesystem import FileSystemReader
    from torch.distributed.checkpoint.metadata import MetadataIndex, TensorStorageMetadata

    head = FileSystemReader(folder).read_metadata()
    stored: Mapping[Any, Any] = head.storage_data
    _require_all(folder, (one.relative_path for one in stored.values()))
    for name, one in head.state_dict_metadata.items():
        if not isinstance(one, TensorStorageMetadata):
            continue
        pieces = [
            TensorPiece(
                offsets=tuple(chunk.offsets),
                sizes=tuple(chunk.sizes),
                read=_saved_reader(folder, name, stored[MetadataIndex(name, chunk.offsets)]),
            )
            for chunk in one.chunks
        ]
        yield StoredTensor(
            name=name,
            shape=tuple(one.size),
            type=str(one.properties.dtype).removeprefix("torch."),
            read=joined(f"{folder}: {name}", tuple(one.size), pieces),
        )


def _saved_reader(folder: Path, name: str, at: Any) -> ReadElements:
    """Of a piece that `torch.save` wrote somewhere in a file."""
    path, packed = folder / at.relative_path, getattr(at, "transform_descriptors", None)
    _require_bytes(path, at.offset + at.length, name)
    if packed:
        raise TraceError(f"{path} is packed ({', '.join(packed)}): give one that is saved without")

    def read(first: int, last: int) -> Tensor:
        with path.open("rb") as file:
            view = io.BufferedReader(_Slice(file, at.offset, at.length))
            like = torch.load(view, map_location="meta", weights_only=True)
            begin = at.offset + _data_of(view)
            if like.is_contiguous() and not like.storage_offset():
                return _reader(path, begin, like.dtype)(first, last)
            view.seek(0)
            whole: Tensor = torch.load(view, map_location="cpu", weights_only=True)
            return whole.flatten()[first:last]

    return read


def _data_of(view: IO[bytes]) -> int:
    """Where in an archive of `torch.save`, which are not compressed, the numbers begin."""
    [entry] = (one for one in zipfile.ZipFile(view).infolist() if one.filename.endswith("/data/0"))
    view.seek(entry.header_offset + 26)  # of the local header, which may be padded
    name, extra = struct.unpack("<HH", view.read(4))
    return int(entry.header_offset + 30 + name + extra)


class _Slice(io.RawIOBase):
    """A part of a file as a file."""

    def __init__(self, file: io.BufferedReader, begin: int, length: int) -> None:
        self._file, self._begin, self._length, self._at = file, begin, length, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + (0, self._at, self._length)[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        held = memoryview(buffer)[: max(0, self._length - self._at)]
        self._file.seek(self._begin + self._at)
        number = self._file.readinto(held)
        self._at += number
        return number
