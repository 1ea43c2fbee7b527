"""Many files become one trace per rank.

Files are read at the same time by threads: the decompressor and the compiled loop run without
the interpreter's lock, and 86% of the time is theirs: eight files of 35 MB take 0.71 s with one
thread and 0.38 s with two, on two cores. Threads need no start-up, where a fresh process takes
0.3 s to import what reads, and nothing is copied between processes.
With a cache folder the columns are written to it and mapped from it, so what stays in memory does
not grow with the ranks.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypedDict, TypeVar, Unpack

from foretrace.base import TraceError
from foretrace.trace import formats
from foretrace.trace.cache import (
    DEFAULT_MAX_BYTES,
    DamagedEntryError,
    entry_path,
    mapped_or_same,
    prune,
    read_entry,
    with_note,
)
from foretrace.trace.chakra import ChakraTrace
from foretrace.trace.columns import ProcessGroup, Trace
from foretrace.trace.discover import FoundFiles, discover
from foretrace.trace.formats import read_graph, read_profile
from foretrace.trace.merged import ranks_within
from foretrace.trace.ranks import rank_in_head, rank_in_name, ranked
from foretrace.trace.source import content_key, opened_source
from foretrace.trace.steps import step_marks, with_step_mark, with_steps

Progress = Callable[[int, int], None]
Loaded = TypeVar("Loaded", Trace, ChakraTrace)
# Beyond it the interpreter's lock is the limit: 12 of 87 ms per file of 35 MB are spent outside
# the loop and the decompressor, part of them in numpy, which lets go of the lock too.
_MAX_THREADS = 12


class ReadingOptions(TypedDict, total=False):
    """What of a run is read, and how."""

    ranks: Collection[int] | None  # only these; all, if left out
    steps: Collection[str | int] | None  # so too, by name or number of their marks
    step_mark: str  # how marks of steps begin, where they are not among those that are known
    cache_folder: Path | None  # where parsed columns are kept; nowhere, if left out
    max_cache_bytes: int  # what that folder may hold; what was used longest ago goes first
    workers: int | None  # files read at the same time; the number of cores, if left out
    progress: Progress | None  # called with files done and files in all


def load_traces(
    paths: Iterable[str | Path] | str | Path, **options: Unpack[ReadingOptions]
) -> tuple[Trace, ...]:
    """The traces of one run, one per rank, by rank.

    Args:
        paths: files, globs and folders, as `discover` takes them.
        options: what of them.

    Raises:
        TraceError: if a file cannot be read, two are of one rank or of different runs, or a
            rank or step that was asked for is not there.
    """
    return _profiles(discover(paths), **options)


def load_run(
    paths: Iterable[str | Path] | str | Path, **options: Unpack[ReadingOptions]
) -> tuple[Trace, ...] | tuple[ChakraTrace, ...]:
    """The run in these files, whatever their format; the arguments are those of `load_traces`.

    Raises:
        TraceError: if a file cannot be read, files are of different formats or runs, or a rank or
            step that was asked for is not there.
    """
    found = discover(paths, (*formats.PROFILES, *formats.GRAPHS))
    if found.format in formats.GRAPHS:
        return _graphs(found, ranks=options.get("ranks"), steps=options.get("steps"))
    return _profiles(found, **options)


def _profiles(
    found: FoundFiles,
    *,
    ranks: Collection[int] | None = None,
    steps: Collection[str | int] | None = None,
    step_mark: str = "",
    cache_folder: Path | None = None,
    max_cache_bytes: int = DEFAULT_MAX_BYTES,
    workers: int | None = None,
    progress: Progress | None = None,
) -> tuple[Trace, ...]:
    chosen = found.paths if ranks is None else _of_ranks(found.paths, ranks)
    read = read_files(chosen, cache_folder=cache_folder, workers=workers, progress=progress)
    traces = ranked([part for trace in read for part in ranks_within(trace)])
    if ranks is not None:
        traces = _only_ranks(traces, ranks)
    if step_mark:
        traces = tuple(with_step_mark(trace, step_mark) for trace in traces)
        for trace in traces:
            step_marks(trace)  # refuses words that nothing begins with
    if steps is not None:
        traces = tuple(with_steps(trace, steps) for trace in traces)
    if cache_folder is not None:
        with suppress(OSError):  # a cache that cannot be pruned is no reason to fail
            prune(cache_folder, max_cache_bytes)
    if found.note is not None:
        traces = (with_note(traces[0], found.note), *traces[1:])
    return traces


def _graphs(
    found: FoundFiles, *, ranks: Collection[int] | None, steps: Collection[str | int] | None
) -> tuple[ChakraTrace, ...]:
    if steps is not None:
        raise TraceError(
            f"cannot take steps {', '.join(map(str, steps))} of {found.paths[0]}: a "
            f"{found.format.name} does not mark steps; load it whole"
        )
    traces = tuple(read_graph(path) for path in found.paths)
    return traces if ranks is None else _only_ranks(traces, ranks)


def read_cached(path: Path, cache_folder: Path | None) -> Trace:
    """One file's trace, from the cache if it was read before, and kept there if not.

    Raises:
        TraceError: if the file cannot be read.
    """
    key = content_key(path)
    if cache_folder is None:
        return _keyed(read_profile(path), key)
    note = None
    try:
        trace = read_entry(entry_path(cache_folder, key))
    except DamagedEntryError as err:
        trace, note = None, f"the cache entry was damaged ({err}), so the file was read again"
    if trace is None:
        trace = mapped_or_same(_keyed(read_profile(path), key), cache_folder)
    if trace.meta.path != path:
        trace = at_path(trace, path)
    return trace if note is None else with_note(trace, note)


def _keyed(trace: Trace, key: str) -> Trace:
    return replace(trace, meta=replace(trace.meta, content_key=key))


def at_path(trace: Trace, path: Path) -> Trace:
    """The same trace, found at another place."""
    return replace(trace, meta=replace(trace.meta, path=path))


def read_traces(paths: Sequence[Path], *, cache_folder: Path | None = None) -> list[Trace]:
    """The trace of each file with the rank that it or its name states, in the order of the files.

    Raises:
        TraceError: if a file cannot be read.
    """
    traces = read_files(paths, cache_folder=cache_folder, workers=None, progress=None)
    return [
        trace
        if trace.meta.rank is not None
        else replace(trace, meta=replace(trace.meta, rank=rank_in_name(trace.meta.path)))
        for trace in traces
    ]


def read_files(
    paths: Sequence[Path],
    *,
    cache_folder: Path | None,
    workers: int | None,
    progress: Progress | None,
) -> list[Trace]:
    """The trace of each file, in the order of the files, whatever runs they are of."""
    if workers is not None and workers < 1:
        raise ValueError(f"workers must be at least 1, got {workers}")
    num_threads = max(min(workers or min(os.cpu_count() or 1, _MAX_THREADS), len(paths)), 1)
    read = partial(read_cached, cache_folder=cache_folder)
    found: dict[int, Trace] = {}
    known: dict[ProcessGroup, ProcessGroup] = {}
    for place, trace in _as_read(paths, read, num_threads):
        found[place] = _with_shared_groups(trace, known)
        if progress is not None:
            progress(len(found), len(paths))
    return [found[place] for place in range(len(paths))]


def _as_read(
    paths: Sequence[Path], read: Callable[[Path], Trace], num_threads: int
) -> Iterator[tuple[int, Trace]]:
    """Each file's place and trace, as soon as it is read."""
    if num_threads == 1:
        yield from ((place, read(path)) for place, path in enumerate(paths))
        return
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="foretrace-read")
    try:
        place_of = {pool.submit(read, path): place for place, path in enumerate(paths)}
        for future in as_completed(place_of):
            yield place_of.pop(future), future.result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _with_shared_groups(trace: Trace, known: dict[ProcessGroup, ProcessGroup]) -> Trace:
    """The same trace, its groups the objects that others hold: every file lists a group's ranks."""
    groups = tuple(known.setdefault(group, group) for group in trace.meta.process_groups)
    return replace(trace, meta=replace(trace.meta, process_groups=groups)) if groups else trace


