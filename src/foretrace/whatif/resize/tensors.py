"""What the dimensions of one tensor mean: templates of kinds, by the number of dimensions.

`t` tokens, `r` tokens x heads, `b` sequences, `g` sequences x heads, `s` positions, `n` heads,
`h` heads that share a key head, `w` a width, `d` the width of a head; `1` one, `.` any size that
no edit changes. Templates stand in order of preference; of the names that fit a kind, those that
neighbours speak for come first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product

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


_OF_ENDS = (HIDDEN, VOCABULARY)


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
