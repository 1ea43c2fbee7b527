"""`Documents`: how long the documents of a dataset are: read, as they are, or drawn from a law.

In: an index of a tokenised dataset, an array, or the two numbers of a lognormal law. Out: lengths
in order of arrival, in tokens.

An index is one of Megatron (`.idx`), a table of Hugging Face's datasets (`.arrow`, `.parquet`), or
a list of lengths (`.csv`, `.txt`, `.npy`). Tokens themselves are not read where the index says
how many there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import Int64s, WorkloadError

if TYPE_CHECKING:
    import polars as pl


_LAW = "lognormal:"
MOST_TOKENS = 2**40

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


@dataclass(frozen=True)
class LogNormal:
    """A law of lengths: the logarithm of a length in tokens is normal."""

    mu: float  # mean of the natural logarithm
    sigma: float  # its standard deviation
    longest: int = MOST_TOKENS  # tokens at which documents end, the rest dropped

    def __post_init__(self) -> None:
        """Refuse what is no law of lengths.

        Raises:
            WorkloadError: if a number is none, or lengths would leave what tokens count to.
        """
        if not 1 <= self.longest <= MOST_TOKENS:
            raise WorkloadError(
                f"no documents end at {self.longest:,} tokens: expected 1 to {MOST_TOKENS:,}"
            )
        is_finite = math.isfinite(self.mu) and math.isfinite(self.sigma)
        if not is_finite or self.sigma < 0 or abs(self.mu) + 6 * self.sigma > math.log(2.0**60):
            raise WorkloadError(
                f"no lengths follow a lognormal law with mu {self.mu} and sigma {self.sigma}: mu "
                "is the mean of the logarithm of lengths in tokens (8.3 is 4,000 tokens), sigma "
                "its standard deviation, 0 or more (1.6 is usual)"
            )

    @classmethod
    def fitted(cls, lengths: Int64s) -> LogNormal:
        """The law with the mean and spread of these lengths' logarithms."""
        logs = np.log(lengths)
        return cls(float(logs.mean()), float(logs.std()))


@dataclass(frozen=True, eq=False)
class Documents:
    """Documents of a dataset, of which only the lengths count."""

    name: str
    lengths: Int64s | None = None  # int64[documents], 1 or more
    law: LogNormal | None = None  # where there are no lengths

    def __post_init__(self) -> None:
        """Refuse what holds no documents.

        Raises:
            WorkloadError: if there are neither lengths nor a law, or a length is below 1.
        """
        if (self.lengths is None) == (self.law is None):
            raise ValueError("documents have lengths, or a law, and not both")
        if self.lengths is None:
            return
        if not len(self.lengths):
            raise WorkloadError(f"{self.name} holds no document: name a dataset with documents")
        wrong = np.flatnonzero((self.lengths < 1) | (self.lengths > MOST_TOKENS))
        if len(wrong):
            raise WorkloadError(
                f"document {int(wrong[0]):,} of {self.name} has {int(self.lengths[wrong[0]]):,} "
                "tokens: a document has 1 or more; leave empty ones out"
            )

    def arriving(self, num_tokens: int, *, seed: int = 0) -> Int64s:
        """Lengths of documents in the order in which training meets them.

        Documents of a dataset come in random order, each once before any comes again.

        Args:
            num_tokens: that they have in all, at least.
            seed: of the order, or of the law.

        Returns:
            int64[documents].
        """
        generator = np.random.default_rng(seed)
        found: list[Int64s] = []
        total = 0
        while total < num_tokens:
            more = self._more(generator, num_tokens - total)
            found.append(more)
            total += int(more.sum())
        lengths = np.concatenate(found)
        return lengths[: int(np.searchsorted(np.cumsum(lengths), num_tokens)) + 1]

    def _more(self, generator: np.random.Generator, num_tokens: int) -> Int64s:
        if self.lengths is not None:
            mean = float(self.lengths.mean())
            count = min(len(self.lengths), int(1.5 * num_tokens / mean) + 1_000)
            if count < len(self.lengths):
                return generator.choice(self.lengths, count, replace=False, shuffle=True)
            return generator.permutation(self.lengths)
        assert self.law is not None  # noqa: S101  one of the two is given
        median = math.exp(self.law.mu)
        count = min(1_000_000, int(num_tokens / median) + 100)
        drawn = np.ceil(generator.lognormal(self.law.mu, self.law.sigma, count))
        return np.clip(drawn, 1, self.law.longest).astype(np.int64)


def law_named(text: str) -> Documents | None:
    """The documents of a law as command lines state it, "lognormal:8.3,1.6"; None for a path.

    Raises:
        WorkloadError: if its numbers are none.
    """
    if not text.startswith(_LAW):
        return None
    try:
        mu, sigma, *longest = text.removeprefix(_LAW).split(",")
        law = LogNormal(float(mu), float(sigma), *(int(one) for one in longest))
    except (TypeError, ValueError) as err:
        raise WorkloadError(
            f"cannot read {text!r}: expected lognormal:MU,SIGMA, the mean and the standard "
            "deviation of the logarithm of lengths in tokens, as in lognormal:8.3,1.6, and where "
            "longer documents end, as in lognormal:8.3,1.6,131072"
        ) from err
    return Documents(text, law=law)


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
