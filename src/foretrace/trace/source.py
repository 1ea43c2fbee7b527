"""A file's bytes as text, decompressed piece by piece; what is no JSON is told apart.

In: a path. Out: pieces of JSON text, never more than about a MB at once, and a key that
changes with the file's content.
"""

from __future__ import annotations

import bz2
import hashlib
import importlib
import lzma
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO

from isal import isal_zlib

from foretrace.base import TraceError
from foretrace.trace.archives import (
    DAMAGED,
    archive_of,
    is_database,
    member_names,
    num_bytes,
    opened_member,
)

# Text is scanned while it is still in the second-level cache (1 MB here): on a file of 54 MB,
# 256 kB to 1 MB took the same time, 64 kB 7% and 4 MB 1% more.
PIECE_BYTES = 1024 * 1024
_LEAST_GZIP_BYTES = 18  # header and trailer: RFC 1952
_MAX_SHOWN = 5
_FILE_BYTES = 64 * 1024
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_WINDOW = isal_zlib.MAX_WBITS | 16
_ENDS_EARLY = "the compressed data ends early"
_BLANKS = b" \t\r\n"
_TAR_MARK_AT = 257
_OTHER_TEXTS = (
    (b"\xff\xfe", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
)


class CutShortError(Exception):
    """Ends a stream of pieces whose file stops early or is damaged; never leaves this folder."""


@dataclass(frozen=True)
class OpenFile:
    """An open file that looks like JSON."""

    path: Path
    file_bytes: int
    likely_json_bytes: int  # a guess, for the size of the first tables
    pieces: Iterator[bytes]


def content_key(path: Path) -> str:
    """32 hexadecimal digits that name the file's content.

    Blake2 of two checksums per 64 kB: not proof against forgery, which a cache need not be,
    and at 5.6 GB/s fast enough to be taken of every file at every load (Blake2 of the whole
    reads 0.7 GB/s).
    """
    digest = hashlib.blake2b(digest_size=16)
    holder = archive_of(path)
    if holder is not None and is_database(holder[0]):
        digest.update(holder[1].encode())  # one process of several that the bytes hold
    with _opened(path) as file:
        while block := file.read(_FILE_BYTES):
            checks = (len(block), isal_zlib.crc32(block), isal_zlib.adler32(block))
            digest.update(b"%d %d %d;" % checks)
    return digest.hexdigest()


@contextmanager
def opened_source(path: Path) -> Iterator[OpenFile]:
    """The file's text, plain, from gzip, or from the one file in a tar archive.

    Raises:
        TraceError: if the file cannot be read, is empty, or is no JSON text.
    """
    with _opened(path) as file:
        file_bytes = num_bytes(path)
        head = _head(file, path)
        for mark, what, command in _OTHER_TEXTS:
            if head.startswith(mark):
                raise TraceError(
                    f"cannot read {path}: it is {what}; run `{command}` on it first "
                    "(plain text, gzip, zstd, xz, bzip2, zip and tar are read as they are)"
                )
        likely = _stated_bytes(path, file_bytes) if head.startswith(_GZIP) else file_bytes
        first, pieces = _text_of(file, head, path)
        first = first.removeprefix(_BYTE_ORDER_MARK)
        _check_is_json(path, first)
        yield OpenFile(path, file_bytes, likely, _chained(first, pieces))


@contextmanager
def opened_bytes(path: Path) -> Iterator[Iterator[bytes]]:
    """The file's bytes in pieces, plain, from gzip, or from the one file in a tar archive.

    Raises:
        TraceError: if the file cannot be read or is empty.
    """
    with _opened(path) as file:
        first, pieces = _text_of(file, _head(file, path), path)
        yield _chained(first.removeprefix(_BYTE_ORDER_MARK), pieces)


def whole_bytes(path: Path, most_bytes: int, *, instead: str) -> bytes:
    """All bytes of a file, unpacked, for a format that is read whole.

    Args:
        path: of the file.
        most_bytes: what is read at most.
        instead: what to do with a larger one.

    Raises:
        TraceError: if it cannot be read, is packed and damaged or cut off, or larger.
    """
    whole = bytearray()
    try:
        with opened_bytes(path) as pieces:
            for piece in pieces:
                whole += piece
                if len(whole) > most_bytes:
                    raise TraceError(
                        f"cannot read {path}: unpacked it is larger than {most_bytes:,} bytes and "
                        f"it is read whole; {instead}"
                    )
    except CutShortError as err:
        raise TraceError(f"cannot read {path}: {err}; record or copy it again") from err
    return bytes(whole)


def _text_of(file: BinaryIO, head: bytes, path: Path) -> tuple[bytes, Iterator[bytes]]:
    """The first piece of a file's text, whatever it is packed in, and those that follow."""
    if head.startswith(_ZIP):
        pieces = _from_archive(path)
    else:
        text_of = next((one for mark, one in _TEXT_OF.items() if head.startswith(mark)), _plain)
        pieces = text_of(file)
    first = next_piece(pieces, path)
    if first[_TAR_MARK_AT : _TAR_MARK_AT + 5] == b"ustar":
        pieces = _from_archive(path)
        first = next_piece(pieces, path)
    return first, pieces


def _head(file: BinaryIO, path: Path) -> bytes:
    head: bytes = file.peek(_FILE_BYTES)  # type: ignore[attr-defined]  # it is buffered
    if not head:
        raise TraceError(f"cannot read {path}: the file is empty; record or copy it again")
    return head


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        holder = archive_of(path)
        if holder is not None:
            with opened_member(path, *holder) as member:
                yield member
            return
        mode = path.stat().st_mode
        if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):  # opening a folder says what it is
            raise TraceError(
                f"cannot read {path}: it is a pipe or a device, which gives its bytes once, and a "
                "trace is read several times; write them into a file and name that"
            )
        with path.open("rb") as file:
            yield file
    except OSError as err:
        reason = err.strerror or str(err)
        raise TraceError(f"cannot read {path}: {reason.lower()}") from err


