"""Tables of measurements: files `gemm-*.parquet` and `attention-*.parquet` of a folder.

One row is one kernel's time. Rows that other kernels ran (another library, another mask, the
backward pass) are kept apart, since each kind has constants of its own. The columns are those of
`foretrace measure`: gpu, m, n, k (batch), dtype, time_ns, bwd_time_ns; and gpu, batch, heads,
kv_heads, head_dim, seq, dtype, causal, time_ns, time_ns_alt, bwd_time_ns, framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import Float64s, Int64s, ModelError
from foretrace.cost.attention import AttentionShapes
from foretrace.cost.baselines import Work
from foretrace.cost.columns import read_columns
from foretrace.cost.gemm import GemmShapes
from foretrace.cost.labels import chip_labelled
from foretrace.cost.network import has_collectives
from foretrace.cost.older import for_older_kernels
from foretrace.cost.predicting import ModelShapes
from foretrace.machine import Chip

if TYPE_CHECKING:
    import polars as pl

# Kinds of attention kernels. What a serving library calls its attention operator also rotates
# the keys and writes the cache; head sizes above 256 run in general kernels.
OPERATOR, FLASH, PROFILED, WIDE = "operator", "flash", "flash2", "wide"
_MOST_HEAD = 256
ANY_DTYPE = "any"
# Tables that others keep beside these, of kernels and exchanges that no model here predicts.
_WITHOUT_MODEL = ("attention-decode", "attention-encoder", "expert-exchange", "mla", "moe")
# Kinds of matrix products. Operands of 8 bit scaled by blocks have kernels of their own; one
# framework's times of them are of the whole call: 60 to 180 us even for a single row.
LIBRARY, BLOCKWISE, BLOCKWISE_CALL = "library", "blockwise", "blockwise call"


@dataclass(frozen=True)
class Measured:
    """Measurements of one model, kind, GPU and number format."""

    model: str  # "gemm", "gemm backward", "attention", "attention backward", "movement", ...
    kind: str  # which kernels: LIBRARY, FLASH, ...
    family: str  # what a table of errors calls these rows
    gpu: str  # as the file has it
    chip: Chip
    shapes: ModelShapes
    work: Work
    measured_ns: Float64s  # float64[rows]
    group: Int64s  # int64[rows]; rows of a group are left out together
    source: str
    dtype: str  # number format of all rows; ANY_DTYPE where the model knows bytes only
    is_older: bool = False  # whether the kernels were built for chips before Hopper

    @property
    def seen(self) -> Chip:
        """The chip as these kernels see it."""
        return for_older_kernels(self.chip) if self.is_older else self.chip


def read_tables(
    folder: Path, *, known_only: bool = False, chip: Chip | None = None
) -> tuple[Measured, ...]:
    """All measurements of matrix products and attention in a folder.

    Rows of chips whose description gives no peak or no number of processors are left out.

    Args:
        folder: with files `gemm-*.parquet` and `attention-*.parquet`.
        known_only: leave rows of unknown GPUs out, in place of refusing them.
        chip: what GPUs are that no description names.

    Raises:
        ModelError: if the folder holds no table of any kind, a column is missing, or a GPU is
            unknown.
    """
    gemms = sorted(folder.glob("gemm-*.parquet"))
    unused = set(tables_without_model(folder))
    attentions = sorted(set(folder.glob("attention-*.parquet")) - unused)
    if not gemms and not attentions and not has_collectives(folder):
        raise ModelError(
            f"{str(folder)!r} holds no gemm-*.parquet, attention-*.parquet or "
            "collectives*.parquet: name a folder that `foretrace measure` wrote, or one of the "
            "same layout."
        )
    found: list[Measured] = []
    for path in gemms:
        frame = _frame(path, _GEMM_COLUMNS)
        found += _gemms(frame, _chips(frame, otherwise=chip, known_only=known_only))
    for path in attentions:
        frame = _frame(path, _FLASH_COLUMNS)
        found += _attentions(frame, _chips(frame, otherwise=chip, known_only=known_only))
    return tuple(found)


def tables_without_model(folder: Path) -> tuple[Path, ...]:
    """The tables of a folder that `read_tables` leaves out: no model predicts their rows."""
    return tuple(sorted(one for kind in _WITHOUT_MODEL for one in folder.glob(f"{kind}-*.parquet")))


def _chips(frame: pl.DataFrame, *, otherwise: Chip | None, known_only: bool) -> dict[str, Chip]:
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


_LABELS = ("gpu", "dtype")
_GEMM_COLUMNS = ("m", "n", "k")
_FLASH_COLUMNS = ("batch", "heads", "kv_heads", "head_dim", "seq", "causal")
_SOURCE_COLUMNS = ("source", "framework", "kernel", "time_ns_alt", "bwd_time_ns")


def _frame(path: Path, counts: tuple[str, ...]) -> pl.DataFrame:
    import polars as pl  # on demand: it takes longer to import than most commands take

    frame = read_columns(path, texts=_LABELS, counts=counts)
    absent = [name for name in _SOURCE_COLUMNS if name not in frame.columns]
    frame = frame.with_columns(pl.lit(None).alias(name) for name in absent)
    if "batch" not in frame.columns:
        frame = frame.with_columns(batch=pl.lit(1, pl.Int64))
    return frame.with_columns(
        pl.col("source", "framework", "kernel").cast(pl.String).fill_null(""),
        pl.col("time_ns_alt", "bwd_time_ns").cast(pl.Float64, strict=False),
    )


def _usable(chip: Chip | None, dtype: str) -> Chip | None:
    """The chip, if its description says enough for a prediction in this format."""
    if chip is None or chip.num_processors is None or chip.cycles_per_ns is None:
        return None
    return chip if chip.peak_flops_per_ns(dtype) is not None else None


def _gemms(frame: pl.DataFrame, chips: Mapping[str, Chip]) -> Iterator[Measured]:
    import polars as pl  # on demand, as above

    kind = (
        pl.when(~pl.col("dtype").str.ends_with("_block"))
        .then(pl.lit(LIBRARY))
        .when(pl.col("framework") == "vllm")
        .then(pl.lit(BLOCKWISE_CALL))
        .otherwise(pl.lit(BLOCKWISE))
    )
    frame = frame.with_columns(kind=kind, origin=pl.col("source").str.split("@").list.first())
    for (gpu, dtype, kept_kind, origin), rows in frame.group_by(
        "gpu", "dtype", "kind", "origin", maintain_order=True
    ):
        yield from _gemm(
            rows,
            chips.get(str(gpu)),
            gpu=str(gpu),
            dtype=str(dtype).removesuffix("_block"),
            kind=str(kept_kind),
            source=str(origin),
        )


def _gemm(
    rows: pl.DataFrame, chip: Chip | None, *, gpu: str, dtype: str, kind: str, source: str
) -> Iterator[Measured]:
    chip = _usable(chip, dtype)
    if chip is None:
        return
    for model, column in (("gemm", "time_ns"), ("gemm backward", "bwd_time_ns")):
        kept = rows.filter(rows[column].is_not_null() & (rows[column] > 0))
        if not len(kept):
            continue
        batch, m, n, k = (_integers(kept, name) for name in ("batch", "m", "n", "k"))
        shapes = GemmShapes(batch, m, n, k, dtype)
        factor = 2 if model == "gemm backward" else 1
        yield Measured(
            model=model,
            kind=kind,
            family=model if kind == LIBRARY else f"{model} {kind}",
            gpu=gpu,
            chip=chip,
            shapes=shapes,
            work=Work(factor * shapes.num_flops, factor * shapes.num_bytes, dtype),
            measured_ns=kept[column].to_numpy().astype(np.float64),
            group=_groups(kept, ("n", "k")),
            source=source,
            dtype=dtype,
        )


def _attentions(frame: pl.DataFrame, chips: Mapping[str, Chip]) -> Iterator[Measured]:
    import polars as pl  # on demand, as above

    is_wide = pl.col("head_dim") > _MOST_HEAD
    kind = (
        pl.when(is_wide)
        .then(pl.lit(WIDE))
        .when(pl.col("framework") == "trtllm")
        .then(pl.lit(OPERATOR))
        .when(pl.col("framework") == "flash-attn")
        .then(pl.lit(PROFILED))
        .otherwise(pl.lit(FLASH))
    )
    frame = frame.with_columns(kind=kind, origin=pl.col("source").str.split("@").list.first())
    # The second column of a row whose first is another library's holds the same measurement.
    other = frame.filter((pl.col("kind") == OPERATOR) & pl.col("time_ns_alt").is_not_null())
    parts = (
        ("attention", "", frame, "time_ns"),
        ("attention", " by flash", other.with_columns(kind=pl.lit(FLASH)), "time_ns_alt"),
        ("attention backward", "", frame, "bwd_time_ns"),
    )
    for model, suffix, part, column in parts:
        for (gpu, dtype, kept_kind, origin), rows in part.filter(pl.col(column) > 0).group_by(
            "gpu", "dtype", "kind", "origin", maintain_order=True
        ):
            chip = _usable(chips.get(str(gpu)), str(dtype))
            if chip is None:
                continue
            yield _attention(
                rows,
                chip,
                model=model,
                family=model + suffix,
                column=column,
                labels=(str(gpu), str(dtype), str(kept_kind), str(origin)),
            )


def _attention(
    rows: pl.DataFrame,
    chip: Chip,
    *,
    model: str,
    family: str,
    column: str,
    labels: tuple[str, str, str, str],
) -> Measured:
    gpu, dtype, kind, source = labels
    names = ("batch", "heads", "kv_heads", "head_dim", "seq", "seq", "causal")
    sizes = np.stack([_integers(rows, name) for name in names], axis=1)
    shapes = AttentionShapes.of(sizes, dtype, is_backward=model.endswith("backward"))
    return Measured(
        model=model,
        kind=kind,
        family=family,
        gpu=gpu,
        chip=chip,
        shapes=shapes,
        work=Work(shapes.num_flops, shapes.num_bytes, dtype),
        measured_ns=rows[column].to_numpy().astype(np.float64),
        group=_groups(rows, ("heads", "kv_heads", "head_dim")),
        source=source,
        dtype=dtype,
        is_older=kind == PROFILED,
    )


def _integers(frame: pl.DataFrame, name: str) -> Int64s:
    column: Int64s = frame[name].to_numpy().astype(np.int64)
    return column


def _groups(frame: pl.DataFrame, names: tuple[str, ...]) -> Int64s:
    keys = np.stack([_integers(frame, name) for name in names], axis=1)
    _, group = np.unique(keys, axis=0, return_inverse=True)
    numbers: Int64s = group.reshape(-1).astype(np.int64)
    return numbers
