"""Lengths of documents from what datasets have beside their tokens."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from foretrace.balance import Documents, LogNormal, documents_of, read_documents
from foretrace.base import WorkloadError

LENGTHS = [5, 700, 1, 33]


def index(path: Path, sequences: list[int], bounds: list[int], *, sequences_said: int = -1) -> Path:
    """An index as Megatron-LM writes it."""
    count = len(sequences) if sequences_said < 0 else sequences_said
    head = b"MMIDIDX\x00\x00" + struct.pack("<QBQQ", 1, 8, count, len(bounds))
    places = np.cumsum([0, *sequences[:-1]]) * 2 if sequences else np.zeros(0)
    body = np.array(sequences, "<i4").tobytes() + np.array(places, "<i8").tobytes()
    path.write_bytes(head + body + np.array(bounds, "<i8").tobytes())
    return path


def test_an_index_of_megatron_tells_tokens_of_documents(tmp_path: Path) -> None:
    found = read_documents(index(tmp_path / "data.idx", [5, 300, 400, 1, 33], [0, 1, 3, 4, 5]))

    assert found.lengths is not None
    assert found.lengths.tolist() == LENGTHS


@pytest.mark.parametrize("kind", ["arrow", "stream", "parquet", "csv", "txt", "npy"])
def test_tables_and_lists_of_lengths_are_read(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"lengths.{'arrow' if kind == 'stream' else kind}"
    table = pl.DataFrame({"text": ["a", "b", "c", "d"], "length": LENGTHS})
    match kind:
        case "arrow":
            table.write_ipc(path)
        case "stream":
            table.write_ipc_stream(path)
        case "parquet":
            table.write_parquet(path)
        case "csv":
            table.write_csv(path)
        case "txt":
            path.write_text("\n".join(map(str, LENGTHS)))
        case "npy":
            np.save(path, np.array(LENGTHS))

    found = read_documents(path)

    assert found.lengths is not None
    assert found.lengths.tolist() == LENGTHS


def test_documents_of_tokens_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "tokens.parquet"
    pl.DataFrame({"input_ids": [[1] * length for length in LENGTHS]}).write_parquet(path)

    found = read_documents(path)

    assert found.lengths is not None
    assert found.lengths.tolist() == LENGTHS


def test_empty_documents_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "lengths.txt"
    path.write_text("0\n7\n")

    found = read_documents(path)

    assert found.lengths is not None
    assert found.lengths.tolist() == [7]


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.idx", b"MMIDIDX", "as an index of Megatron-LM: it does not begin with"),
        ("a.idx", b"", "as an index of Megatron-LM"),
        ("a.txt", b"7\nmany\n", "expected one whole number of tokens on each line"),
        ("a.txt", b"", "holds no document"),
        ("a.npy", b"no array", "as an array of numpy"),
        ("a.parquet", b"PAR1", "cannot read"),
        ("a.csv", b"name,size\nx,3\n", "cannot tell which column"),
        ("a.csv", b"length\nx\n", "expected whole numbers"),
        ("a.json", b"[]", "expected one of .idx"),
    ],
)
def test_what_is_no_dataset_is_refused_in_a_sentence(
    tmp_path: Path, name: str, content: bytes, said: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content)

    with pytest.raises(WorkloadError, match=said):
        read_documents(path)


def test_an_index_that_is_cut_short_is_refused(tmp_path: Path) -> None:
    path = index(tmp_path / "a.idx", [5, 6], [0, 1, 2], sequences_said=1000)

    with pytest.raises(WorkloadError, match="1,000 sequences"):
        read_documents(path)


@pytest.mark.parametrize(
    "text",
    [
        "lognormal:8.3",
        "lognormal:a,b",
        "lognormal:8,-1",
        "lognormal:nan,1",
        "lognormal:8,1,0",
        "lognormal:8,1,2,3",
    ],
)
def test_a_law_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError):
        documents_of(text)


def test_a_law_is_found_again_in_what_it_draws() -> None:
    drawn = Documents("law", law=LogNormal(7.0, 1.2)).arriving(20_000_000, seed=2)

    found = LogNormal.fitted(drawn)

    assert found.mu == pytest.approx(7.0, abs=0.05)
    assert found.sigma == pytest.approx(1.2, abs=0.05)


def test_documents_of_a_dataset_come_once_before_any_comes_again() -> None:
    documents = Documents("own", lengths=np.arange(1, 101))

    drawn = documents.arriving(2 * 5050, seed=1)

    assert sorted(drawn[:100].tolist()) == list(range(1, 101))
    assert sorted(drawn.tolist()) == sorted([*range(1, 101), *range(1, 101)])


def test_the_same_seed_draws_the_same() -> None:
    documents = documents_of("lognormal:6,1")

    assert (
        documents.arriving(10_000, seed=4).tolist() == documents.arriving(10_000, seed=4).tolist()
    )


def test_documents_of_a_law_end_at_its_longest() -> None:
    whole, ended = (documents_of(f"lognormal:6,1{more}") for more in ("", ",500"))
    lengths = ended.arriving(10**6, seed=3)

    assert lengths.max() == 500
    drawn = whole.arriving(10**6, seed=3)
    assert np.array_equal(np.minimum(drawn, 500), lengths[: len(drawn)])
