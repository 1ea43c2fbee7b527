"""`Measured`: rows of one table, and how tables of measurements are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import Float64s, Int64s, ModelError
from foretrace.cost.baselines import RowWork
from foretrace.cost.columns import read_columns
from foretrace.cost.labels import chip_labelled
from foretrace.cost.older import for_older_kernels, is_of_older
from foretrace.cost.predicting import KernelShapes, ModelShapes
from foretrace.machine import Chip

if TYPE_CHECKING:
    import polars as pl

ANY_DTYPE = "any"

_SOURCE_COLUMNS = ("source", "framework", "kernel", "time_ns_alt", "bwd_time_ns")


@dataclass(frozen=True)
class Measured:
    """Measurements of one model, kind, GPU and number format."""

    model: str  # "gemm", "gemm backward", "attention", "attention backward", "movement", ...
    kind: str  # which kernels: LIBRARY, FLASH, ...
    family: str  # what a table of errors calls these rows
    gpu: str  # as the file has it
    chip: Chip
    shapes: ModelShapes
    work: RowWork
    measured_ns: Float64s  # float64[rows]
    group: Int64s  # int64[rows]; rows of a group are left out together
    source: str
    dtype: str  # number format of all rows; ANY_DTYPE where the model knows bytes only
    is_older: bool = False  # whether the kernels were built for chips before Hopper

    @property
    def seen(self) -> Chip:
        """The chip as these kernels see it."""
        return for_older_kernels(self.chip, self.kind) if self.is_older else self.chip


def chips_of(frame: pl.DataFrame, *, otherwise: Chip | None, known_only: bool) -> dict[str, Chip]:
    """The chip of each GPU in a table that is described.

    Raises:
        ModelError: if there are others, and they are not to be left out.
    """
    chips: dict[str, Chip] = {}
    for label in frame["gpu"].unique().sort().to_list():
        found = chip_labelled(label) or otherwise
        if found is not None:
            chips[label] = found
        elif not known_only:
            raise ModelError(
                f"the table names the GPU {label!r}, which no description of a chip does: say "
                "which one it is with --chip (`foretrace machine list` names them), or write your "
                "own with that device name."
            )
    return chips


def table_frame(path: Path, *, texts: tuple[str, ...], counts: tuple[str, ...]) -> pl.DataFrame:
    """A table with the columns that every reader asks for, absent ones empty.

    Raises:
        ModelError: if it cannot be read, a column is missing, or one holds something else.
    """
    import polars as pl  # on demand: it takes longer to import than most commands take

    frame = read_columns(path, texts=texts, counts=counts)
    absent = [name for name in _SOURCE_COLUMNS if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None).alias(name) for name in absent)
    if "batch" not in frame.columns:
        frame = frame.with_columns(batch=pl.lit(1, pl.Int64))
    return frame.with_columns(
        pl.col("source", "framework", "kernel").cast(pl.String).fill_null(""),
        pl.col("time_ns_alt", "bwd_time_ns").cast(pl.Float64, strict=False),
    )


def usable(chip: Chip | None, dtype: str) -> Chip | None:
    """The chip, if its description says enough for a prediction in this format."""
    if chip is None or chip.num_processors is None or chip.cycles_per_ns is None:
        return None
    return chip if chip.peak_flops_per_ns(dtype) is not None else None


def measured_parts(
    frame: pl.DataFrame,
    chips: Mapping[str, Chip],
    *,
    model: str,
    kind: pl.Expr,
    shapes: Callable[[pl.DataFrame, str], KernelShapes],
    grouped_by: tuple[str, ...],
    family: Callable[[str], str],
    dtype: str = "dtype",
    needs: Callable[[str], str] = str,
    time: str = "time_ns",
    work: int = 1,
) -> Iterator[Measured]:
    """The rows of a table as one part for each GPU, number format, kind and source.

    Args:
        frame: as `table_frame` gives it.
        chips: of the GPUs that it names; rows of others, and of formats without a peak, are left.
        model: what costs such rows.
        kind: of kernels, row by row.
        shapes: of some rows, and their number format.
        grouped_by: columns in which rows are alike that are left out together.
        family: what a kind is called in tables of errors.
        dtype: the column of number formats.
        needs: in which format what has one is multiplied.
        time: the column of times; rows without any are left.
        work: how many times the shapes' FLOPs and bytes there are.
    """
    import polars as pl  # on demand: it takes longer to import than most commands take

    origin = pl.col("source").str.split("@").list.first()
    frame = frame.with_columns(_kind=kind, _origin=origin).filter(pl.col(time) > 0)
    by = ("gpu", dtype, "_kind", "_origin")
    for labels, rows in frame.group_by(by, maintain_order=True):
        gpu, kept, found, source = map(str, labels)
        chip = usable(chips.get(gpu), needs(kept))
        if chip is None:
            continue
        sizes = shapes(rows, kept)
        yield Measured(
            model=model,
            kind=found,
            family=family(found),
            gpu=gpu,
            chip=chip,
            shapes=sizes,
            work=RowWork(work * sizes.num_flops, work * sizes.num_bytes, needs(kept)),
            measured_ns=rows[time].to_numpy().astype(np.float64),
            group=groups_of(rows, grouped_by),
            source=source,
            dtype=kept,
            is_older=is_of_older(found),
        )


def columns_of_sizes(rows: pl.DataFrame, *names: str) -> Int64s:
    """Columns of whole numbers beside each other; int64[rows, names]."""
    return np.stack([integers(rows, name) for name in names], axis=1)


def integers(frame: pl.DataFrame, name: str) -> Int64s:
    """A column of whole numbers, int64[rows]."""
    column: Int64s = frame[name].to_numpy().astype(np.int64)
    return column


def groups_of(frame: pl.DataFrame, names: tuple[str, ...]) -> Int64s:
    """A number for each distinct combination of columns, int64[rows]."""
    keys = columns_of_sizes(frame, *names)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    numbers: Int64s = group.reshape(-1).astype(np.int64)
    return numbers
