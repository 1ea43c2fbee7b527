"""Tables of measurements: files `gemm-*.parquet`, `attention-*.parquet` and others of a folder.

One row is one kernel's time. Rows that other kernels ran (another library, another mask, the
backward pass) are kept apart, since each kind has constants of its own. The columns are those of
`foretrace measure`: gpu, m, n, k (batch), dtype, time_ns, bwd_time_ns; and gpu, batch, heads,
kv_heads, head_dim, seq, dtype, causal, time_ns, time_ns_alt, bwd_time_ns, framework.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from foretrace.base import ModelError
from foretrace.cost.attention import AttentionShapes
from foretrace.cost.baselines import RowWork
from foretrace.cost.gemm import GemmShapes
from foretrace.cost.measured import (
    Measured,
    chips_of,
    groups_of,
    integers,
    table_frame,
    usable,
)
from foretrace.cost.network import has_collectives
from foretrace.cost.serving_tables import (
    FLASH,
    OPERATOR,
    WIDE,
    decode_tables,
    encoder_tables,
    exchange_tables,
    expert_tables,
    latent_tables,
)
from foretrace.machine import Chip

if TYPE_CHECKING:
    import polars as pl

# Kinds of attention kernels. What a serving library calls its attention operator also rotates
# the keys and writes the cache; head sizes above 256 run in general kernels.
PROFILED = "flash2"
_MOST_HEAD = 256
# Kinds of matrix products. Operands of 8 bit scaled by blocks have kernels of their own; one
# framework's times of them are of the whole call: 60 to 180 us even for a single row.
LIBRARY, BLOCKWISE, BLOCKWISE_CALL = "library", "blockwise", "blockwise call"


class _Layout(NamedTuple):
    """A kind of table: how its files' names begin, what they must hold, and their reader."""

    beginning: str
    texts: tuple[str, ...]
    counts: tuple[str, ...]
    rows_of: Callable[[pl.DataFrame, Mapping[str, Chip]], Iterator[Measured]]


def read_tables(
    folder: Path, *, known_only: bool = False, chip: Chip | None = None
) -> tuple[Measured, ...]:
    """All measurements of kernels in a folder.

    Rows of chips whose description gives no peak or no number of processors are left out.

    Args:
        folder: with files `gemm-*.parquet`, `attention-*.parquet`, ...: docs/cost/calibrate.md.
        known_only: leave rows of unknown GPUs out, in place of refusing them.
        chip: what GPUs are that no description names.

    Raises:
        ModelError: if the folder holds no table of any kind, a column is missing, or a GPU is
            unknown.
    """
    found: list[Measured] = []
    names = [path for path in sorted(folder.glob("*.parquet")) if _layout(path) is not None]
    if not names and not has_collectives(folder):
        known = ", ".join(f"{one.beginning}*.parquet" for one in _layouts())
        raise ModelError(
            f"{str(folder)!r} holds no {known} or collectives*.parquet: name a folder that "
            "`foretrace measure` wrote, or one of the same layout."
        )
    for path in names:
        layout = _layout(path)
        if layout is not None:
            frame = table_frame(path, texts=layout.texts, counts=layout.counts)
            chips = chips_of(frame, otherwise=chip, known_only=known_only)
            found += layout.rows_of(frame, chips)
    return tuple(found)


def _layout(path: Path) -> _Layout | None:
    """The kind of a table by its name: the longest beginning counts."""
    fitting = [one for one in _layouts() if path.name.startswith(one.beginning)]
    return max(fitting, key=lambda one: len(one.beginning), default=None)


def _layouts() -> tuple[_Layout, ...]:
    labels, heads = ("gpu", "dtype"), ("batch", "heads")
    flash = (*heads, "kv_heads", "head_dim", "seq", "causal")
    kept = ("gpu", "kv_dtype")
    decode = (*heads, "kv_heads", "head_dim", "kv_len", "window")
    tokens = ("tokens", "hidden", "top_k", "experts")
    loads = ("gpu", "dtype", "distribution")
    return (
        _Layout("gemm-", labels, ("m", "n", "k"), _gemms),
        _Layout("attention-", labels, flash, _attentions),
        _Layout("attention-encoder-", labels, (*heads, "head_dim", "seq"), encoder_tables),
        _Layout("attention-decode-", kept, decode, decode_tables),
        _Layout("mla-", (*kept, "phase"), (*heads, "seq", "kv_len"), latent_tables),
        _Layout("moe-", loads, (*tokens, "inter", "tp", "ep"), expert_tables),
        _Layout("expert-exchange-", ("gpu", "op"), tokens, exchange_tables),
    )


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
    chip = usable(chip, dtype)
    if chip is None:
        return
    for model, column in (("gemm", "time_ns"), ("gemm backward", "bwd_time_ns")):
        kept = rows.filter(rows[column].is_not_null() & (rows[column] > 0))
        if not len(kept):
            continue
        batch, m, n, k = (integers(kept, name) for name in ("batch", "m", "n", "k"))
        shapes = GemmShapes(batch, m, n, k, dtype)
        factor = 2 if model == "gemm backward" else 1
        yield Measured(
            model=model,
            kind=kind,
            family=model if kind == LIBRARY else f"{model} {kind}",
            gpu=gpu,
            chip=chip,
            shapes=shapes,
            work=RowWork(factor * shapes.num_flops, factor * shapes.num_bytes, dtype),
            measured_ns=kept[column].to_numpy().astype(np.float64),
            group=groups_of(kept, ("n", "k")),
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
            chip = usable(chips.get(str(gpu)), str(dtype))
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
    sizes = np.stack([integers(rows, name) for name in names], axis=1)
    shapes = AttentionShapes.of(sizes, dtype, is_backward=model.endswith("backward"))
    return Measured(
        model=model,
        kind=kind,
        family=family,
        gpu=gpu,
        chip=chip,
        shapes=shapes,
        work=RowWork(shapes.num_flops, shapes.num_bytes, dtype),
        measured_ns=rows[column].to_numpy().astype(np.float64),
        group=groups_of(rows, ("heads", "kv_heads", "head_dim")),
        source=source,
        dtype=dtype,
        is_older=kind == PROFILED,
    )
