"""Files in archives (`run.tar/rank0.json`), and files that lie elsewhere (`s3://`, `https://`).

A database that holds several processes is such a folder too: `report.sqlite/4711` is the whole
file, of which a reader tells the process with that number.

What is parsed of them is kept as of any file; the copies are not.
"""

from __future__ import annotations

import lzma
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any, BinaryIO

from foretrace.base import MissingExtraError, TraceError, optional

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

_fsspec: Any = optional("fsspec", extra="remote")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_MANY = re.compile(r"[*?\[]")


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


@contextmanager
def local_copies(paths: Iterable[str | Path] | str | Path) -> Iterator[list[str | Path]]:
    """The paths, with what an address names copied into a folder that goes when it is left.

    An address of a folder, or with a glob, stands for a folder of its files.

    Raises:
        TraceError: if an address cannot be read, or names nothing.
        MissingExtraError: if fsspec is not installed.
    """
    listed = [paths] if isinstance(paths, str | Path) else list(paths)
    if not any(_is_address(each) for each in listed):
        yield listed
        return
    with TemporaryDirectory(prefix="foretrace-") as folder:
        yield [
            _copied(str(each), Path(folder) / str(number)) if _is_address(each) else each
            for number, each in enumerate(listed)
        ]


def _is_address(path: str | Path) -> bool:
    return isinstance(path, str) and _ADDRESS.match(path) is not None


def _copied(address: str, folder: Path) -> Path:
    folder.mkdir()
    try:
        files, root = _fsspec.core.url_to_fs(address)
        if _MANY.search(address) and not address.lower().startswith("http"):
            names = [name for name in sorted(files.glob(root)) if files.isfile(name)]
        elif files.isfile(root):
            target = folder / Path(root.partition("?")[0]).name
            files.get_file(root, str(target))
            return target
        else:
            names = sorted(files.find(root, maxdepth=1))
        for name in names:
            files.get_file(name, str(folder / Path(name).name))
    except MissingExtraError:
        raise
    except ImportError as err:  # fsspec names the package that speaks the protocol
        raise TraceError(f"cannot read {address!r}: {err}") from err
    except Exception as err:  # every protocol's library has errors of its own
        raise TraceError(
            f"cannot read {address!r}: {type(err).__name__}: {err}; is the address right, and do "
            "you have the right to read it?"
        ) from err
    if not names:
        raise TraceError(f"cannot read {address!r}: there is no file at this address")
    return folder
