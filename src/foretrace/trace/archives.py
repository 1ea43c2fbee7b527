"""Files in tar and zip archives, named as if the archive were a folder: `run.tar/rank0.json`.

A database that holds several processes is such a folder too: `report.sqlite/4711` is the whole
file, of which a reader tells the process with that number.
"""

from __future__ import annotations

import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from foretrace.base import TraceError

# What readers of archives and of compressed streams raise on damaged ones.
DAMAGED = (
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    OSError,
    NotImplementedError,  # a way of packing that Python does not know
    RuntimeError,  # a member with a password
)
SQLITE = b"SQLite format 3\0"
_APPLE = "._"  # attributes that macOS puts beside files


def archive_of(path: Path) -> tuple[Path, str] | None:
    """The archive that a path leads into, and the member's name; `None` of a path of its own."""
    if path.exists():
        return None
    for parent in path.parents:
        if parent.is_file():
            return parent, path.relative_to(parent).as_posix()
    return None


def is_database(path: Path) -> bool:
    """Whether a file is one of SQLite; a pipe is not waited for."""
    if not path.is_file():
        return False
    try:
        with path.open("rb") as file:
            return file.read(len(SQLITE)) == SQLITE
    except OSError:
        return False


def is_archive(path: Path) -> bool:
    """Whether a file is a tar, packed or not, or a zip archive."""
    try:
        return zipfile.is_zipfile(path) or tarfile.is_tarfile(path)
    except (*DAMAGED,):
        return False


def member_names(archive: Path) -> list[str]:
    """The regular files in an archive, in its order.

    Raises:
        TraceError: if it cannot be read.
    """
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as opened:
                names = [_plain_name(one.filename) for one in opened.infolist() if not one.is_dir()]
        else:
            with tarfile.open(archive, "r:*") as tar:
                names = [_plain_name(one.name) for one in tar if one.isfile()]
    except DAMAGED as err:
        raise TraceError(f"cannot read {archive}: the archive is damaged ({err})") from err
    return [
        name
        for name in names
        if not Path(name).name.startswith(_APPLE) and ".." not in Path(name).parts
    ]


def files_in(folder: Path) -> list[Path]:
    """What lies in a folder, which may be an archive, or one in it.

    Raises:
        TraceError: if an archive cannot be read.
    """
    if folder.is_dir():
        return list(folder.iterdir())
    archive = folder if folder.is_file() else next(filter(Path.is_file, folder.parents))
    members = [archive / name for name in member_names(archive)]
    return [path for path in members if path.parent == folder]


def num_bytes(path: Path) -> int:
    """The size of a file, or of an archive's member as it is stored in it."""
    holder = archive_of(path)
    if holder is None:
        return path.stat().st_size
    archive, name = holder
    if is_database(archive):
        return archive.stat().st_size
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as opened:
            return _zip_member(opened, name).file_size
    with tarfile.open(archive, "r:*") as tar:
        return _tar_member(tar, name).size


def _plain_name(name: str) -> str:
    """A member's name as a path inside the archive: `./rank0.json` is `rank0.json`."""
    return PurePosixPath(name.lstrip("/")).as_posix()


def _zip_member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    found = (one for one in archive.infolist() if _plain_name(one.filename) == name)
    return next(found, None) or archive.getinfo(name)


def _tar_member(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    found = (one for one in archive if one.isfile() and _plain_name(one.name) == name)
    return next(found, None) or archive.getmember(name)


@contextmanager
def opened_member(path: Path, archive: Path, name: str) -> Iterator[BinaryIO]:
    """A member of an archive, for reading.

    Args:
        path: what a reader of errors is told.

    Raises:
        TraceError: if there is no such member, or the archive cannot be read.
    """
    if is_database(archive):
        with archive.open("rb") as whole:
            yield whole
        return
    try:
        if zipfile.is_zipfile(archive):
            with (
                zipfile.ZipFile(archive) as opened,
                opened.open(_zip_member(opened, name)) as member,
            ):
                yield member  # type: ignore[misc]  # it is buffered, and read alone
            return
        with tarfile.open(archive, "r:*") as tar:
            found = tar.extractfile(_tar_member(tar, name))
            yield found  # type: ignore[misc]  # as above; a regular file has one
    except KeyError as err:
        raise TraceError(f"cannot read {path}: {archive} holds no file {name!r}") from err
    except DAMAGED as err:
        raise TraceError(f"cannot read {path}: the archive is damaged ({err})") from err
