"""Which files to read: named files as they are, and the Kineto files in folders and globs."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from foretrace.base import TraceError
from foretrace.trace.source import opened_source

_ENDINGS = (".json", ".json.gz", ".tgz", ".tar.gz")
# Words of a Kineto file's head. The list of events may begin far behind them.
_KINETO = (b'"traceEvents"', b'"ph"', b'"deviceProperties"', b'"schemaVersion"')
_NODES = (b'"nodes"', b'"schema"')
_STEPS = (b'"foretrace-steps-',)


@dataclass(frozen=True)
class Found:
    """Files to read, and what stood beside them."""

    paths: tuple[Path, ...]  # each once, in the order named, those of a folder by name
    skipped: dict[str, int]  # what the others in folders and globs are -> how many

    @property
    def note(self) -> str | None:
        """What was skipped, as a sentence; None if nothing was."""
        if not self.skipped:
            return None
        what = ", ".join(
            f"{count} {kind}" if count == 1 else f"{count} {kind.replace('file', 'files', 1)}"
            for kind, count in sorted(self.skipped.items())
        )
        return f"beside the traces, not read: {what}"


def discover(paths: Iterable[str | Path] | str | Path) -> Found:
    """The Kineto files that these files, globs and folders name.

    A file that is named is taken as it is, so that a wrong one is refused with its reason. In a
    folder and behind a glob, files that are no Kineto traces are skipped and counted. A folder
    without any file of its own that could be a trace stands for the folders in it.

    Raises:
        TraceError: if something named does not exist, or nothing is found.
    """
    found: dict[Path, None] = {}
    skipped: Counter[str] = Counter()
    listed = (paths,) if isinstance(paths, str | Path) else tuple(paths)
    for named in listed:
        path = Path(named)
        if path.is_dir():
            candidates = _candidates(path)
        elif path.exists():
            found[path] = None
            continue
        else:
            candidates = [Path(match) for match in sorted(_matches(str(named)))]
            candidates = [match for match in candidates if match.is_file()]
            if not candidates:
                raise TraceError(
                    f"cannot read {str(named)!r}: no such file or folder, and no file matches it"
                )
        for candidate in candidates:
            kind = kind_of(candidate)
            if kind == "Kineto trace":
                found[candidate] = None
            else:
                skipped[kind] += 1
    if not found:
        note = Found((), dict(skipped)).note
        what = ", ".join(repr(str(named)) for named in listed[:5]) or "nothing"
        raise TraceError(
            f"no traces found: looked in {what}{f' ({note})' if note else ''}; name the files "
            "that torch.profiler's export_chrome_trace wrote, one per rank"
        )
    return Found(tuple(found), dict(skipped))


def _matches(pattern: str) -> list[str]:
    return glob.glob(pattern, recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern


def _candidates(folder: Path) -> list[Path]:
    own = [path for path in folder.iterdir() if path.is_file() and path.name.endswith(_ENDINGS)]
    if not own:
        own = [
            path for path in folder.rglob("*") if path.is_file() and path.name.endswith(_ENDINGS)
        ]
    return sorted(own)


def kind_of(path: Path) -> str:
    """What a file is by its first text: "Kineto trace", "execution trace file", ..."""
    try:
        with opened_source(path) as source:
            head = next(source.pieces, b"")
    except TraceError:
        return "unreadable file"
    if any(word in head for word in _KINETO):
        return "Kineto trace"
    if any(word in head for word in _STEPS):
        return "file of step times"
    if all(word in head for word in _NODES):
        return "execution trace file"
    return "other JSON file"
