"""What files contain; execution traces joined with Kineto traces, or made into benchmarks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeAlias

from foretrace.api.folders import cache_folder_of
from foretrace.bench import Benchmark, Mode, Recipe, generate
from foretrace.graph import Inspection, Links, links_of
from foretrace.trace import (
    GRAPHS,
    PROFILES,
    discover,
    execution_traces_beside,
    local_copies,
    read_execution_trace,
    read_traces,
)
from foretrace.trace import inspect as inspected

Paths: TypeAlias = str | Path | Iterable[str | Path]


def link(paths: Paths, *, cache: bool | Path = True) -> Links:
    """Which event of each Kineto trace every operator of its execution trace is.

    Gives operators their schemas, tensors their identity, and communication its whole metadata.
    Ranks without an execution trace beside them are left out.

    Args:
        paths: the Kineto files: files, globs or folders.
        cache: whether to keep the parsed columns, as in `load`.

    Raises:
        TraceError: if a file cannot be read.
    """
    with local_copies(paths) as files:
        found = execution_traces_beside(discover(files).paths)
        traces = read_traces(list(found), cache_folder=cache_folder_of(cache))
        return links_of(
            [
                (trace, read_execution_trace(path))
                for trace, path in zip(traces, found.values(), strict=True)
            ]
        )


def inspect(
    paths: Paths, *, cache: bool | Path = True, progress: Callable[[int, int], None] | None = None
) -> Inspection:
    """What each file contains, what it lacks for a replay, and how to record a better one.

    Execution traces beside the files are joined with them, as `link` does.

    Args:
        paths: files, globs or folders; they need not be of one run.
        cache: whether to keep the parsed columns, as in `load`.
        progress: called with files done and files in all.

    Raises:
        TraceError: if a file cannot be read.
    """
    with local_copies(paths) as files:
        found = inspected(files, cache_folder=cache_folder_of(cache), progress=progress)
        kind = discover(files, (*PROFILES, *GRAPHS)).format
        links = Links(()) if kind in GRAPHS else link(files, cache=cache)
        return Inspection(found, links)


def benchmark(
    trace: str | Path,
    *,
    kineto: str | Path | None = None,
    mode: Mode | str = Mode.FULL,
    step: str | int | None = None,
    subgraph: str | None = None,
) -> Benchmark:
    """A program that replays a step of an execution trace; `.write(path)` leaves it in a file.

    Args:
        trace: an execution trace of PyTorch.
        kineto: the Kineto trace of the same run: times and streams of operators.
        mode: "full", "compute" (no collectives) or "communication" (nothing else).
        step: name or number where steps are marked; the first, if left out.
        subgraph: only operators that ran inside nodes of this name.

    Raises:
        TraceError: if a file cannot be read, or holds nothing of what is asked for.
    """
    recipe = Recipe(mode=Mode(mode), step=None if step is None else str(step), subgraph=subgraph)
    return generate(Path(trace), kineto=None if kineto is None else Path(kineto), recipe=recipe)