def next_piece(pieces: Iterator[bytes], path: Path) -> bytes:
    """The first piece; a file that is damaged before it is refused."""
    try:
        return next(pieces, b"")
    except CutShortError as err:
        raise TraceError(
            f"cannot read {path}: {err} before any text; record or copy it again"
        ) from err


def _chained(first: bytes, rest: Iterator[bytes]) -> Iterator[bytes]:
    yield first
    yield from rest


def _plain(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


def _stated_bytes(path: Path, file_bytes: int) -> int:
    """The length of the text as the end of a gzip file states it, modulo 2**32."""
    if file_bytes < _LEAST_GZIP_BYTES or archive_of(path) is not None:
        return 0
    with path.open("rb") as file:
        file.seek(-4, 2)
        return int.from_bytes(file.read(4), "little")


def _gunzipped(file: BinaryIO) -> Iterator[bytes]:
    """The text of all members of a gzip file."""
    decoder = isal_zlib.decompressobj(_GZIP_WINDOW)
    packed = b""
    try:
        while True:
            packed = packed or file.read(_FILE_BYTES)
            is_last = not packed
            piece = decoder.flush() if is_last else decoder.decompress(packed, PIECE_BYTES)
            if piece:
                yield piece
            packed = decoder.unconsumed_tail
            if decoder.eof:
                packed = decoder.unused_data + file.read(_FILE_BYTES)
                if not packed.startswith(_GZIP):
                    return  # padding, as tar and tape leave it
                decoder = isal_zlib.decompressobj(_GZIP_WINDOW)
            elif is_last:
                raise CutShortError(_ENDS_EARLY)
    except isal_zlib.error as err:  # type: ignore[misc]  # the library has no types
        raise CutShortError(f"the compressed data is damaged ({err})") from err


def _from_archive(path: Path) -> Iterator[bytes]:
    """The text of the one trace in an archive; of gzip what is inside it."""
    with opened_member(path, path, _only_trace(path)) as member:
        try:
            packed = member.peek(len(_GZIP)).startswith(_GZIP)  # type: ignore[attr-defined]
            yield from _gunzipped(member) if packed else _plain(member)
        except DAMAGED as err:
            raise CutShortError(f"the archive is damaged ({err})") from err


def _only_trace(path: Path) -> str:
    """The one file in an archive, or the one JSON file if there are others."""
    names = member_names(path)
    named_json = [name for name in names if name.endswith((".json", ".json.gz"))]
    chosen = names if len(names) == 1 else named_json
    if len(chosen) == 1:
        return chosen[0]
    shown = ", ".join(map(repr, names[:_MAX_SHOWN]))
    raise TraceError(
        f"cannot read {path}: the archive holds {len(names)} files ({shown}"
        f"{', ...' if len(names) > _MAX_SHOWN else ''}), expected one trace; name the archive "
        "alone, or unpack it and name the traces"
    )


def _unpacked(file: BinaryIO, opener: Callable[[BinaryIO], IO[bytes]]) -> Iterator[bytes]:
    """The text of a file that one of the standard library's modules unpacks."""
    with opener(file) as text:
        try:
            yield from _plain(text)
        except DAMAGED as err:
            raise CutShortError(f"the compressed data is damaged ({err})") from err


def _unzstd(file: BinaryIO) -> Iterator[bytes]:
    """The text of a file of zstd, with the standard library from Python 3.14 on.

    Raises:
        TraceError: without a package that can.
    """
    try:
        zstd = importlib.import_module("compression.zstd")
        return _unpacked(file, zstd.open)
    except ModuleNotFoundError:
        pass
    try:
        zstandard = importlib.import_module("zstandard")
    except ModuleNotFoundError as err:
        raise TraceError(
            f"cannot read {file.name}: it is compressed with zstd; "
            "`pip install 'foretrace[zstd]'`, or run `unzstd` on it first"
        ) from err
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
    return _zstandard(reader, zstandard.ZstdError)


def _zstandard(reader: IO[bytes], error: type[Exception]) -> Iterator[bytes]:
    try:
        yield from _plain(reader)
    except error as err:
        raise CutShortError(f"the compressed data is damaged ({err})") from err


_TEXT_OF: dict[bytes, Callable[[BinaryIO], Iterator[bytes]]] = {
    _GZIP: _gunzipped,
    b"\x28\xb5\x2f\xfd": _unzstd,
    b"\xfd7zXZ\x00": lambda file: _unpacked(file, lzma.open),
    b"BZh": lambda file: _unpacked(file, bz2.open),
}


# git-lfs docs/spec.md: the first line of what stands in a repository in place of a large file.
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def _check_is_json(path: Path, first: bytes) -> None:
    text = first.lstrip(_BLANKS)
    if not text:
        raise TraceError(f"cannot read {path}: the file holds only blanks; record it again")
    if text[:1] in (b"{", b"["):
        return
    if text.startswith(_LFS_POINTER):
        raise TraceError(
            f"cannot read {path}: it is a pointer of Git LFS, and the trace itself is elsewhere; "
            "`git lfs pull` in its repository fetches it"
        )
    is_text = all(byte >= ord(" ") or byte in _BLANKS for byte in text[:256])
    what = f"text that begins {text[:24]!r}" if is_text else f"binary data {text[:8].hex(' ')}"
    raise TraceError(
        f"cannot read {path}: found {what}, expected a Kineto trace, JSON that begins with "
        "'{' or '['; name the file that torch.profiler's export_chrome_trace wrote"
    )
