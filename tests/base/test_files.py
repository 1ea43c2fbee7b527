"""Outputs: whole or absent, and nothing but a regular file is ever replaced."""

from __future__ import annotations

import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from foretrace.base import (
    OutputError,
    inputs_kept,
    remove_abandoned,
    written_beside,
    written_together,
)

DAY_NS = 24 * 3600 * 10**9


def write(path: Path, text: str) -> None:
    with written_beside(path) as beside:
        beside.write_text(text)


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_device_is_written_to_and_stays_a_device() -> None:
    write(Path(os.devnull), "text")

    assert Path(os.devnull).is_char_device()


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[str] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()

    write(pipe, "text")
    reader.join()

    assert read == ["text"]
    assert pipe.is_fifo()


@pytest.mark.parametrize("exists", [True, False])
def test_the_file_that_a_link_leads_to_is_written(tmp_path: Path, *, exists: bool) -> None:
    (tmp_path / "place").mkdir()
    target, link = tmp_path / "place" / "target.txt", tmp_path / "link.txt"
    link.symlink_to(target)
    if exists:
        target.write_text("before")

    write(link, "after")

    assert link.is_symlink()
    assert target.read_text() == "after"
    assert names_in(target.parent) == ["target.txt"]


def test_a_loop_of_links_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")

    with pytest.raises(OutputError, match=r"cannot write .*symbolic links"):
        write(tmp_path / "a", "text")


def test_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="it is a folder, expected a file"):
        write(tmp_path, "text")


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("before")

    with pytest.raises(OutputError, match="cannot write "):
        write(tmp_path / "file" / "out.txt", "text")

    assert (tmp_path / "file").read_text() == "before"


@contextmanager
def files_of_at_most(num_bytes: int) -> Iterator[None]:
    """Longer files cannot be written, as on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_full_disk_keeps_what_was_there_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "out.txt"
    write(path, "before")

    with files_of_at_most(1000), pytest.raises(OutputError, match=r"cannot write .*out\.txt: file"):
        write(path, "x" * 10_000)

    assert path.read_text() == "before"
    assert names_in(tmp_path) == ["out.txt"]


def test_an_input_that_cannot_be_read_meanwhile_is_the_one_that_is_named(tmp_path: Path) -> None:
    with (
        pytest.raises(FileNotFoundError, match=r"input\.txt"),
        written_beside(tmp_path / "out.txt"),
    ):
        (tmp_path / "input.txt").read_text()


def test_half_written_files_of_ended_processes_are_removed(tmp_path: Path) -> None:
    old, new, other = (
        tmp_path / name for name in (".a.columns.x.tmp", ".b.columns.y.tmp", "c.tmp")
    )
    for path in (old, new, other):
        path.write_text("half")
    os.utime(old, ns=(0, 0))
    os.utime(other, ns=(0, 0))

    removed_bytes = remove_abandoned(tmp_path, now_ns=new.stat().st_mtime_ns + DAY_NS // 2)

    assert removed_bytes == 4
    assert names_in(tmp_path) == sorted((new.name, other.name))


@pytest.mark.parametrize("name", ["input", "linked", "hard", "folder/../input"])
def test_an_input_is_not_replaced_by_any_of_its_names(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    kept = tmp_path / "input"
    kept.write_text("kept")
    (tmp_path / "linked").symlink_to(kept)
    (tmp_path / "hard").hardlink_to(kept)

    with (
        inputs_kept([kept, tmp_path / "missing"]),
        pytest.raises(OutputError, match="one of the files that this command reads"),
    ):
        write(tmp_path / name, "lost")
    assert kept.read_text() == "kept"
    write(kept, "replaced")  # outside of the block


def test_files_that_are_written_together_appear_together(tmp_path: Path) -> None:
    with written_together():
        write(tmp_path / "one", "1")
        assert not (tmp_path / "one").exists()
        write(tmp_path / "two", "2")

    assert names_in(tmp_path) == ["one", "two"]


def test_of_files_that_are_written_together_none_stays_if_one_fails(tmp_path: Path) -> None:
    (tmp_path / "one").write_text("before")
    (tmp_path / "two").mkdir()

    def write_both() -> None:
        with written_together():
            write(tmp_path / "one", "1")
            write(tmp_path / "two", "2")

    with pytest.raises(OutputError, match="it is a folder"):
        write_both()

    assert names_in(tmp_path) == ["one", "two"]
    assert (tmp_path / "one").read_text() == "before"


def test_a_table_on_a_full_disk_is_a_sentence() -> None:
    import polars as pl

    with (
        pytest.raises(OutputError, match="no space left on device"),
        written_beside(Path(os.devnull)),
    ):
        pl.DataFrame({"a": [1]}).write_parquet("/dev/full")
