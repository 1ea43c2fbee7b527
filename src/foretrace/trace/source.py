"""A file's bytes as text, decompressed piece by piece; what is no JSON is told apart.

In: a path. Out: pieces of JSON text, never more than about a MB at once, and a key that
changes with the file's content.
"""

from __future__ import annotations

import hashlib
import stat
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from isal import isal_zlib

from foretrace.base import TraceError

# Text is scanned while it is still in the second-level cache (1 MB here): on a file of 54 MB,
# 256 kB to 1 MB took the same time, 64 kB 7% and 4 MB 1% more.
PIECE_BYTES = 1024 * 1024
_LEAST_GZIP_BYTES = 18  # header and trailer: RFC 1952
_MAX_SHOWN = 5
_FILE_BYTES = 64 * 1024
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_GZIP_WINDOW = isal_zlib.MAX_WBITS | 16
_ENDS_EARLY = "the compressed data ends early"
_BLANKS = b" \t\r\n"
_TAR_MARK_AT = 257
_OTHER_ARCHIVES = (
    (b"PK\x03\x04", "a zip archive", "unzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unzstd"),
    (b"\xfd7zXZ\x00", "compressed with xz", "unxz"),
    (b"BZh", "compressed with bzip2", "bunzip2"),
    (b"\xff\xfe", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
    (b"\xfe\xff", "text in UTF-16", "iconv -f UTF-16 -t UTF-8"),
)


class CutShortError(Exception):
    """Ends a stream of pieces whose file stops early or is damaged; never leaves this folder."""


@dataclass(frozen=True)
class Source:
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
    with _opened(path) as file:
        while block := file.read(_FILE_BYTES):
            checks = (len(block), isal_zlib.crc32(block), isal_zlib.adler32(block))
            digest.update(b"%d %d %d;" % checks)
    return digest.hexdigest()


@contextmanager
def opened_source(path: Path) -> Iterator[Source]:
    """The file's text, plain, from gzip, or from the one file in a tar archive.

    Raises:
        TraceError: if the file cannot be read, is empty, or is no JSON text.
    """
    with _opened(path) as file:
        file_bytes = path.stat().st_size
        head = _head(file, path)
        for mark, what, command in _OTHER_ARCHIVES:
            if head.startswith(mark):
                raise TraceError(
                    f"cannot read {path}: it is {what}; run `{command}` on it first "
                    "(plain text, gzip and tar are read as they are)"
                )
        if head.startswith(_GZIP):
            pieces = _gunzipped(file)
            likely = _stated_bytes(path, file_bytes)
        else:
            pieces = _plain(file)
            likely = file_bytes
        first = next_piece(pieces, path)
        if first[_TAR_MARK_AT : _TAR_MARK_AT + 5] == b"ustar":
            pieces = _from_tar(path)
            first = next_piece(pieces, path)
        first = first.removeprefix(_BYTE_ORDER_MARK)
        _check_is_json(path, first)
        yield Source(path, file_bytes, likely, _chained(first, pieces))


@contextmanager
def opened_bytes(path: Path) -> Iterator[Iterator[bytes]]:
    """The file's bytes in pieces, plain, from gzip, or from the one file in a tar archive.

    Raises:
        TraceError: if the file cannot be read or is empty.
    """
    with _opened(path) as file:
        pieces = _gunzipped(file) if _head(file, path).startswith(_GZIP) else _plain(file)
        first = next_piece(pieces, path)
        if first[_TAR_MARK_AT : _TAR_MARK_AT + 5] == b"ustar":
            pieces = _from_tar(path)
            first = next_piece(pieces, path)
        yield _chained(first.removeprefix(_BYTE_ORDER_MARK), pieces)


def _head(file: BinaryIO, path: Path) -> bytes:
    head: bytes = file.peek(_FILE_BYTES)  # type: ignore[attr-defined]  # it is buffered
    if not head:
        raise TraceError(f"cannot read {path}: the file is empty; record or copy it again")
    return head


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
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


def _plain(file: BinaryIO) -> Iterator[bytes]:
    while piece := file.read(PIECE_BYTES):
        yield piece


def _stated_bytes(path: Path, file_bytes: int) -> int:
    """The length of the text as the end of a gzip file states it, modulo 2**32."""
    if file_bytes < _LEAST_GZIP_BYTES:
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


def _from_tar(path: Path) -> Iterator[bytes]:
    """The text of the one regular file in a tar archive."""
    try:
        with tarfile.open(path, "r:*") as archive:
            file = archive.extractfile(_only_trace(path, archive))
            while file is not None and (piece := file.read(PIECE_BYTES)):
                yield piece
    except (tarfile.TarError, EOFError, OSError) as err:
        raise CutShortError(f"the archive is damaged ({err})") from err


def _only_trace(path: Path, archive: tarfile.TarFile) -> tarfile.TarInfo:
    """The one file in an archive, or the one JSON file if there are others."""
    members = [
        member
        for member in archive
        if member.isfile() and not Path(member.name).name.startswith("._")  # macOS attributes
    ]
    named_json = [member for member in members if member.name.endswith((".json", ".json.gz"))]
    chosen = members if len(members) == 1 else named_json
    if len(chosen) == 1:
        return chosen[0]
    shown = ", ".join(repr(member.name) for member in members[:_MAX_SHOWN])
    raise TraceError(
        f"cannot read {path}: the archive holds {len(members)} files ({shown}"
        f"{', ...' if len(members) > _MAX_SHOWN else ''}), expected one trace; unpack it and "
        "name the traces"
    )


def _check_is_json(path: Path, first: bytes) -> None:
    text = first.lstrip(_BLANKS)
    if not text:
        raise TraceError(f"cannot read {path}: the file holds only blanks; record it again")
    if text[:1] in (b"{", b"["):
        return
    is_text = all(byte >= ord(" ") or byte in _BLANKS for byte in text[:256])
    what = f"text that begins {text[:24]!r}" if is_text else f"binary data {text[:8].hex(' ')}"
    raise TraceError(
        f"cannot read {path}: found {what}, expected a Kineto trace, JSON that begins with "
        "'{' or '['; name the file that torch.profiler's export_chrome_trace wrote"
    )
