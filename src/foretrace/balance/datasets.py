"""`read_documents`: lengths of documents from what tokenised datasets have beside their tokens.

An index of Megatron (`.idx`), a table of Hugging Face's datasets (`.arrow`, `.parquet`), or a
list of lengths (`.csv`, `.txt`, `.npy`). Tokens themselves are not read where the index says how
many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.balance.documents import MOST_TOKENS, Documents, law_named
from foretrace.base import Int64s, WorkloadError

if TYPE_CHECKING:
    import polars as pl

# Megatron-LM, megatron/core/datasets/indexed_dataset.py: magic, version (uint64), code of the
# tokens' format (uint8), sequences and documents (uint64), then the length of every sequence
# (int32), its place in the file (int64), and the first sequence of every document (int64).
_MAGIC = b"MMIDIDX\x00\x00"
_VERSION = 1
_HEAD_BYTES = len(_MAGIC) + 8 + 1 + 8 + 8
_PER_SEQUENCE = 4 + 8
# Columns that hold how long a document is, or the document.
_LENGTHS = ("length", "lengths", "num_tokens", "token_count", "n_tokens", "tokens")
_TOKENS = ("input_ids", "tokens", "token_ids")


def documents_of(text: str) -> Documents:
    """The documents that a command line names: a law, or a file.

    Raises:
        WorkloadError: if the law or the file cannot be read.
    """
    return law_named(text) or read_documents(Path(text))


def read_documents(path: Path) -> Documents:
    """Lengths of a dataset's documents; those without a token are left out.

    Raises:
        WorkloadError: if the file cannot be read, or its kind is not known.
    """
    readers: Mapping[str, Callable[[Path], Int64s]] = {
        ".idx": _of_megatron,
        ".arrow": _of_table,
        ".parquet": _of_table,
        ".csv": _of_table,
        ".txt": _of_lines,
        ".npy": _of_array,
    }
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise WorkloadError(
            f"cannot read documents from {path}: expected one of {', '.join(readers)}, or a law "
            "such as lognormal:8.3,1.6"
        )
    try:
        lengths = reader(path)
    except OSError as err:
        raise WorkloadError(f"cannot read {path}: {err.strerror or err}") from err
    return Documents(str(path), lengths=lengths[lengths > 0] if len(lengths) else lengths)


def _of_megatron(path: Path) -> Int64s:
    """Tokens of every document: the sum over its sequences."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(_HEAD_BYTES)
    if not head.startswith(_MAGIC) or len(head) < _HEAD_BYTES:
        raise _not_an_index(path, "it does not begin with MMIDIDX")
    version = int.from_bytes(head[9:17], "little")
    sequences = int.from_bytes(head[18:26], "little")
    documents = int.from_bytes(head[26:34], "little")
    expected = _HEAD_BYTES + sequences * _PER_SEQUENCE + documents * 8
    if version != _VERSION or size < expected:
        raise _not_an_index(
            path,
            f"version {version} with {sequences:,} sequences and {documents:,} documents needs "
            f"{expected:,} bytes, and it has {size:,}",
        )
    lengths = np.fromfile(path, "<i4", sequences, offset=_HEAD_BYTES)
    bounds_at = _HEAD_BYTES + sequences * _PER_SEQUENCE
    bounds = np.fromfile(path, "<i8", documents, offset=bounds_at)
    ends = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
    if len(bounds) and (
        bounds.min() < 0 or bounds.max() > sequences or (np.diff(bounds) < 0).any()
    ):
        raise _not_an_index(path, "documents begin at sequences that it does not have")
    # The last bound is the end of the last document.
    return np.diff(ends[bounds]) if len(bounds) > 1 else np.diff(ends)


def _not_an_index(path: Path, found: str) -> WorkloadError:
    return WorkloadError(
        f"cannot read {path} as an index of Megatron-LM: {found}; name the .idx file that "
        "tools/preprocess_data.py wrote"
    )


def _of_table(path: Path) -> Int64s:
    import polars as pl  # on demand: it takes longer to import than a short command

    try:
        if path.suffix == ".arrow":
            table = _arrow(path)
        elif path.suffix == ".parquet":
            table = pl.read_parquet(path, columns=_column(pl.read_parquet_schema(path), path))
        else:
            table = pl.read_csv(path)
    except pl.exceptions.PolarsError as err:
        raise WorkloadError(f"cannot read {path}: {str(err).splitlines()[0]}") from err
    schema = dict(table.schema)
    column = table[_column(schema, path)[0]]
    lengths = column.list.len() if isinstance(column.dtype, pl.List) else column
    if not lengths.dtype.is_integer() or lengths.null_count():
        raise WorkloadError(
            f"cannot read {path}: column {column.name!r} holds {lengths.dtype} with "
            f"{lengths.null_count():,} missing, expected whole numbers of tokens"
        )
    longest = lengths.max()
    if isinstance(longest, int) and longest > MOST_TOKENS:
        raise WorkloadError(
            f"cannot read {path}: a document of {longest:,} tokens, expected at most "
            f"{MOST_TOKENS:,}"
        )
    found: Int64s = lengths.cast(pl.Int64).to_numpy()
    return found


def _arrow(path: Path) -> pl.DataFrame:
    """As a stream of records, which is how Hugging Face keeps them, or as a file of Arrow."""
    import polars as pl  # on demand, as above

    with path.open("rb") as file:
        is_file = file.read(6) == b"ARROW1"
    return pl.read_ipc(path) if is_file else pl.read_ipc_stream(path)


def _column(schema: Mapping[str, object], path: Path) -> list[str]:
    """The column of lengths, or of tokens; the only one, if there is no other."""
    for name in (*_LENGTHS, *_TOKENS):
        if name in schema:
            return [name]
    if len(schema) == 1:
        return list(schema)
    raise WorkloadError(
        f"cannot tell which column of {path} holds lengths: it has {', '.join(list(schema)[:8])}; "
        f"call it {_LENGTHS[0]!r}, or {_TOKENS[0]!r} if it holds the tokens"
    )


def _of_lines(path: Path) -> Int64s:
    """One length on each line."""
    try:
        return np.array([int(line) for line in path.read_text().split()], np.int64)
    except (ValueError, OverflowError) as err:
        raise WorkloadError(
            f"cannot read {path}: expected one whole number of tokens on each line ({err})"
        ) from err


def _of_array(path: Path) -> Int64s:
    try:
        array = np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as err:
        raise WorkloadError(f"cannot read {path} as an array of numpy: {err}") from err
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise WorkloadError(
            f"cannot read {path}: it holds {array.dtype} of shape {array.shape}, expected one "
            "whole number of tokens for each document"
        )
    found: Int64s = array.astype(np.int64)
    return found
