"""Signatures as JSON text, with other dimensions: strides and values of inputs follow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import cast

Shape = tuple[int, ...]

# Numbers among an operator's values up to here may count dimensions or be switches; larger ones
# that are a dimension of its tensors are taken to be that dimension.
_LARGEST_AXIS = 7


def with_shapes(
    signature: str,
    shapes: Sequence[Shape | tuple[Shape, ...] | None],
    gaps: Mapping[int, int] | None = None,
) -> str:
    """A signature with other shapes.

    Args:
        signature: JSON text, as `trace` keeps it.
        shapes: one per input: `None` where it is no tensor, or stays; of a list a tuple of shapes.
        gaps: what becomes of gaps between elements that do not lie next to each other.
    """
    said = json.loads(signature)
    dims = said["dims"]
    strides = said.get("strides")
    changed: dict[int, int] = {}
    for at, new in enumerate(shapes):
        if new is None:
            continue
        old = dims[at]
        is_list = bool(old) and all(isinstance(one, list) for one in old)
        parts = cast("list[list[int]]", old if is_list else [old])
        others = cast("tuple[Shape, ...]", new if is_list else (new,))
        is_flat = all(type(one) is int for was in parts for one in was)
        if not is_flat or [len(was) for was in parts] != [len(now) for now in others]:
            continue  # lists in lists: whoever wrote them means no shape
        for was, now in zip(parts, others, strict=True):
            changed.update(
                {a: b for a, b in zip(was, now, strict=True) if a != b and a > _LARGEST_AXIS}
            )
        if isinstance(strides, list) and at < len(strides):
            strides[at] = _new_strides(strides[at], (old, new), gaps or {}, is_list=is_list)
        dims[at] = [list(one) for one in cast("tuple[Shape, ...]", new)] if is_list else list(new)
    values = said.get("inputs")
    if isinstance(values, list) and changed:
        said["inputs"] = [_new_value(one, changed) for one in values]
    return json.dumps(said, separators=(",", ":"))


def _new_strides(
    strides: object, shapes: tuple[object, object], gaps: Mapping[int, int], *, is_list: bool
) -> object:
    old, new = shapes
    if is_list:
        parts = cast("list[list[int]]", strides)
        if not isinstance(strides, list) or len(parts) != len(cast("list[object]", old)):
            return strides
        triples = zip(
            parts, cast("list[list[int]]", old), cast("tuple[Shape, ...]", new), strict=True
        )
        return [strided(one, was, now, gaps) for one, was, now in triples]
    return strided(cast("list[int]", strides), cast("list[int]", old), cast("Shape", new), gaps)


def strided(
    strides: Sequence[int], old: Sequence[int], new: Sequence[int], gaps: Mapping[int, int]
) -> list[int]:
    """Strides of a tensor of another shape that lies in memory as it did.

    From the innermost dimension outwards each stride is that of the one inside, times its size,
    times the gap that was between them.
    """
    if len(strides) != len(old) or not isinstance(strides, list):
        return list(strides)
    order = sorted(range(len(old)), key=lambda at: (strides[at], -at))
    found = list(strides)
    was_span, span = 1, 1  # elements from one to the next of the dimension that comes
    for at in order:
        if strides[at] == 0:
            continue
        gap, rest = divmod(strides[at], was_span)
        whole = gap if rest else gaps.get(gap, gap)
        found[at] = max(1, strides[at] * span // was_span if rest else whole * span)
        # The stride of a single element is any number; only one that fits says where it lies.
        if old[at] != 1 or strides[at] == was_span:
            was_span, span = strides[at] * old[at], found[at] * new[at]
    return found


def _new_value(value: object, changed: dict[int, int]) -> object:
    """`[512]` for `[256]`, `2048` for `1024`, where these are dimensions that changed."""
    if not isinstance(value, str):
        return value
    try:
        said = json.loads(value)
    except ValueError:
        return value
    if type(said) is int:
        return str(changed.get(said, said))
    if isinstance(said, list) and all(type(one) is int for one in said):
        return "[" + ", ".join(str(changed.get(one, one)) for one in said) + "]"
    return value
