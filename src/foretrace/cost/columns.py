"""Tables of measurements that users give: columns of the kinds that are expected, or a sentence."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.base import LARGEST_COUNT, ModelError

if TYPE_CHECKING:
    import polars as pl


def read_columns(path: Path, *, texts: Sequence[str], counts: Sequence[str]) -> pl.DataFrame:
    """A parquet file's table, its columns checked as by `checked_columns`.

    Raises:
        ModelError: if it is no parquet file, or has other columns.
    """
    import polars as pl  # on demand: it takes longer to import than most commands take

    try:
        frame = pl.read_parquet(path)
    except pl.exceptions.PolarsError as err:
        raise ModelError(
            f"{str(path)!r} cannot be read as a table of measurements ({_first_line(err)}): give a "
            "parquet file as `foretrace measure` writes it."
        ) from err
    return checked_columns(frame, path, texts=texts, counts=counts)


def checked_columns(
    frame: pl.DataFrame, path: Path, *, texts: Sequence[str], counts: Sequence[str]
) -> pl.DataFrame:
    """A table with these columns and `time_ns`: texts as such, counts as whole numbers.

    Raises:
        ModelError: if a column is missing, or holds what it cannot mean.
    """
    import polars as pl  # on demand, as above

    missing = [name for name in (*texts, *counts, "time_ns") if name not in frame.columns]
    if missing:
        raise ModelError(
            f"{str(path)!r} lacks the columns {', '.join(missing)} (it has "
            f"{', '.join(frame.columns)}): rename or add them."
        )
    try:
        frame = frame.with_columns(
            pl.col(*texts).cast(pl.String),
            pl.col(*counts).cast(pl.Int64),
            pl.col("time_ns").cast(pl.Float64),
        )
    except pl.exceptions.PolarsError as err:
        raise ModelError(
            f"{str(path)!r} holds what is no text, whole number or time in the columns "
            f"{', '.join((*texts, *counts, 'time_ns'))}: {_first_line(err)}."
        ) from err
    for name in counts:
        is_good = frame[name].is_between(0, LARGEST_COUNT).fill_null(value=False)
        if not is_good.all():
            found = frame[name].filter(~is_good)[0]
            raise ModelError(
                f"the column {name!r} of {str(path)!r} holds {found}, expected 0 to "
                f"{LARGEST_COUNT:,} in every row: correct or remove that row."
            )
    return frame


def _first_line(err: Exception) -> str:
    return str(err).partition("\n")[0]
