"""What the dimensions of one tensor mean, and signatures as text with other dimensions.

`t` tokens, `r` tokens x heads, `b` sequences, `g` sequences x heads, `s` positions, `n` heads,
`h` heads that share a key head, `w` a width, `d` the width of a head; `1` one, `.` any size that
no edit changes. Templates stand in order of preference; of the names that fit a kind, those that
neighbours speak for come first.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from typing import cast

from foretrace.whatif.resize.named import (
    HIDDEN,
    OWN_TOKENS,
    TOKENS,
    VOCABULARY,
    DimensionKind,
    Dimensions,
    Named,
)

Meaning = tuple[Named | None, ...]  # one per dimension; `None`: a number that stays

_TEMPLATES: Mapping[int, tuple[str, ...]] = {
    1: ("w", "t", "d", "s", "r"),
    2: ("tw", "t1", "ww", "rd", "tn", "sd", "bs", "ss", "sw", ".w", "b1", "r1", "gs"),
    3: (
        "bsw",
        "sbw",
        "tnd",
        "gsd",
        "gds",
        "gss",
        "bs1",
        "sb1",
        "bns",
        "tn1",
        "t1d",
        "snd",
        "1sd",
        ".tw",
    ),
    4: ("bnsd", "bsnd", "sbnd", "bnss", "bns1", "tnhd", "1.sd", "1.ss", "b1ss", "b1sd", "bs1d"),
    5: ("bnsd.", "bsnd.", "sbnd.", "bs.nd", "sb.nd", ".bnsd", "bnnsd", "bsnnd"),
}
# Integers count or point: tokens of sequences, rows of a table, positions.
_OF_INTEGERS: Mapping[int, tuple[str, ...]] = {
    1: ("t", "s"),
    2: ("bs", "t1", "b1", "1s", "ss", "tw"),
    3: ("bs1", "bsw", "1ss"),
    4: ("b1ss", "11ss", "11sd"),
}
# Of models without attention (images, tables) no width has a name: only the batch is known.
_WITHOUT_NAMES: Mapping[int, tuple[str, ...]] = {
    1: ("b", "."),
    2: ("b.", ".b", ".."),
    3: ("b..", "..."),
    4: ("b...", "...."),
    5: ("b....", "....."),
}
_INTEGERS = ("int64", "int32", "bool", "int8", "uint8")

_OF_ENDS = (HIDDEN, VOCABULARY)

Shape = tuple[int, ...]

# Numbers among an operator's values up to here may count dimensions or be switches; larger ones
# that are a dimension of its tensors are taken to be that dimension.
_LARGEST_AXIS = 7


@dataclass(frozen=True)
class TensorPlace:
    """Where a tensor is met."""

    likely: tuple[str, ...] = ()  # widths of what stands before and behind, the surest first
    weights: tuple[tuple[str, str], ...] = ()  # outputs and inputs of the model's matrices
    is_parameter: bool = False  # weights, their gradients and states
    is_between: bool = False  # between products, where ranks may share out the tokens
    is_by_row: bool = False  # a normalisation: its statistics are as many as its rows
    is_at_end: bool = False  # of the model: no layer's widths are met there
    is_table: bool = False  # rows that are looked up, and not of the vocabulary
    is_kernel: bool = False  # of a convolution: it has no batch
    is_flat: bool = False  # none of the operator's tensors has rows
    tables: tuple[int, ...] = ()  # rows of tables that no edit changes: learned positions


@dataclass(frozen=True)
class FoundDimensions:
    """What a tensor's dimensions mean."""

    meaning: Meaning
    is_ambiguous: bool  # another reading, as good, has another size after the edit

    @property
    def shape(self) -> tuple[int | None, ...]:
        """New sizes; `None` where a dimension stays.

        Raises:
            ScenarioError: if ranks cannot divide one of them.
        """
        return tuple(None if one is None else one.new for one in self.meaning)


def meaning_of(
    shape: Sequence[int], dtype: str, known: Dimensions, place: TensorPlace
) -> FoundDimensions | None:
    """What each dimension of a tensor is; none where no template fits."""
    if all(size <= 1 for size in shape) and not _is_of_one(shape, known):
        return FoundDimensions((None,) * len(shape), is_ambiguous=False)
    if place.is_kernel:
        return FoundDimensions((None,) * len(shape), is_ambiguous=False)
    table = _OF_INTEGERS if dtype in _INTEGERS else _TEMPLATES
    if "heads" not in known.by_name:
        table = _WITHOUT_NAMES
    for template in _ordered(table.get(len(shape), ()), shape, place):
        meanings = list(_fitting(shape, template, known, place))
        if meanings:
            sizes = {_elements(one) for one in meanings} if len(meanings) > 1 else set()
            is_open = len(sizes) > 1 and not _is_spoken_for(meanings[0], place)
            is_open = is_open and (len(shape) > 1 or not place.is_parameter)  # a bias, or a norm
            return FoundDimensions(meanings[0], is_ambiguous=is_open)
    return None


