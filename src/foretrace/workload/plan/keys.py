"""What a plan file may say: every key, what it sets in a `Plan`, and what it may hold."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import StrEnum

from foretrace.base import WorkloadError
from foretrace.workload.models.flops import Recompute
from foretrace.workload.plan.plan import (
    Axis,
    ContextExchange,
    Implementation,
    Overlap,
    Precision,
    Sharding,
)
from foretrace.workload.sharding.tables import TableScheme, TableSharding

TableExceptions = tuple[tuple[int, TableScheme], ...]
Value = (
    bool
    | int
    | float
    | str
    | tuple[int, ...]
    | tuple[float, ...]
    | tuple[Axis, ...]
    | TableExceptions
)

_MAX_COUNT = 2**40  # whole numbers far beyond any job, so that products stay exact
_STORED = ("bf16", "fp16", "fp8", "fp32")
_WORDS = {
    "products": ("bf16", "fp16", "fp8", "mxfp8", "nvfp4", "fp32", "tf32"),
    "activations": _STORED,
    "parameters": _STORED,
    "gradients": _STORED,
    "reduced": _STORED,
    "attention": ("flash", "plain"),
    "selective": ("scores", "operators"),
    "launch": ("eager", "compiled", "graph"),
    "number_format": _STORED,
}


@dataclass(frozen=True)
class Key:
    """One key of a plan file."""

    path: str  # table and name: "parallelism.tp"
    field: str  # of `Plan`, with a dot where it is one of `Overlap` and the like
    read: Callable[[object], Value | None]  # `None`: it cannot be that
    expected: str  # in words for an error
    choices: tuple[str, ...] = ()

    @property
    def table(self) -> str:
        """Where it stands: "parallelism"."""
        return self.path.partition(".")[0]

    @property
    def name(self) -> str:
        """What it is called there: "tp"."""
        return self.path.partition(".")[2]


def _count(written: object) -> int | None:
    if isinstance(written, bool) or not isinstance(written, int):
        return None
    return written if 1 <= written <= _MAX_COUNT else None


def _whole(written: object) -> int | None:
    return 0 if type(written) is int and written == 0 else _count(written)


def _counts(written: object) -> tuple[int, ...] | None:
    found = _listed(written, _whole)
    return None if found is None else tuple(int(each) for each in found)


def _flag(written: object) -> bool | None:
    return written if isinstance(written, bool) else None


def _share(written: object) -> float | None:
    if isinstance(written, bool) or not isinstance(written, int | float):
        return None
    return float(written) if 0 <= written < math.inf else None


def _shares(written: object) -> tuple[float, ...] | None:
    found = _listed(written, _share)
    return None if found is None else tuple(found)


def _text(written: object) -> str | None:
    return written if isinstance(written, str) and written else None


def _axes(written: object) -> tuple[Axis, ...] | None:
    if not isinstance(written, list | tuple) or sorted(map(str, written)) != sorted(Axis):
        return None
    return tuple(Axis(str(each)) for each in written)


def _exceptions(written: object) -> TableExceptions | None:
    if not isinstance(written, list | tuple):
        return None
    found = []
    for each in written:
        if not isinstance(each, list | tuple) or len(each) != len(("table", "scheme")):
            return None
        table, scheme = _whole(each[0]), each[1]
        if table is None or scheme not in list(TableScheme):
            return None
        found.append((table, TableScheme(scheme)))
    return tuple(found)


def _listed(written: object, read: Callable[[object], float | None]) -> list[float] | None:
    if not isinstance(written, list | tuple) or not written:
        return None
    found = [read(each) for each in written]
    return None if None in found else [each for each in found if each is not None]


_SPECIAL: Mapping[str, tuple[Callable[[object], Value | None], str]] = {
    "tables.exceptions": (
        _exceptions,
        f"a list of [table, scheme] with one of {', '.join(TableScheme)}",
    ),
    "tables.assumed_pooling": (_share, "a number of at least 0"),
    "tables.capacity_bytes": (_count, "a whole number of at least 1"),
}


def _chosen(choices: tuple[str, ...]) -> Callable[[object], str | None]:
    def read(written: object) -> str | None:
        return written if isinstance(written, str) and written in choices else None

    return read


def _count_key(path: str, field: str) -> Key:
    return Key(path, field, _count, "a whole number of at least 1")


def _flag_key(path: str, field: str) -> Key:
    return Key(path, field, _flag, "true or false")


def _word_key(path: str, field: str, choices: tuple[str, ...]) -> Key:
    return Key(path, field, _chosen(choices), f"one of {', '.join(choices)}", choices)


def _enum_key(path: str, field: str, kind: type[StrEnum]) -> Key:
    choices = tuple(each.value for each in kind)

    def read(written: object) -> StrEnum | None:
        return kind(written) if isinstance(written, str) and written in choices else None

    return Key(path, field, read, f"one of {', '.join(choices)}", choices)


def _part_keys(
    table: str, part: Overlap | Precision | Implementation | TableSharding
) -> Iterator[Key]:
    """One key for each field of a part of `Plan`, by the type of its default."""
    for each in fields(part):
        path, default = f"{table}.{each.name}", getattr(part, each.name)
        if path in _SPECIAL:
            read, expected = _SPECIAL[path]
            yield Key(path, path, read, expected)
        elif isinstance(default, StrEnum):
            yield _enum_key(path, path, type(default))
        elif isinstance(default, bool):
            yield _flag_key(path, path)
        elif isinstance(default, int) and default > 0:
            yield _count_key(path, path)
        elif isinstance(default, int):
            yield Key(path, path, _whole, "a whole number of at least 0")
        elif isinstance(default, float):
            yield Key(path, path, _share, "a number of at least 0")
        elif each.name in _WORDS:
            yield _word_key(path, path, _WORDS[each.name])
        else:
            yield Key(path, path, _text, "a text")


_PARALLELISM = (
    _count_key("parallelism.tp", "tensor"),
    _count_key("parallelism.cp", "context"),
    _count_key("parallelism.dp", "data"),
    _count_key("parallelism.pp", "pipeline"),
    _count_key("parallelism.ep", "expert"),
    _count_key("parallelism.etp", "expert_tensor"),
    Key("parallelism.order", "order", _axes, f"a list of {', '.join(Axis)} in some order"),
    _flag_key("parallelism.sequence_parallel", "sequence_parallel"),
    _enum_key("parallelism.context_exchange", "context_exchange", ContextExchange),
)
_BATCH = (
    _count_key("batch.micro_batch", "micro_batch"),
    _count_key("batch.global_batch", "global_batch"),
    _count_key("batch.sequence", "sequence"),
)
_PIPELINE = (
    Key("pipeline.schedule", "schedule", _text, "the name of a schedule, or of its file"),
    _count_key("pipeline.chunks", "num_chunks"),
    _count_key("pipeline.contiguous", "contiguous"),
    Key("pipeline.layers_of_chunk", "layers_of_chunk", _counts, "a list of whole numbers"),
)
_SHARDING = (
    _enum_key("sharding.level", "sharding", Sharding),
    _count_key("sharding.ranks", "shard_ranks"),
    _flag_key("sharding.reshard_after_forward", "reshard_after_forward"),
    Key("sharding.prefetch", "prefetch", _whole, "a whole number of at least 0"),
    _count_key("sharding.bucket_bytes", "bucket_bytes"),
)
_REST = (
    _enum_key("memory.recompute", "recompute", Recompute),
    Key("experts.token_shares", "token_shares", _shares, "a list of shares of at least 0"),
)
KEYS = (
    *_PARALLELISM,
    *_BATCH,
    *_PIPELINE,
    *_SHARDING,
    *_REST,
    *_part_keys("overlap", Overlap()),
    *_part_keys("precision", Precision()),
    *_part_keys("implementation", Implementation()),
    *_part_keys("tables", TableSharding()),
)
KEY_OF_PATH: Mapping[str, Key] = {key.path: key for key in KEYS}
KEY_OF_FIELD: Mapping[str, Key] = {key.field: key for key in KEYS}
TABLES = tuple(dict.fromkeys(key.table for key in KEYS))


def key_named(name: str) -> Key:
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
    names = [*(key.name for key in KEYS), *KEY_OF_PATH]
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(KEY_OF_PATH)}"
    raise WorkloadError(f"plans have no key {name!r}: {hint}")


def read_value(key: Key, written: object, where: str) -> Value:
    """What is written under a key.

    Raises:
        WorkloadError: if the key cannot hold it.
    """
    value = key.read(written)
    if value is not None:
        return value
    near = get_close_matches(str(written), key.choices, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise WorkloadError(
        f"{key.name!r} of {where} is {written!r}, where {key.expected} is expected{hint}"
    )
