"""The columnar cache: the same trace, found by content, never a wrong one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings

from foretrace.base import TraceError
from foretrace.trace import load_traces
from foretrace.trace.cache import entry_path, prune, read_entry, write_entry
from foretrace.trace.source import content_key
from tests.trace.kineto_json import assert_same, file_text, files, trace_from

OP = {"ph": "X", "cat": "cpu_op", "name": "op", "pid": 1, "tid": 1, "ts": 1, "dur": 1}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A trace."""
    path = tmp_path / "rank0.json"
    path.write_bytes(file_text([OP, {**OP, "ts": 2, "name": "\u00e9\0"}]))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A cache folder that is not there yet."""
    return tmp_path / "cache" / "deep"


def put(path: Path, content: bytes) -> None:
    """Another file in the place of this one, which may be mapped and must keep its content."""
    path.unlink()
    path.write_bytes(content)


@settings(max_examples=60, deadline=None)
@given(text=files())
def test_an_entry_gives_back_every_column(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "entry.columns"
    try:
        trace = trace_from([text])
    except TraceError:
        return

    write_entry(trace, path)
    again = read_entry(path)

    assert again is not None
    assert_same(again, trace)
    assert again.meta == trace.meta


def test_the_second_load_comes_from_the_cache(path: Path, folder: Path) -> None:
    (first,) = load_traces(path, cache_folder=folder)
    entry = entry_path(folder, content_key(path))
    written_ns = entry.stat().st_mtime_ns

    (second,) = load_traces(path, cache_folder=folder)

    assert_same(second, first)
    assert second.meta == first.meta
    assert not second.start_ns.flags.writeable
    assert sorted(folder.iterdir()) == [entry]
    assert entry.stat().st_mtime_ns >= written_ns


def test_the_cache_is_used_and_not_merely_written(path: Path, folder: Path) -> None:
    load_traces(path, cache_folder=folder)
    other = trace_from([file_text([{**OP, "name": "from the cache"}])])
    write_entry(other, entry_path(folder, content_key(path)))

    (trace,) = load_traces(path, cache_folder=folder)

    assert trace.strings == ("from the cache",)


def test_content_and_not_the_path_names_an_entry(path: Path, folder: Path, tmp_path: Path) -> None:
    load_traces(path, cache_folder=folder)
    moved = tmp_path / "rank7.json"
    shutil.copy(path, moved)

    (trace,) = load_traces(moved, cache_folder=folder)

    assert len(list(folder.iterdir())) == 1
    assert trace.meta.path == moved
    assert trace.meta.rank == 7


def test_changed_content_is_read_anew(path: Path, folder: Path) -> None:
    load_traces(path, cache_folder=folder)
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"op"', b'"po"'))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    (trace,) = load_traces(path, cache_folder=folder)

    assert "po" in trace.strings


@pytest.mark.parametrize("at", [0, 25, 60, 400, -1])
def test_a_damaged_entry_is_read_again_and_said(path: Path, folder: Path, at: int) -> None:
    (first,) = load_traces(path, cache_folder=folder)
    entry = entry_path(folder, content_key(path))
    content = bytearray(entry.read_bytes())
    content[at] ^= 1
    put(entry, bytes(content))

    (second,) = load_traces(path, cache_folder=folder)
    (third,) = load_traces(path, cache_folder=folder)

    assert_same(second, first)
    assert "the cache entry was damaged" in second.meta.notes[0]
    assert third.meta == first.meta


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 0.99])
def test_a_cut_entry_is_read_again(path: Path, folder: Path, share: float) -> None:
    (first,) = load_traces(path, cache_folder=folder)
    entry = entry_path(folder, content_key(path))
    put(entry, entry.read_bytes()[: int(entry.stat().st_size * share)])

    (second,) = load_traces(path, cache_folder=folder)

    assert_same(second, first)
    assert "the cache entry was damaged" in second.meta.notes[0]


def test_a_folder_that_cannot_be_written_costs_only_a_note(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "file in the way"
    folder.write_text("")

    (trace,) = load_traces(path, cache_folder=folder / "cache")

    assert trace.num_events == 2
    assert "could not be written" in trace.meta.notes[0]


def test_the_entries_used_longest_ago_go_first(path: Path, folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "rank1.json"
    other.write_bytes(file_text([{**OP, "name": "other"}]))
    load_traces(path, cache_folder=folder)
    load_traces(other, cache_folder=folder)
    old, new = (entry_path(folder, content_key(each)) for each in (path, other))
    os.utime(old, ns=(1, 1))

    removed = prune(folder, max_bytes=new.stat().st_size)

    assert removed > 0
    assert sorted(folder.iterdir()) == [new]


def test_use_renews_an_entry(path: Path, folder: Path) -> None:
    load_traces(path, cache_folder=folder)
    entry = entry_path(folder, content_key(path))
    os.utime(entry, ns=(1, 1))

    load_traces(path, cache_folder=folder)

    assert entry.stat().st_mtime_ns > 1


def test_clearing_removes_entries_and_nothing_else(path: Path, folder: Path) -> None:
    load_traces(path, cache_folder=folder)
    (folder / "mine.txt").write_text("stays")

    removed = prune(folder, max_bytes=0)

    assert removed > 0
    assert [left.name for left in folder.iterdir()] == ["mine.txt"]
    assert prune(folder / "absent", max_bytes=0) == 0


def test_entries_that_were_never_finished_are_removed(folder: Path) -> None:
    folder.mkdir(parents=True)
    half = folder / ".key-revision.columns.abc.tmp"
    half.write_bytes(b"half")
    os.utime(half, ns=(0, 0))

    assert prune(folder) == 4
    assert not half.exists()