def _is_of_one(shape: Sequence[int], known: Dimensions) -> bool:
    """Whether a shape of ones may be more after the edit: one sequence of one microbatch."""
    return len(shape) > 2 and any(one.after != 1 for one in known.by_value.get(1, ()))  # noqa: PLR2004


def _ordered(
    templates: tuple[str, ...], shape: Sequence[int], place: TensorPlace
) -> tuple[str, ...]:
    first = "ww" if place.is_parameter else DimensionKind.TOKENS if place.is_flat else ""
    if place.is_table or (shape and shape[0] in place.tables):
        first = ".w"
    return tuple(sorted(templates, key=lambda one: one != first))


def _fitting(
    shape: Sequence[int], template: str, known: Dimensions, place: TensorPlace
) -> Iterator[Meaning]:
    """Readings of a shape by one template, the likeliest first."""
    choices: list[tuple[Named | None, ...]] = []
    for size, letter in zip(shape, template, strict=True):
        if letter == ".":
            choices.append((None,))
        elif letter == "1":
            choices.append((None,) if size == 1 else ())
        else:
            found = known.of(size, DimensionKind(letter))
            if letter == DimensionKind.WIDTH:
                found = _of_place(found, place)
                found = tuple(sorted(found, key=lambda one: _rank(one.name, place)))
            choices.append(found)
    if template == ".w" and shape[0] not in place.tables and not place.is_table:
        return
    for meaning in sorted(product(*choices), key=lambda one: _order(one, choices, template, place)):
        if template == "ww" and not _is_weight(meaning, place):
            continue
        yield meaning


def _order(
    meaning: Meaning, choices: Sequence[tuple[Named | None, ...]], template: str, place: TensorPlace
) -> tuple[int, ...]:
    """Widths decide first: neighbours speak for these alone."""
    at = [found.index(one) for one, found in zip(meaning, choices, strict=True)]
    widths = [
        one for one, letter in zip(at, template, strict=True) if letter == DimensionKind.WIDTH
    ]
    return (sum(widths), not _is_consistent(meaning, place), *at)


def _of_place(widths: tuple[Named, ...], place: TensorPlace) -> tuple[Named, ...]:
    """Widths that are met at a place of the model, where one of them fits."""
    if place.is_parameter:
        return widths
    likely = [
        one
        for one in widths
        if (one.name in _OF_ENDS if place.is_at_end else one.name != VOCABULARY)
    ]
    return tuple(likely) or widths


def _rank(name: str, place: TensorPlace) -> int:
    return place.likely.index(name) if name in place.likely else len(place.likely)


def _is_weight(meaning: Meaning, place: TensorPlace) -> bool:
    names = tuple("" if one is None else one.name for one in meaning)
    return names in place.weights or names[::-1] in place.weights


def _is_consistent(meaning: Meaning, place: TensorPlace) -> bool:
    """Tokens are shared out over ranks where rows are as wide as the model, and only there."""
    names = [one.name for one in meaning if one is not None]
    is_own = OWN_TOKENS in names or "own sequence" in names
    is_whole = TOKENS in names or "sequence" in names
    if not is_own and not is_whole:
        return True
    is_shared_out = place.is_between and (HIDDEN in names or place.is_by_row)
    return is_own == is_shared_out


def _elements(meaning: Meaning) -> Fraction:
    """Elements after the edit, of the dimensions that have a name."""
    count = Fraction(1)
    for one in meaning:
        count *= 1 if one is None else one.after
    return count


def _is_spoken_for(meaning: Meaning, place: TensorPlace) -> bool:
    """Whether a neighbour has the width that was chosen."""
    widths = [one.name for one in meaning if one is not None and one.kind is DimensionKind.WIDTH]
    return bool(place.weights) and all(name in place.likely for name in widths)


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
    times the gap that was between them. A dimension without elements counts as one of a single
    element, as PyTorch's own strides have it.
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
            was_span, span = strides[at] * max(1, old[at]), found[at] * max(1, new[at])
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
