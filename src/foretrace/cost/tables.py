"""Tables of measurements: files `gemm-*.parquet`, `attention-*.parquet` and others of a folder.

One row is one kernel's time. Rows that other kernels ran (another library, another mask, the
backward pass) are kept apart, since each kind has constants of its own. The columns are those of
`foretrace measure`: gpu, m, n, k (batch), dtype, time_ns, bwd_time_ns; gpu, batch, heads,
kv_heads, head_dim, seq, dtype, causal, time_ns, time_ns_alt, bwd_time_ns, framework; and gpu, op,
rows, width, dtype, time_ns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from foretrace.base import ModelError
from foretrace.cost.attention import CUDNN, FLASH, PROFILED, AttentionShapes
from foretrace.cost.decode import OPERATOR
from foretrace.cost.gemm import BLOCKWISE, LIBRARY, GemmShapes
from foretrace.cost.measured import (
    Measured,
    chips_of,
    columns_of_sizes,
    measured_parts,
    table_frame,
)
from foretrace.cost.movement_tables import movement_tables
from foretrace.cost.network import has_collectives
from foretrace.cost.predicting import CALL, SCALED_GEMM
from foretrace.cost.serving_tables import (
    OVER_RELEASES,
    TRITON,
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

# What a serving library calls its attention operator also rotates the keys and writes the cache;
# head sizes above 256 run in general kernels.
_MOST_HEAD = 256
# Operands scaled by blocks have kernels of their own; of 8 bits one framework's times are of the
# whole call, by the library that it calls. In 4 bits all are scaled so.
_CALLED = ("cutlass", "deepgemm")
_FOUR_BITS = "nvfp4"
_PYTORCH = "torch"
_OF_TWO = 2  # kernels that a time is the mean of, where one of them is Triton's


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
        _Layout("scaled-gemm-", labels, ("m", "n", "k"), _scaled_gemms),
        _Layout("attention-", labels, flash, _attentions),
        _Layout("attention-encoder-", labels, (*heads, "head_dim", "seq"), encoder_tables),
        _Layout("attention-decode-", kept, decode, decode_tables),
        _Layout("mla-", (*kept, "phase"), (*heads, "seq", "kv_len"), latent_tables),
        _Layout("moe-", loads, (*tokens, "inter", "tp", "ep"), expert_tables),
        _Layout("expert-exchange-", ("gpu", "op"), tokens, exchange_tables),
        _Layout("movement-", (*labels, "op"), ("rows", "width"), movement_tables),
    )


def _gemms(frame: pl.DataFrame, chips: Mapping[str, Chip]) -> Iterator[Measured]:
    import polars as pl  # on demand: it takes longer to import than most commands take

    library = pl.col("kernel").str.to_lowercase().str.extract(f"^({'|'.join(_CALLED)})")
    called = [pl.lit(BLOCKWISE), pl.lit(CALL), library.fill_null("other")]
    of_four = pl.when(pl.col("framework") == "vllm").then(pl.lit(f"{BLOCKWISE} flashinfer"))
    kind = (
        pl.when(pl.col("dtype") == _FOUR_BITS)
        .then(of_four.otherwise(pl.lit(BLOCKWISE)))
        .when(~pl.col("dtype").str.ends_with("_block"))
        .then(pl.lit(LIBRARY))
        .when(pl.col("framework") == "vllm")
        .then(pl.concat_str(called, separator=" "))
        .otherwise(pl.lit(BLOCKWISE))
    )
    frame = frame.with_columns(kind=kind, dtype=pl.col("dtype").str.strip_suffix("_block"))
    for model, time, work in (("gemm", "time_ns", 1), ("gemm backward", "bwd_time_ns", 2)):
        yield from measured_parts(
            frame,
            chips,
            model=model,
            kind=pl.col("kind"),
            shapes=_products,
            grouped_by=("n", "k"),
            family=partial(_family, model),
            time=time,
            work=work,
        )


def _scaled_gemms(frame: pl.DataFrame, chips: Mapping[str, Chip]) -> Iterator[Measured]:
    """Products alone, of operands with one scale; those with a scale for each row stand apart."""
    import polars as pl  # on demand, as above

    scaled = pl.col("scaled") if "scaled" in frame.columns else pl.lit("tensor")
    for name in frame.select(scaled.unique()).to_series().sort().to_list():
        yield from measured_parts(
            frame.filter(scaled == name),
            chips,
            model=SCALED_GEMM,
            kind=pl.lit(LIBRARY),
            shapes=_products,
            grouped_by=("n", "k"),
            family=partial(_scaled_family, name),
        )


def _scaled_family(scaled: str, _: str) -> str:
    return f"{SCALED_GEMM}, by {scaled}"


def _products(rows: pl.DataFrame, dtype: str) -> GemmShapes:
    return GemmShapes.of(columns_of_sizes(rows, "batch", "m", "n", "k"), dtype)


def _family(model: str, kind: str) -> str:
    return model if kind == LIBRARY else f"{model} {kind}"


def _attentions(frame: pl.DataFrame, chips: Mapping[str, Chip]) -> Iterator[Measured]:
    import polars as pl  # on demand, as above

    kind = (
        pl.when(pl.col("kernel").str.starts_with(TRITON))
        .then(pl.lit(TRITON))
        .when(pl.col("head_dim") > _MOST_HEAD)
        .then(pl.lit(WIDE))
        .when(pl.col("framework") == "trtllm")
        .then(pl.lit(OPERATOR))
        .when(pl.col("framework") == "flash-attn")
        .then(pl.lit(PROFILED))
        .when(pl.col("framework").str.starts_with(_PYTORCH))
        .then(pl.lit(CUDNN))
        .otherwise(pl.lit(FLASH))
    )
    frame = frame.with_columns(kind=kind)
    beside = frame.filter(pl.col("kind") == OPERATOR).with_columns(kind=_beside(frame))
    parts = (
        ("attention", "attention", frame, "time_ns"),
        ("attention", "attention by flash", beside, "time_ns_alt"),
        ("attention backward", "attention backward", frame, "bwd_time_ns"),
    )
    for model, family, part, time in parts:
        yield from measured_parts(
            part,
            chips,
            model=model,
            kind=pl.col("kind"),
            shapes=partial(_attended, is_backward=model.endswith("backward")),
            grouped_by=("heads", "kv_heads", "head_dim"),
            family=partial(_attention_family, family),
            time=time,
        )


def _beside(frame: pl.DataFrame) -> pl.Expr:
    """The kind of other libraries' kernels: Triton's, or what one of two is the mean of."""
    import polars as pl  # on demand, as above

    named = pl.col("alt_kernel") if "alt_kernel" in frame.columns else pl.lit("")
    names = named.fill_null("").str.split(";")
    is_triton = names.list.contains(TRITON)
    return (
        pl.when(is_triton & (names.list.len() == 1))
        .then(pl.lit(TRITON))
        .when(is_triton & (names.list.len() == _OF_TWO))
        .then(pl.lit(f"{FLASH}{OVER_RELEASES}"))
        .otherwise(pl.lit(FLASH))
    )


def _attention_family(family: str, kind: str) -> str:
    if kind in {CUDNN, TRITON}:
        return f"{family.partition(' by ')[0]} by {kind}"
    return f"{family}{kind.removeprefix(FLASH)}" if kind.endswith(OVER_RELEASES) else family


def _attended(rows: pl.DataFrame, dtype: str, *, is_backward: bool) -> AttentionShapes:
    names = ("batch", "heads", "kv_heads", "head_dim", "seq", "seq", "causal")
    return AttentionShapes.of(columns_of_sizes(rows, *names), dtype, is_backward=is_backward)
