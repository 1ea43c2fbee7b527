"""Output files that are whole or absent; nothing but a regular file is ever replaced."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from pathlib import Path

from foretrace.base.errors import OutputError
from foretrace.base.times import NS_PER_DAY

_UNFINISHED = ".tmp"  # ending of a file that is being written
_ABANDONED_NS = NS_PER_DAY  # nobody writes one file for a day
_Identity = tuple[int, int]  # device and number there: the same for all names of a file
_kept: ContextVar[frozenset[_Identity]] = ContextVar("kept", default=frozenset())
_together: ContextVar[ExitStack | None] = ContextVar("together", default=None)


@contextmanager
def inputs_kept(paths: Iterable[Path]) -> Iterator[None]:
    """Within the block, `written_beside` refuses to replace any of these, by whatever name."""
    found = (path.stat() for path in paths if path.is_file())
    token = _kept.set(_kept.get() | {(one.st_dev, one.st_ino) for one in found})
    try:
        yield
    finally:
        _kept.reset(token)


@contextmanager
def written_together() -> Iterator[None]:
    """What `written_beside` writes within the block appears at its end, all of it or nothing."""
    with ExitStack() as together:
        token = _together.set(together)
        try:
            yield
        finally:
            _together.reset(token)


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A temporary path, whose content is at `path` when the block ends without error.

    The folder is made if it is missing. If the block raises, the temporary file is removed and
    whatever was at `path` before is untouched. Where `path` is a link, the file that it leads to
    is replaced; a device or a pipe is not replaced but written to.

    Raises:
        OutputError: if `path` is a folder or an input of the command, or the file cannot be
            written; a full disk is one.
    """
    together = _together.get()
    if together is not None:
        yield together.enter_context(_written_alone(path))
        return
    with _written_alone(path) as beside:
        yield beside


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that is there as a whole, or as it was before.

    Raises:
        OutputError: as `written_beside`.
    """
    with written_beside(path) as beside:
        beside.write_bytes(content.encode() if isinstance(content, str) else content)


@contextmanager
def _written_alone(path: Path) -> Iterator[Path]:
    try:
        target = _replaceable(path)
        folder = Path(tempfile.gettempdir()) if target is None else target.parent
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, prefix=f".{path.name}.", suffix=_UNFINISHED)
        os.close(handle)
    except OSError as err:
        raise _cannot_write(path, err) from err
    beside = Path(name)
    try:
        yield beside
        if target is None:
            with beside.open("rb") as whole, path.open("wb") as out:
                shutil.copyfileobj(whole, out)
        else:
            # mkstemp makes files that only their owner reads; an output follows the umask.
            umask = os.umask(0)
            os.umask(umask)
            beside.chmod(0o666 & ~umask)
            beside.replace(target)
    except OSError as err:
        if err.filename not in (None, name):  # of something that was read meanwhile
            raise
        raise _cannot_write(path, err) from err
    except Exception as err:
        if os.strerror(errno.ENOSPC) not in str(err):  # polars has an error of its own for it
            raise
        raise _cannot_write(path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))) from err
    finally:
        beside.unlink(missing_ok=True)


def _replaceable(path: Path) -> Path | None:
    """The regular file that stands at `path` or will; None if it is a device or a pipe."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return Path(os.path.realpath(path))
    mode = found.st_mode
    if (found.st_dev, found.st_ino) in _kept.get():
        raise OutputError(
            f"cannot write {path}: it is one of the files that this command reads; name another "
            "file or folder"
        )
    if stat.S_ISDIR(mode):
        raise OutputError(
            f"cannot write {path}: it is a folder, expected a file; name a file in it"
        )
    is_device = not stat.S_ISREG(mode)
    # `/dev/stdout` leads to whatever file this process prints to, which others have open.
    is_own = path.is_symlink() and path.absolute().parts[1:2] in (("dev",), ("proc",))
    return None if is_device or is_own else Path(os.path.realpath(path))


def _cannot_write(path: Path, err: OSError) -> OutputError:
    reason = (err.strerror or str(err)).lower()
    return OutputError(
        f"cannot write {path}: {reason}; nothing of it was kept, name another place or make room"
    )


def remove_abandoned(folder: Path, now_ns: int) -> int:
    """Remove the half-written files that ended processes left in a folder; bytes removed."""
    removed = 0
    for path in folder.glob(f".*{_UNFINISHED}"):
        try:
            found = path.stat()
        except FileNotFoundError:
            continue
        if stat.S_ISREG(found.st_mode) and found.st_mtime_ns < now_ns - _ABANDONED_NS:
            path.unlink(missing_ok=True)
            removed += found.st_size
    return removed
