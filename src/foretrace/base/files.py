"""Output files that are whole or absent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def written_beside(path: Path) -> Iterator[Path]:
    """A temporary path in `path`'s folder, moved onto `path` when the block ends without error.

    The folder is made if it is missing. If the block raises, the temporary file is removed and
    whatever was at `path` before is untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    os.close(handle)
    beside = Path(name)
    try:
        yield beside
        # mkstemp makes files that only their owner reads; an output follows the umask.
        umask = os.umask(0)
        os.umask(umask)
        beside.chmod(0o666 & ~umask)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
