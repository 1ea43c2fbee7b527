"""`AccessLaw`: how often each row of a table is looked up, and what follows for caches and parts.

Rows stand in bands, the most used first: what a cache of so many rows serves, how many distinct
rows so many lookups touch, and how lookups are spread over ranks that divide the rows.

Source:
    Zipf's law for ids: Naumov et al., arXiv:1906.00091; that the most used rows are cached, and by
    what share of lookups: Sethi et al., "RecShard", ASPLOS 2022, arXiv:2201.10095.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrace.base import Float64s, Int64s, WorkloadError

EVEN_IDS = "even"
_ZIPF = "zipf:"
_STEEPEST = 5.0
_SINGLE = 1024  # rows that are a band of their own
_WIDER = 1.05  # each band after them is wider than the one before


@dataclass(frozen=True, eq=False)
class AccessLaw:
    """Shares of lookups by row of one table."""

    rows: Int64s  # int64[bands], the most used first
    share: Float64s  # float64[bands], of all lookups; all rows of a band have as many
    counts: Float64s | None = None  # float64[rows], measured, by id; `None`: rows lie scattered
    is_even: bool = False

    def top_share(self, num_rows: float) -> float:
        """Share of lookups that go to the so many most used rows."""
        edges = np.append(0, np.cumsum(self.rows))
        return float(np.interp(num_rows, edges, np.append(0.0, np.cumsum(self.share))))

    def distinct(self, num_lookups: float, *, beyond: float = 0.0) -> float:
        """Distinct rows that so many lookups touch, but for the most used `beyond`."""
        ends = np.cumsum(self.rows)
        left = np.clip(ends - beyond, 0, self.rows)
        found = left * -np.expm1(-num_lookups * self.share / self.rows)
        return float(found.sum())

    def part_shares(self, num_parts: int, *, seed: int = 0) -> Float64s:
        """Share of lookups of each of so many parts of the rows in order; float64[parts].

        Where ids were not measured, the most used rows stand at random places.
        """
        if self.is_even:
            return np.full(num_parts, 1 / num_parts)
        num_rows = int(self.rows.sum())
        block = -(-num_rows // num_parts)
        if self.counts is not None:
            part = np.arange(num_rows) // block
            held = np.bincount(part, self.counts, minlength=num_parts)
            shares: Float64s = held / held.sum()
            return shares
        is_single = self.rows == 1
        places = np.random.default_rng(seed).integers(num_rows, size=int(is_single.sum()))
        found = np.bincount(places // block, self.share[is_single], minlength=num_parts)
        sizes = np.clip(num_rows - block * np.arange(num_parts), 0, block)
        rest: Float64s = found + self.share[~is_single].sum() * sizes / num_rows
        return rest


def even_law(num_rows: int) -> AccessLaw:
    """Every row as often as any other."""
    return AccessLaw(np.array([num_rows]), np.ones(1), is_even=True)


def zipf_law(num_rows: int, exponent: float) -> AccessLaw:
    """The k-th most used row is looked up as 1 over k to the exponent.

    Raises:
        WorkloadError: if the exponent is out of range.
    """
    if not 0 <= exponent <= _STEEPEST:
        raise WorkloadError(
            f"ids follow no Zipf law with exponent {exponent}: 0 is every row alike often, 1 is "
            f"usual, {_STEEPEST:.0f} the most"
        )
    edges = _band_edges(num_rows)
    rank = np.arange(1, min(num_rows, _SINGLE) + 1, dtype=np.float64)
    # A band's sum is the integral from half before its first row to half behind its last.
    low, high = edges[len(rank) : -1] + 0.5, edges[len(rank) + 1 :] + 0.5
    power = 1 - exponent
    is_log = abs(power) < 1e-9  # noqa: PLR2004  the integral of 1/x
    rest = np.log(high / low) if is_log else (high**power - low**power) / power
    weight = np.concatenate([rank**-exponent, rest])
    return AccessLaw(np.diff(edges), weight / weight.sum())


def measured_law(counts: Float64s) -> AccessLaw:
    """Rows as often as was counted, by id."""
    falling = np.sort(counts)[::-1]
    edges = _band_edges(len(counts))
    weight = np.add.reduceat(falling, edges[:-1])
    return AccessLaw(np.diff(edges), weight / weight.sum(), counts=counts)


def access_laws(text: str, rows: tuple[int, ...]) -> tuple[AccessLaw, ...]:
    """The law of each table: of `even`, `zipf:EXPONENT` (or one for each), or a file of counts.

    Args:
        text: what was asked for. A file is .csv (table, row, count on each line) or .npz (counts
            by row, an array for each table in order).
        rows: of each table.

    Raises:
        WorkloadError: if it cannot be read, or does not fit the tables.
    """
    if text == EVEN_IDS:
        return tuple(even_law(each) for each in rows)
    if text.startswith(_ZIPF):
        exponents = _exponents(text, len(rows))
        known: dict[tuple[int, float], AccessLaw] = {}
        for key in zip(rows, exponents, strict=True):
            if key not in known:
                known[key] = zipf_law(*key)
        return tuple(known[key] for key in zip(rows, exponents, strict=True))
    return _measured(Path(text), rows)


def _band_edges(num_rows: int) -> Int64s:
    single = np.arange(min(num_rows, _SINGLE) + 1)
    if num_rows <= _SINGLE:
        return single
    count = int(np.ceil(np.log(num_rows / _SINGLE) / np.log(_WIDER)))
    wider = np.rint(_SINGLE * _WIDER ** np.arange(1, count + 1)).astype(np.int64)
    found: Int64s = np.unique(np.concatenate([single, np.minimum(wider, num_rows)]))
    return found


def _exponents(text: str, num_tables: int) -> list[float]:
    try:
        found = [float(part) for part in text.removeprefix(_ZIPF).split(",")]
    except ValueError as err:
        raise WorkloadError(
            f"cannot read {text!r}: expected zipf:EXPONENT, as in zipf:1.05, or an exponent for "
            "each table"
        ) from err
    if len(found) not in {1, num_tables}:
        raise WorkloadError(
            f"{text!r} has {len(found)} exponents, and the model {num_tables} tables: write one "
            "for all, or one for each"
        )
    return found * num_tables if len(found) == 1 else found


def _measured(path: Path, rows: tuple[int, ...]) -> tuple[AccessLaw, ...]:
    counts = _counts_of(path, rows)
    for table, (own, num_rows) in enumerate(zip(counts, rows, strict=True)):
        if own.shape != (num_rows,) or not np.isfinite(own).all() or (own < 0).any():
            raise WorkloadError(
                f"counts of table {table} in {path} are of shape {own.shape}: expected a number of "
                f"at least 0 for each of its {num_rows:,} rows"
            )
    return tuple(
        measured_law(own) if own.sum() else even_law(num_rows)  # never looked up: all alike
        for own, num_rows in zip(counts, rows, strict=True)
    )


def _counts_of(path: Path, rows: tuple[int, ...]) -> list[Float64s]:
    """Counts by row of each table."""
    try:
        if path.suffix == ".npz":
            with np.load(path, allow_pickle=False) as held:
                found = [np.asarray(held[name], np.float64) for name in held.files]
            if len(found) != len(rows):
                raise WorkloadError(
                    f"{path} holds counts of {len(found)} tables, and the model has {len(rows)}"
                )
            return found
        if path.suffix != ".csv":
            raise WorkloadError(
                f"cannot read how often rows are looked up from {str(path)!r}: expected even, "
                "zipf:EXPONENT, or counts in a .csv (table, row, count) or .npz file"
            )
        text = path.read_text(encoding="utf-8").splitlines()
        lines = text[1:] if text and any(letter.isalpha() for letter in text[0]) else text
        numbers = np.array([line.split(",") for line in lines if line.strip()], np.float64)
        table, row, count = numbers.reshape(-1, 3).T
    except OSError as err:
        raise WorkloadError(f"cannot read {path}: {err.strerror or err}") from err
    except (ValueError, TypeError, EOFError) as err:
        raise WorkloadError(
            f"cannot read {path}: expected table, row and count on each line, tables and rows "
            f"counted from 0 ({err})"
        ) from err
    counts = [np.zeros(each) for each in rows]
    for at, place, number in zip(table.astype(int), row.astype(int), count, strict=True):
        if not (0 <= at < len(rows) and 0 <= place < rows[at]):
            raise WorkloadError(
                f"{path} counts row {place} of table {at}, and there is none: the model has "
                f"{len(rows)} tables"
                + (f", this one {rows[at]:,} rows" if 0 <= at < len(rows) else "")
            )
        counts[at][place] += number
    return counts
