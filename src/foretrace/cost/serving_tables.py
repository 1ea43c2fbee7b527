"""Tables of kernels that serve: attention of every kind, fused experts, exchanges of tokens.

Files `attention-decode-*`, `attention-encoder-*`, `mla-*`, `moe-*` and `expert-exchange-*.parquet`,
with the columns of ai-dynamo/aiconfigurator's collectors.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from foretrace.base import Int64s
from foretrace.cost.attention import CUDNN, EVEN, FLASH, UNEVEN, AttentionShapes
from foretrace.cost.decode import OPERATOR, Cutting, DecodeShapes
from foretrace.cost.expert_exchange import ExchangeShapes
from foretrace.cost.experts import MARLIN, SERVED, ExpertShapes
from foretrace.cost.measured import Measured, columns_of_sizes, integers, measured_parts
from foretrace.cost.operand_formats import operand_formats
from foretrace.cost.predicting import CALL
from foretrace.machine import Chip

if TYPE_CHECKING:
    import polars as pl

_Chips: TypeAlias = Mapping[str, Chip]
# Kinds of decode attention beside FlashAttention's and FlashInfer's kernels (FLASH) and a serving
# library's own operator: those that Triton compiles, what heads above 256 fall back to, and
# latent attention.
TRITON, WIDE, LATENT = "triton", "wide", "latent"
_PYTORCH = "torch"  # how `foretrace measure` begins its releases
_CUTTING = {OPERATOR: int(Cutting.FILLED), WIDE: int(Cutting.FIXED)}
# What a token of latent attention keeps (numbers), and what a head multiplies.
# Source: deepseek-ai/DeepSeek-V3, inference/configs/config_671B.json.
LATENT_KEY, LATENT_VALUE = 576, 512
_CONTEXT_HEAD = 160  # keys of 192 and values of 128 numbers: what products and traffic see of both
_MOST_HEAD = 256
_HEAD_STEP = 16  # numbers of a head that an instruction takes
# Kinds of experts' kernels: grouped products by CUTLASS and DeepGEMM, and serving libraries' own.
GROUPED = "grouped"
# One library's times are medians over the releases that a row names, whose grouped products start
# 25 us apart: those of the newest release of a number format are the kind's, others are kinds
# apart. Its encoders' kernels on a Hopper take three to four times as long in one release as in the
# next. The median of two releases is then a mean that no kernel takes; of three, two of them new,
# it is a new one's.
OVER_RELEASES, _OLDER = " over releases", " older"
# The one release of SGLang that calls of 20,480 tokens are of: they take four to ten times as long
# as calls of 16,384.
_LONE = "0.5.6.post2"
_OF_THREE = 3
# Releases of vLLM whose calls of Marlin's experts take 1.5 to 5 times as long as those of the
# releases before and after, and as SGLang's; between as many of both a median is a mean.
_SLOW_MARLIN = ("0.18.0", "0.19.0")
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
    length = pl.when(pl.col("window") > 0).then(pl.min_horizontal("kv_len", "window"))
    frame = frame.with_columns(
        length=length.otherwise(pl.col("kv_len")),
        both=2 * pl.col("head_dim"),
        cutting=kind.replace_strict(_CUTTING, default=int(Cutting.BEST)),
    )
    sizes = ("batch", "heads", "kv_heads", "head_dim", "head_dim", "both")
    names = (*sizes, "kv_len", "length", "cutting")
    yield from measured_parts(
        frame,
        chips,
        model="decode",
        kind=kind,
        shapes=lambda rows, dtype: DecodeShapes.of(columns_of_sizes(rows, *names), dtype),
        grouped_by=("heads", "kv_heads", "head_dim", "window"),
        family="decode attention {}".format,
        dtype="kv_dtype",
        needs=_in_bf16,
    )


def encoder_tables(frame: pl.DataFrame, chips: _Chips) -> Iterator[Measured]:
    """Attention of encoders: all see all, every head has its own keys.

    PyTorch has no kernels of encoders: theirs are those of all attention, by cuDNN.
    """
    import polars as pl  # on demand, as above

    is_even = pl.col("head_dim") % _HEAD_STEP == 0
    is_general = pl.col("framework").str.starts_with(_PYTORCH)
    frame = frame.with_columns(causal=pl.lit(0))
    served = frame.filter(~is_general)
    own = pl.when(is_even).then(pl.lit(EVEN)).otherwise(pl.lit(UNEVEN))
    parts = (
        (
            "attention encoder",
            pl.concat_str([own, _release(served, pl.lit(value=True), one_of=_OF_THREE)]),
            served,
        ),
        ("attention", pl.lit(CUDNN), frame.filter(is_general)),
        ("attention backward", pl.lit(CUDNN), frame.filter(is_general)),
    )
    for model, kind, part in parts:
        is_backward = model.endswith("backward")
        yield from measured_parts(
            part,
            chips,
            model=model,
            kind=kind,
            shapes=partial(_encoded, is_backward=is_backward),
            grouped_by=("heads", "head_dim", "batch"),
            family=f"attention encoder {'backward ' * is_backward}{{}}".format,
            time="bwd_time_ns" if is_backward else "time_ns",
        )


def _encoded(rows: pl.DataFrame, dtype: str, *, is_backward: bool) -> AttentionShapes:
    names = ("batch", "heads", "heads", "head_dim", "seq", "seq", "causal")
    return AttentionShapes.of(columns_of_sizes(rows, *names), dtype, is_backward=is_backward)


def latent_tables(frame: pl.DataFrame, chips: _Chips) -> Iterator[Measured]:
    """Latent attention, of prompts and of new tokens."""
    import polars as pl  # on demand, as above

    is_triton = pl.col("kernel").str.contains("triton")
    kind = pl.when(is_triton).then(pl.lit(f"{LATENT} {TRITON}")).otherwise(pl.lit(LATENT))
    is_prompt = pl.col("phase") == "context"
    is_kept_wide = pl.col("kv_dtype") == "bf16"
    of_format = pl.concat_str([kind, pl.lit(" of "), pl.col("kv_dtype")])
    yield from measured_parts(
        frame.filter(is_prompt).with_columns(wide=pl.lit("bf16")),
        chips,
        model="attention",
        # What Triton compiles for prompts was timed by the call.
        kind=pl.when(is_triton)
        .then(pl.lit(f"{LATENT} {TRITON} {CALL}"))
        .when(is_kept_wide)
        .then(kind)
        .otherwise(of_format),
        shapes=_prompts,
        grouped_by=("heads", "batch"),
        family="attention {}".format,
        dtype="wide",
    )
    yield from measured_parts(
        frame.filter(~is_prompt),
        chips,
        model="decode",
        kind=kind,
        shapes=_latent_tokens,
        grouped_by=("heads", "batch"),
        family="decode attention {}".format,
        dtype="kv_dtype",
        needs=_in_bf16,
    )


def _prompts(rows: pl.DataFrame, dtype: str) -> AttentionShapes:
    sizes = columns_of_sizes(rows, "batch", "heads", "heads", "heads", "seq", "kv_len", "batch")
    sizes[:, 3], sizes[:, 6] = _CONTEXT_HEAD, 1
    return AttentionShapes.of(sizes, dtype)


def _latent_tokens(rows: pl.DataFrame, dtype: str) -> DecodeShapes:
    batch, heads, length = (integers(rows, name) for name in ("batch", "heads", "kv_len"))
    return DecodeShapes.of(latent_sizes(batch, heads, length), dtype)


def latent_sizes(batch: Int64s, heads: Int64s, length: Int64s) -> Int64s:
    """Sizes of latent attention of new tokens, int64[rows, 9] for `DecodeShapes.of`."""
    one = np.ones_like(batch)
    sizes = [LATENT_KEY * one, LATENT_VALUE * one, LATENT_KEY * one]
    stacked: Int64s = np.stack([batch, heads, one, *sizes, length, length, 0 * one], axis=1)
    return stacked


def expert_tables(frame: pl.DataFrame, chips: _Chips) -> Iterator[Measured]:
    """Fused experts of one rank, by library and by number format."""
    import polars as pl  # on demand, as above

    most = pl.col("framework").replace_strict(_MOST_RANKS, default=1)
    is_grouped = pl.col("framework") == "trtllm"
    release = _release(frame.filter(is_grouped), is_grouped)
    age = pl.when(_is_lone(frame)).then(pl.lit(_OLDER)).otherwise(release)
    blockwise = pl.when(pl.col("dtype").str.ends_with("_block")).then(pl.lit(" blockwise"))
    is_marlin = pl.col("kernel").str.contains(MARLIN)
    own = pl.when(is_marlin).then(pl.lit(MARLIN)).otherwise(pl.lit(SERVED))
    library = pl.when(is_grouped).then(pl.lit(GROUPED)).otherwise(own)
    age = pl.when(is_marlin).then(_speed_of_marlin(frame)).otherwise(age)
    skew = pl.col("distribution").str.extract(r"([\d.]+)$").cast(pl.Float64).fill_null(0)
    frame = frame.filter(pl.col("ep") <= most).with_columns(
        kept=pl.col("dtype").str.strip_suffix("_block"),
        width=pl.col("inter") // pl.col("tp"),
        gated=~pl.col("kernel").str.contains("nongated"),
        skew=(100 * skew).round(),
    )
    names = ("tokens", "top_k", "experts", "ep", "hidden", "width", "gated", "skew")
    yield from measured_parts(
        frame,
        chips,
        model="experts",
        kind=pl.concat_str([library, blockwise.otherwise(pl.lit("")), age]),
        shapes=lambda rows, dtype: ExpertShapes.of(columns_of_sizes(rows, *names), dtype),
        grouped_by=("hidden", "inter", "top_k", "experts", "tp", "ep"),
        family="experts {}".format,
        dtype="kept",
        needs=lambda dtype: operand_formats(dtype)[0],
    )


def _is_lone(frame: pl.DataFrame) -> pl.Expr:
    """Which rows are of that release alone."""
    import polars as pl  # on demand, as above

    named = pl.col("versions") == _LONE if "versions" in frame.columns else pl.lit(value=False)
    return named.fill_null(value=False)


def _speed_of_marlin(frame: pl.DataFrame) -> pl.Expr:
    """What a kind's name ends with: nothing where most releases of a median are quick ones."""
    import polars as pl  # on demand, as above

    named = pl.col("versions") if "versions" in frame.columns else pl.lit("")
    is_slow = named.fill_null("").str.split(";").list.eval(pl.element().is_in(_SLOW_MARLIN))
    share = is_slow.list.mean()
    return (
        pl.when(share < 1 / 2)
        .then(pl.lit(""))
        .when(share > 1 / 2)
        .then(pl.lit(_OLDER))
        .otherwise(pl.lit(OVER_RELEASES))
    )


