"""Which execution trace lies beside which Kineto trace."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from foretrace.base import TraceError
from foretrace.trace.archives import files_in
from foretrace.trace.formats import EXECUTION, JSON_ENDINGS, format_of
from foretrace.trace.ranks import rank_in_name

# What tells the two apart in names that are else the same: "linear_et", "linear_kineto".
_KINDS = re.compile(r"kineto|execution_trace|host|device|trace|et|pt|json|gz|tar|tgz")
_MOST_FILES = 2_000  # of a folder that are looked at


def execution_traces_beside(paths: Sequence[Path]) -> dict[Path, Path]:
    """The execution trace of each of these Kineto files that has one in its folder.

    Names say which belong together: by rank, else by what is left without the words for the kind.
    A lone pair in a folder belongs together whatever its names.
    """
    found: dict[Path, Path] = {}
    for folder in dict.fromkeys(path.parent for path in paths):
        kineto = [path for path in paths if path.parent == folder]
        others = _in_folder(folder, set(kineto))
        by_rank = {rank_in_name(path): path for path in others}
        by_stem = {_stem(path): path for path in others}
        for path in kineto:
            rank = rank_in_name(path)
            other = by_stem.get(_stem(path)) or (by_rank.get(rank) if rank is not None else None)
            if other is None and len(kineto) == len(others) == 1:
                other = others[0]
            if other is not None:
                found[path] = other
    return found


def _in_folder(folder: Path, known: set[Path]) -> list[Path]:
    files = sorted(path for path in files_in(folder) if path.name.endswith(JSON_ENDINGS))
    files = [path for path in files if path not in known][:_MOST_FILES]
    return [path for path in files if _is_execution_trace(path)]


def _is_execution_trace(path: Path) -> bool:
    try:
        return format_of(path) is EXECUTION
    except TraceError:
        return False


def _stem(path: Path) -> tuple[str, ...]:
    words = re.split(r"[._-]+", path.name.lower())
    return tuple(word for word in words if not _KINDS.fullmatch(word))
