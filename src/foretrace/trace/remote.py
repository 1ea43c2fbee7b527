"""Files that lie elsewhere (`s3://`, `gs://`, `https://`): copied by fsspec while they are read.

What is parsed of them is kept as of any file; the copies are not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from foretrace.base import MissingExtraError, TraceError, optional

_fsspec: Any = optional("fsspec", extra="remote")
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_MANY = re.compile(r"[*?\[]")


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
