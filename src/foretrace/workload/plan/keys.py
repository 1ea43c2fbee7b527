"""What a plan file may say: every key, what it sets in a `Plan`, and what it may hold."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from difflib import get_close_matches
from enum import StrEnum
from typing import Annotated, Any, Literal

from msgspec import Meta

from foretrace.base import (
    Count,
    DescriptionKey,
    Positive,
    Share,
    Text,
    Whole,
    WorkloadError,
    allowed_text,
    read_value,
)
from foretrace.workload.models.recompute import Recompute, RecomputeModule
from foretrace.workload.plan.plan import (
    AdaptedModule,
    Adapters,
    Axis,
    Channels,
    ContextExchange,
    Dispatch,
    Group,
    Implementation,
    Overlap,
    Precision,
    Sharding,
)
from foretrace.workload.sharding.tables import TablePlace, TableScheme, TableSharding

MOST_CHANNELS = 64  # of NCCL: MAXCHANNELS, src/include/device.h
TableExceptions = tuple[tuple[int, TableScheme], ...]
Value = (
    bool
    | int
    | float
    | str
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[Axis, ...]
    | tuple[RecomputeModule, ...]
    | tuple[AdaptedModule, ...]
    | tuple[str, ...]
    | TableExceptions
    | tuple[TablePlace, ...]
)
_Stored = Literal["bf16", "fp16", "fp8", "fp32"]
_ChannelCount = Annotated[int, Meta(ge=1, le=MOST_CHANNELS)]
# Kinds that do not follow from the default of the field that they set.
_KINDS: Mapping[str, Any] = {
    "precision.products": Literal["bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32", "tf32"],
    "precision.activations": _Stored,
    "precision.gate_inputs": _Stored,
    "precision.attention": Literal["bf16", "fp16", "fp8"],
    "precision.parameters": _Stored,
    "precision.gradients": _Stored,
    "precision.reduced": _Stored,
    "implementation.attention": Literal["flash", "plain"],
    "implementation.selective": Literal["scores", "operators"],
    "implementation.launch": Literal["eager", "compiled", "graph"],
    "implementation.launch_times": Positive,
    **{f"channels.{each.name}": _ChannelCount for each in fields(Channels)},
    "tables.number_format": _Stored,
    "tables.exceptions": tuple[tuple[Whole, TableScheme], ...],
    "tables.places": tuple[TablePlace, ...],
    "tables.assumed_pooling": Share,
    "tables.capacity_bytes": Count,
    "adapters.modules": Annotated[tuple[AdaptedModule, ...], Meta(min_length=1)],
}
_EXPECTED = {
    "tables.exceptions": f"a list of [table, scheme] with one of {', '.join(TableScheme)}",
    "tables.places": "a list of [table, scheme, ranks, tier, share of rows in HBM]",
    "adapters.modules": f"a list of {', '.join(AdaptedModule)}",
    **{
        f"channels.{each.name}": f"a whole number from 1 to {MOST_CHANNELS}"
        for each in fields(Channels)
    },
}


def _of_default(default: object) -> Any:
    """The kind of a field by its default."""
    if isinstance(default, StrEnum | bool):
        return type(default)
    if isinstance(default, int):
        return Count if default > 0 else Whole
    return Share if isinstance(default, float) else Text


def _part_keys(
    table: str,
    part: Overlap | Channels | Precision | Dispatch | Implementation | TableSharding | Adapters,
) -> Iterator[DescriptionKey]:
    """One key for each field of a part of `Plan`."""
    for each in fields(part):
        path = f"{table}.{each.name}"
        kind = _KINDS.get(path) or _of_default(getattr(part, each.name))
        yield DescriptionKey(each.name, kind, table, path, expected=_EXPECTED.get(path, ""))


_OWN = (
    DescriptionKey("tp", Count, "parallelism", "tensor"),
    DescriptionKey("cp", Count, "parallelism", "context"),
    DescriptionKey("dp", Count, "parallelism", "data"),
    DescriptionKey("pp", Count, "parallelism", "pipeline"),
    DescriptionKey("ep", Count, "parallelism", "expert"),
    DescriptionKey("etp", Count, "parallelism", "expert_tensor"),
    DescriptionKey(
        "order",
        tuple[Axis, ...],
        "parallelism",
        "order",
        expected=f"a list of {', '.join(Axis)} in some order",
    ),
    DescriptionKey("outer_dp", Count, "parallelism", "outer_data"),
    DescriptionKey("expert_stride", Count, "parallelism", "expert_stride"),
    DescriptionKey("sequence_parallel", bool, "parallelism", "sequence_parallel"),
    DescriptionKey("context_exchange", ContextExchange, "parallelism", "context_exchange"),
    DescriptionKey("micro_batch", Count, "batch", "micro_batch"),
    DescriptionKey("global_batch", Count, "batch", "global_batch"),
    DescriptionKey("sequence", Count, "batch", "sequence"),
    DescriptionKey(
        "schedule",
        Text,
        "pipeline",
        "schedule",
        expected="the name of a schedule, or of its file",
    ),
    DescriptionKey("chunks", Count, "pipeline", "num_chunks"),
    DescriptionKey("contiguous", Count, "pipeline", "contiguous"),
    DescriptionKey(
        "layers_of_chunk",
        Annotated[tuple[Whole, ...], Meta(min_length=1)],
        "pipeline",
        "layers_of_chunk",
        expected="a list of whole numbers",
    ),
    DescriptionKey("level", Sharding, "sharding", "sharding"),
    DescriptionKey("ranks", Count, "sharding", "shard_ranks"),
    DescriptionKey("reshard_after_forward", bool, "sharding", "reshard_after_forward"),
    DescriptionKey("prefetch", Whole, "sharding", "prefetch"),
    DescriptionKey("bucket_bytes", Count, "sharding", "bucket_bytes"),
    DescriptionKey("local_steps", Count, "sharding", "local_steps"),
    DescriptionKey("first", Group, "overlap", "first"),
    DescriptionKey("recompute", Recompute, "memory", "recompute"),
    DescriptionKey(
        "modules",
        Annotated[tuple[RecomputeModule, ...], Meta(min_length=1)],
        "memory",
        "recompute_modules",
        expected=f"a list of {', '.join(RecomputeModule)}",
    ),
    DescriptionKey(
        "layers",
        Annotated[tuple[Text, ...], Meta(min_length=1)],
        "memory",
        "recompute_of_layer",
        expected="a list of none, selective, full or modules joined by +, one for each layer",
    ),
    DescriptionKey(
        "token_shares",
        Annotated[tuple[Share, ...], Meta(min_length=1)],
        "experts",
        "token_shares",
        expected="a list of shares of at least 0",
    ),
)
KEYS = (
    *_OWN,
    *_part_keys("overlap", Overlap()),
    *_part_keys("channels", Channels()),
    *_part_keys("precision", Precision()),
    *_part_keys("dispatch", Dispatch()),
    *_part_keys("implementation", Implementation()),
    *_part_keys("tables", TableSharding()),
    *_part_keys("adapters", Adapters()),
)
KEY_OF_PATH: Mapping[str, DescriptionKey] = {key.path: key for key in KEYS}
KEY_OF_FIELD: Mapping[str, DescriptionKey] = {key.field: key for key in KEYS}
LISTED = "docs/plans.md"  # where all keys are listed
TABLES = tuple(dict.fromkeys(key.table for key in KEYS))


def key_named(name: str) -> DescriptionKey:
    """The key of that path, or of that name where only one table has it.

    Raises:
        WorkloadError: if there is none, or several.
    """
    found = [key for key in KEYS if name in {key.path, key.name}]
    if len(found) == 1:
        return found[0]
    if found:
        raise WorkloadError(
            f"plans have {name!r} in several tables: write {' or '.join(key.path for key in found)}"
        )
    names = tuple(dict.fromkeys([*(key.name for key in KEYS), *KEY_OF_PATH]))
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else allowed_text(name, names, LISTED)
    raise WorkloadError(f"plans have no key {name!r}: {hint}")


def plan_value(key: DescriptionKey, written: object, where: str) -> Value:
    """What is written under a key.

    Raises:
        WorkloadError: if the key cannot hold it.
    """
    value: Value = read_value(written, key, where, error=WorkloadError)
    if key.field == "order" and sorted(map(str, value)) != sorted(Axis):  # type: ignore[arg-type]
        raise WorkloadError(f"'order' of {where} is {written!r}, where {key.expected} is expected")
    return value