def _of_ranks(paths: Sequence[Path], ranks: Collection[int]) -> tuple[Path, ...]:
    """The files that are of these ranks or do not say before they are read whole."""
    stated = {path: _stated_rank(path) for path in paths}
    chosen = tuple(path for path in paths if stated[path] is None or stated[path] in ranks)
    if not chosen:
        raise _no_such_ranks(ranks, [rank for rank in stated.values() if rank is not None])
    return chosen


def _stated_rank(path: Path) -> int | None:
    with opened_source(path) as source:
        in_head = rank_in_head(next(source.pieces, b""))
    return rank_in_name(path) if in_head is None else in_head


def _only_ranks(traces: Sequence[Loaded], ranks: Collection[int]) -> tuple[Loaded, ...]:
    kept = tuple(trace for trace in traces if trace.meta.rank in ranks)
    found = [trace.meta.rank for trace in traces if trace.meta.rank is not None]
    if set(ranks) - set(found):
        raise _no_such_ranks(sorted(set(ranks) - set(found)), found)
    return kept


def _no_such_ranks(ranks: Collection[int], found: Sequence[int]) -> TraceError:
    return TraceError(
        f"no trace of rank {', '.join(str(rank) for rank in sorted(ranks))}: found "
        f"{', '.join(str(rank) for rank in sorted(found)[:20]) or 'none'}; name ranks that "
        "were recorded"
    )
