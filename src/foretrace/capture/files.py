"""A recording's files: their names, and how raw ones become small and whole."""

from __future__ import annotations

import gzip
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from foretrace.base import TraceError, written_beside
from foretrace.capture.gloo import calls_in, metadata_line, named_calls
from foretrace.trace import STEP_MARK, FlightEntry, ProcessGroup

# zlib's default: 168 KB for a 2.7 MB Kineto file in 18 ms; level 9 makes 144 KB in 80 ms, and
# isal's strongest 266 KB in 7 ms (4 steps of 4 layers, torch 2.13).
_GZIP_LEVEL = 6
_CHUNK_BYTES = 1 << 20
# The trace's own name stands in its last line (torch 2.13).
_TAIL_BYTES = 16_384
_TRACE_NAME = re.compile(rb'"traceName": "(?:[^"\\]|\\.)*"')
_RANK_FILE = re.compile(r"rank(\d+)\.(kineto\.json\.gz|et\.json\.gz|steps\.json)$")


def kineto_path(folder: Path, rank: int) -> Path:
    """The rank's Kineto trace."""
    return folder / f"rank{rank}.kineto.json.gz"


def execution_trace_path(folder: Path, rank: int) -> Path:
    """The rank's PyTorch execution trace."""
    return folder / f"rank{rank}.et.json.gz"


def require_usable(folder: Path, world_size: int) -> None:
    """Make the folder and try it, before hours of training depend on it.

    Raises:
        TraceError: if it cannot be written to, or holds ranks that this job does not have.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise TraceError(
            f"cannot record: no file can be written to {str(folder)!r} ({error}); "
            "choose another folder"
        ) from error
    foreign = sorted(
        path.name
        for path in folder.iterdir()
        if (found := _RANK_FILE.match(path.name)) and int(found[1]) >= world_size
    )
    if foreign:
        raise TraceError(
            f"cannot record: {str(folder)!r} holds {foreign[0]!r} of another recording, and this "
            f"job has {world_size} rank(s); choose an empty folder, or remove what is in it"
        )


@contextmanager
def raw_file(folder: Path, stem: str) -> Iterator[Path]:
    """A path for a raw file in the folder; what is there is removed at the end."""
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{stem}.") as inside:
        yield Path(inside) / f"{stem}.json"


def write_compressed(raw: Path, path: Path) -> None:
    """Put a compressed copy of `raw` at `path`, whole or not at all."""
    with written_beside(path) as beside, raw.open("rb") as source, _compressor(beside) as target:
        while chunk := source.read(_CHUNK_BYTES):
            target.write(chunk)


def write_completed(
    raw: Path,
    path: Path,
    *,
    entries: tuple[FlightEntry, ...],
    groups: tuple[ProcessGroup, ...],
    unfinished_step: int | None,
) -> int:
    """Put a compressed copy of the Kineto file `raw` at `path`, with what it lacks.

    Args:
        entries: gloo's collectives; their calls get NCCL's keys.
        groups: the process groups that the entries speak of.
        unfinished_step: number of a step whose mark would pass for a whole step's; its name
            is changed so that no reader takes it for one.

    Returns:
        Number of gloo calls that were given their group and sequence.
    """
    _name_trace(raw, path.name)
    if not entries and unfinished_step is None:
        write_compressed(raw, path)
        return 0
    named = {}
    if entries:
        with raw.open("rb") as lines:
            named = named_calls(list(calls_in(lines)), entries)
    group_by_name = {group.name: group for group in groups}
    mark = f'"name": "{STEP_MARK}{unfinished_step}"'.encode()
    unfinished = f'"name": "unfinished step {unfinished_step}"'.encode()
    with written_beside(path) as beside, raw.open("rb") as lines, _compressor(beside) as target:
        for number, line in enumerate(lines):
            target.write(line.replace(mark, unfinished))
            if number in named:
                name, entry = named[number]
                target.write(metadata_line(name, entry, group_by_name))
    return len(named)


def _name_trace(raw: Path, name: str) -> None:
    """Let the file call itself `name`, where PyTorch wrote the path of the raw file."""
    with raw.open("r+b") as file:
        file.seek(max(0, raw.stat().st_size - _TAIL_BYTES))
        start = file.tell()
        tail = file.read()
        file.seek(start)
        file.truncate()
        file.write(_TRACE_NAME.sub(f'"traceName": "{name}"'.encode(), tail))


@contextmanager
def _compressor(path: Path) -> Iterator[BinaryIO]:
    # No name and no time inside: the same trace gives the same bytes.
    with (
        path.open("wb") as file,
        gzip.GzipFile("", "wb", _GZIP_LEVEL, fileobj=file, mtime=0) as target,
    ):
        yield target  # type: ignore[misc]
