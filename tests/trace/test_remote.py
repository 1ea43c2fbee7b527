"""Addresses are read as files are: here of fsspec's file system in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

import foretrace as ft
from foretrace.base import TraceError
from tests.trace.test_archives import text_of


@pytest.fixture
def bucket() -> Iterator[str]:
    memory = fsspec.filesystem("memory")
    for rank in range(2):
        memory.pipe(f"/bucket/run/rank{rank}.json", text_of(rank))
    memory.pipe("/bucket/run/notes.txt", b"not a trace")
    yield "memory://bucket/run"
    memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("ending", ["", "/", "/rank*.json"])
def test_a_folder_and_a_glob_elsewhere_are_a_run(bucket: str, ending: str, tmp_path: Path) -> None:
    job = ft.load(bucket + ending, cache=tmp_path)

    assert job.graph.ranks == (0, 1)
    assert len(ft.inspect(bucket + ending, cache=tmp_path).files) == 2


def test_a_file_elsewhere_stands_beside_one_here(bucket: str, tmp_path: Path) -> None:
    here = tmp_path / "rank0.json"
    here.write_bytes(text_of(0))

    job = ft.load([here, f"{bucket}/rank1.json"], cache=tmp_path / "cache")

    assert job.graph.ranks == (0, 1)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        ("memory://bucket/none/*.json", "there is no file at this address"),
        ("memory://bucket/none.json", "there is no file at this address"),
        ("nosuch://bucket/run", "nosuch"),
    ],
)
def test_an_address_of_nothing_is_told(address: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=told):
        ft.load(address, cache=tmp_path)
