"""Which files to read: named files as they are, and those of one format in folders and globs."""

from __future__ import annotations

import glob
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from foretrace.base import TraceError
from foretrace.trace import formats
from foretrace.trace import others as others_in
from foretrace.trace.archives import archive_of, is_archive, member_names
from foretrace.trace.formats import AnyFormat, format_of, known_formats
from foretrace.trace.sidecar import step_times_path

# What a file is; a text says why it is nothing that is read.
Kind: TypeAlias = AnyFormat | str | None


@dataclass(frozen=True)
class FoundFiles:
    """Files to read, all of one format, and what stood beside them."""

    format: AnyFormat
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


def discover(
    paths: Iterable[str | Path] | str | Path, wanted: Sequence[AnyFormat] = ()
) -> FoundFiles:
    """The files of one format that these files, globs and folders name.

    A file that is named is taken as it is, so that a wrong one is refused with its reason. In a
    folder and behind a glob there may be several forms of one run: those of the first format that
    has any are taken, the others skipped and counted. A folder without any file of its own that
    could be a trace stands for the folders in it.

    Args:
        paths: files, globs and folders.
        wanted: formats in question, of which the first is taken where none is recognised; those
            that become columns, if left out.

    Raises:
        TraceError: if something named does not exist, nothing is found, or named files are of
            different formats.
    """
    listed = (paths,) if isinstance(paths, str | Path) else tuple(paths)
    wanted = wanted or formats.PROFILES
    endings = tuple(dict.fromkeys(ending for one in wanted for ending in one.endings))
    files = _files(listed, endings)
    kinds = {path: _kind(path) for path in files}
    taken = _taken(files, kinds, wanted)
    own = [path for path in files if kinds[path] is taken]
    own = [path for path in own if path.name.endswith(taken.endings)] or own
    chosen = {*own, *(path for path in files if files[path])}
    found = [path for path in files if path in chosen]
    beside = {step_times_path(path) for path in found}  # read with them
    skipped = Counter(_words(kinds[path]) for path in files if path not in chosen | beside)
    result = FoundFiles(taken, tuple(found), dict(skipped))
    if not found:
        what = ", ".join(repr(str(each)) for each in listed[:5]) or "nothing"
        raise TraceError(
            f"no traces found: looked in {what}{f' ({result.note})' if result.note else ''}; name "
            "the files that torch.profiler's export_chrome_trace wrote, one per rank"
        )
    return result


def _files(listed: Sequence[str | Path], endings: tuple[str, ...]) -> dict[Path, bool]:
    """The files in question, and whether each is named itself, in the order named."""
    files: dict[Path, bool] = {}
    for each in listed:
        path = Path(each)
        if path.is_dir():
            others = _candidates(path, endings)
        elif path.is_file() and is_archive(path):
            names = [name for name in member_names(path) if name.endswith(endings)]
            if len(names) < 2:  # noqa: PLR2004  one is read as if the archive were the file
                files[path] = True
                continue
            others = [path / name for name in names]
        elif path.exists() or archive_of(path) is not None:
            files.update(dict.fromkeys(others_in.process_paths(path), True))
            continue
        else:
            others = [Path(match) for match in sorted(_matches(str(each)))]
            others = [match for match in others if match.is_file()]
            if not others:
                raise TraceError(
                    f"cannot read {str(each)!r}: no such file or folder, and no file matches it"
                )
        for other in others:
            for one in _processes(other):
                files.setdefault(one, False)
    return files


def _processes(path: Path) -> list[Path]:
    try:
        return others_in.process_paths(path)
    except TraceError:  # its kind says so
        return [path]


def _taken(
    files: Mapping[Path, bool], kinds: Mapping[Path, Kind], wanted: Sequence[AnyFormat]
) -> AnyFormat:
    """The format that the named files are of; where none is named, the first that is there."""
    named = [path for path in files if files[path]]
    stated = [(one, path) for path in named or files for one in wanted if kinds[path] is one]
    if not stated:
        return wanted[0]  # whose reader says what is wrong with a named file
    first, path = min(stated, key=lambda each: wanted.index(each[0]))
    for other, beside in stated if named else ():
        if other is not first:
            raise TraceError(
                f"cannot read {path} and {beside} as one run: the one is a {first.name}, the "
                f"other a {other.name}; name files of one format"
            )
    return first


def files_named(name: str) -> list[Path]:
    """The files that could be traces which a file's name, a folder or a glob stands for."""
    path = Path(name)
    if path.is_dir():
        return _candidates(path, tuple({end for one in known_formats() for end in one.endings}))
    return [path] if path.exists() else [Path(match) for match in _matches(name)]


def _matches(pattern: str) -> list[str]:
    return glob.glob(pattern, recursive=True)  # noqa: PTH207  Path.glob takes no absolute pattern


def _candidates(folder: Path, endings: tuple[str, ...]) -> list[Path]:
    own = [path for path in folder.iterdir() if path.is_file() and path.name.endswith(endings)]
    if not own:
        own = [path for path in folder.rglob("*") if path.is_file() and path.name.endswith(endings)]
    return sorted(own)


def _kind(path: Path) -> Kind:
    try:
        return format_of(path)
    except TraceError:
        return "unreadable file"


def _words(kind: Kind) -> str:
    if kind is None:
        return "other JSON file"
    return kind if isinstance(kind, str) else kind.name
