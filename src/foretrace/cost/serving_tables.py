"""Tables of kernels that serve: attention of every kind, fused experts, exchanges of tokens.

Files `attention-decode-*`, `attention-encoder-*`, `mla-*`, `moe-*` and `expert-exchange-*.parquet`,
with the columns of ai-dynamo/aiconfigurator's collectors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from foretrace.base import Int64s
from foretrace.cost.attention import AttentionShapes
from foretrace.cost.baselines import RowWork
from foretrace.cost.decode import DecodeShapes
from foretrace.cost.expert_exchange import ExchangeShapes
from foretrace.cost.experts import ExpertShapes, operand_formats
from foretrace.cost.measured import Measured, groups_of, integers, usable
from foretrace.cost.predicting import KernelShapes
from foretrace.machine import Chip

if TYPE_CHECKING:
    import polars as pl

_Chips: TypeAlias = Mapping[str, Chip]
# Kinds of decode attention: a serving library's own operator, FlashAttention's and FlashInfer's
# kernels, those that Triton compiles, what heads above 256 fall back to, and latent attention.
OPERATOR, FLASH, TRITON, WIDE, LATENT = "operator", "flash", "triton", "wide", "latent"
# What a token of latent attention keeps (numbers), and what a head multiplies.
# Source: deepseek-ai/DeepSeek-V3, inference/configs/config_671B.json.
LATENT_KEY, LATENT_VALUE = 576, 512
_CONTEXT_HEAD = 160  # keys of 192 and values of 128 numbers: what products and traffic see of both
_MOST_HEAD = 256
# Encoders' heads that no instruction divides evenly run in kernels of another kind.
_HEAD_STEP, EVEN, UNEVEN = 16, "even", "uneven"
# Kinds of experts' kernels: grouped products by CUTLASS and DeepGEMM, and serving libraries' own.
GROUPED, SERVED = "grouped", "served"
# How tokens fall on ranks is what a table says where ranks are few. Beyond, one release took as
# long as three to four times the rows that an even load leaves on a rank, the next as long as these
# rows; and serving libraries' tables hold all tokens on every rank. Such rows are left out: what
# their kernels worked on is not known.
_MOST_RANKS = {"trtllm": 16}
DISPATCH, COMBINE, DIRECT = "dispatch", "combine", "direct"
_HOST_RANKS = 8
_NETWORK_BYTES_PER_NS = 50  # 400 Gb/s for every GPU, as a DGX H100 has


def decode_tables(frame: pl.DataFrame, chips: _Chips) -> Iterator[Measured]:
    """Attention of new tokens, by library and by format of what is kept."""
    import polars as pl  # on demand: it takes longer to import than most commands take

    kind = (
        pl.when(pl.col("framework") == "trtllm")
        .then(pl.lit(OPERATOR))
        .when(pl.col("kernel").str.contains("triton"))
        .then(pl.lit(TRITON))
        .when(pl.col("head_dim") > _MOST_HEAD)
        .then(pl.lit(WIDE))
        .otherwise(pl.lit(FLASH))
    )
    for (gpu, dtype, kept_kind), rows in _parts(frame, kind, "kv_dtype"):
        seen = np.stack([integers(rows, name) for name in ("kv_len", "window")])
        length = np.where(seen[1] > 0, seen.min(axis=0), seen[0])
        names = ("batch", "heads", "kv_heads", "head_dim", "head_dim")
        columns = [integers(rows, name) for name in names]
        by_head = np.full(len(rows), int(kept_kind == OPERATOR))
        sizes = np.stack([*columns, 2 * columns[3], length, by_head], axis=1)
        yield from _table(
            rows,
            chips.get(gpu),
            model="decode",
            kind=kept_kind,
            dtype=dtype,
            family=f"decode attention {kept_kind}",
            shapes=DecodeShapes.of(sizes, dtype),
            needs="bf16",
            grouped_by=("heads", "kv_heads", "head_dim", "window"),
        )


def encoder_tables(frame: pl.DataFrame, chips: _Chips) -> Iterator[Measured]:
    """Attention of encoders: all see all, every head has its own keys."""
    import polars as pl  # on demand, as above

    is_even = pl.col("head_dim") % _HEAD_STEP == 0
    kind = pl.when(is_even).then(pl.lit(EVEN)).otherwise(pl.lit(UNEVEN))
    for (gpu, dtype, kept_kind), rows in _parts(frame, kind, "dtype"):
        names = ("batch", "heads", "heads", "head_dim", "seq", "seq")
        columns = [integers(rows, name) for name in names]
        sizes = np.stack([*columns, np.zeros_like(columns[0])], axis=1)
        yield from _table(
            rows,
            chips.get(gpu),
            model="attention encoder",
            kind=kept_kind,
            dtype=dtype,
            family=f"attention encoder {kept_kind}",
            shapes=AttentionShapes.of(sizes, dtype),
            needs=dtype,
            grouped_by=("heads", "head_dim", "batch"),
        )


def latent_tables(frame: pl.DataFrame, chips: _Chips) -> Iterator[Measured]:
    """Latent attention, of prompts and of new tokens."""
    import polars as pl  # on demand, as above

    is_triton = pl.col("kernel").str.contains("triton")
    kind = pl.when(is_triton).then(pl.lit(f"{LATENT} {TRITON}")).otherwise(pl.lit(LATENT))
    kind = pl.concat_str([kind, pl.lit(" "), pl.col("phase")])
    for (gpu, dtype, said), rows in _parts(frame, kind, "kv_dtype"):
        kept_kind, _, phase = said.rpartition(" ")
        context = phase == "context"
        model, width = ("attention", "bf16") if context else ("decode", dtype)
        if context and dtype != width:
            kept_kind = f"{kept_kind} of {dtype}"
        yield from _table(
            rows,
            chips.get(gpu),
            model=model,
            kind=kept_kind,
            dtype=width,
            family=f"{model} {kept_kind}" if context else f"decode attention {kept_kind}",
            shapes=_prompts(rows, width) if context else _latent_tokens(rows, width),
            needs="bf16",
            grouped_by=("heads", "batch"),
        )


def _prompts(rows: pl.DataFrame, dtype: str) -> AttentionShapes:
    batch, heads, length, keys = (
        integers(rows, name) for name in ("batch", "heads", "seq", "kv_len")
    )
    sizes = [batch, heads, heads, np.full(len(rows), _CONTEXT_HEAD), length, keys]
    return AttentionShapes.of(np.stack([*sizes, np.ones_like(batch)], axis=1), dtype)


def _latent_tokens(rows: pl.DataFrame, dtype: str) -> DecodeShapes:
    batch, heads, length = (integers(rows, name) for name in ("batch", "heads", "kv_len"))
    return DecodeShapes.of(latent_sizes(batch, heads, length), dtype)


def latent_sizes(batch: Int64s, heads: Int64s, length: Int64s) -> Int64s:
    """Sizes of latent attention of new tokens, int64[rows, 8] for `DecodeShapes.of`."""
    one = np.ones_like(batch)
    sizes = [LATENT_KEY * one, LATENT_VALUE * one, LATENT_KEY * one]
    stacked: Int64s = np.stack([batch, heads, one, *sizes, length, 0 * one], axis=1)
    return stacked


def expert_tables(frame: pl.DataFrame, chips: _Chips) -> Iterator[Measured]:
    """Fused experts of one rank, by library and by number format."""
    import polars as pl  # on demand, as above

    most = pl.col("framework").replace_strict(_MOST_RANKS, default=1)
    is_grouped = pl.col("framework") == "trtllm"
    blockwise = pl.when(pl.col("dtype").str.ends_with("_block")).then(pl.lit(" blockwise"))
    library = pl.when(is_grouped).then(pl.lit(GROUPED)).otherwise(pl.lit(SERVED))
    parts = [library, blockwise.otherwise(pl.lit(""))]
    frame = frame.filter(pl.col("ep") <= most).with_columns(
        kept=pl.col("dtype").str.strip_suffix("_block"),
        skew=pl.col("distribution").str.extract(r"([\d.]+)$").cast(pl.Float64).fill_null(0),
        gated=~pl.col("kernel").str.contains("nongated"),
    )
    for (gpu, dtype, kind), rows in _parts(frame, pl.concat_str(parts), "kept"):
        names = ("tokens", "top_k", "experts", "ep", "hidden", "inter", "tp")
        *columns, inter, tensor = (integers(rows, name) for name in names)
        skew = np.rint(100 * rows["skew"].to_numpy()).astype(np.int64)
        sizes = [*columns, inter // tensor, integers(rows, "gated"), skew]
        yield from _table(
            rows,
            chips.get(gpu),
            model="experts",
            kind=kind,
            dtype=dtype,
            family=f"experts {kind}",
            shapes=ExpertShapes.of(np.stack(sizes, axis=1), dtype),
            needs=operand_formats(dtype)[0],
            grouped_by=("hidden", "inter", "top_k", "experts", "tp", "ep"),
        )


def exchange_tables(frame: pl.DataFrame, chips: _Chips) -> Iterator[Measured]:
    """Exchanges of tokens around experts, by way and by library."""
    import polars as pl  # on demand, as above

    absent = {"hosts": 1, "sms": 0, "dtype": None, "mode": "switch", "ep": None}
    frame = frame.with_columns(
        pl.lit(value).alias(name) for name, value in absent.items() if name not in frame.columns
    )
    is_back = pl.col("op").str.contains(COMBINE)
    sent = pl.when(is_back).then(pl.lit("bf16")).otherwise(pl.lit("fp8"))
    low = pl.col("op").str.ends_with("low_precision")
    frame = frame.filter(~pl.col("op").str.contains("prepare") & ~low).with_columns(
        kept=pl.col("dtype").fill_null(sent),
        ep=pl.col("ep").fill_null(_HOST_RANKS * pl.col("hosts")),
        network=pl.lit(_NETWORK_BYTES_PER_NS),
        is_direct=pl.col("mode") == "ll",
    )
    way = pl.when(is_back).then(pl.lit(COMBINE)).otherwise(pl.lit(DISPATCH))
    mode = pl.col("mode").replace({"normal": "", "ll": f" {DIRECT}", "switch": " switch"})
    for (gpu, dtype, kind), rows in _parts(frame, pl.concat_str([way, mode]), "kept"):
        names = ("tokens", "hidden", "top_k", "experts", "ep", "hosts", "sms")
        columns = [integers(rows, name) for name in (*names, "network", "is_direct")]
        yield from _table(
            rows,
            chips.get(gpu),
            model="expert exchange",
            kind=kind,
            dtype=dtype,
            family=f"expert exchange {kind}",
            shapes=ExchangeShapes.of(np.stack(columns, axis=1), dtype),
            needs="bf16",
            grouped_by=("hidden", "top_k", "experts", "ep", "sms"),
        )


def _parts(
    frame: pl.DataFrame, kind: pl.Expr, dtype: str
) -> Iterator[tuple[tuple[str, str, str], pl.DataFrame]]:
    """Rows of one GPU, number format and kind."""
    import polars as pl  # on demand, as above

    frame = frame.with_columns(_kind=kind).filter(pl.col("time_ns") > 0)
    for (gpu, kept, found), rows in frame.group_by("gpu", dtype, "_kind", maintain_order=True):
        yield (str(gpu), str(kept), str(found)), rows


def _table(
    rows: pl.DataFrame,
    chip: Chip | None,
    *,
    model: str,
    kind: str,
    dtype: str,
    family: str,
    shapes: KernelShapes,
    needs: str,
    grouped_by: tuple[str, ...],
) -> Iterator[Measured]:
    chip = usable(chip, needs)
    if chip is None:
        return
    yield Measured(
        model=model,
        kind=kind,
        family=family,
        gpu=str(rows["gpu"][0]),
        chip=chip,
        shapes=shapes,
        work=RowWork(shapes.num_flops, shapes.num_bytes, needs),
        measured_ns=rows["time_ns"].to_numpy().astype(np.float64),
        group=groups_of(rows, grouped_by),
        source=str(rows["source"][0]).partition("@")[0],
        dtype=dtype,
    )