def _release(rows: pl.DataFrame, is_told: pl.Expr, *, one_of: int = 1) -> pl.Expr:
    """What a kind's name ends with: nothing where a time is the newest release's.

    Args:
        rows: of the library whose releases differ.
        is_told: which rows of the table these are.
        one_of: from how many releases on a median is the time of a new one; two have a mean.
    """
    import polars as pl  # on demand, as above

    if "versions" not in rows.columns:
        return pl.lit("")
    known: dict[str, str] = {}
    for dtype, named in rows.select("dtype", pl.col("versions").fill_null("")).iter_rows():
        known[dtype] = max((known.get(dtype, ""), *named.split(";")), key=_numbers)
    newest = pl.col("dtype").replace_strict(known, default="", return_dtype=pl.String)
    named = pl.col("versions").fill_null(newest)
    releases = named.str.split(";")
    is_known = releases.list.contains(newest)
    is_middle = (pl.lit(one_of) > 1) & is_known & (releases.list.len() >= one_of)
    return (
        pl.when(~is_told | (named == newest) | is_middle)
        .then(pl.lit(""))
        .when(is_known)
        .then(pl.lit(OVER_RELEASES))
        .otherwise(pl.lit(_OLDER))
    )


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", release))


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
    names = ("tokens", "hidden", "top_k", "experts", "ep", "hosts", "sms", "network", "is_direct")
    yield from measured_parts(
        frame,
        chips,
        model="expert exchange",
        kind=pl.concat_str([way, mode]),
        shapes=lambda rows, dtype: ExchangeShapes.of(columns_of_sizes(rows, *names), dtype),
        grouped_by=("hidden", "top_k", "experts", "ep", "sms"),
        family="expert exchange {}".format,
        dtype="kept",
        needs=_in_bf16,
    )


def _in_bf16(_: str) -> str:
    return "bf16"  # whatever the format of what is kept or sent
