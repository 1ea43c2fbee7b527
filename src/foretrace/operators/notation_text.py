"""Reading operators in index notation: tokens, one statement, and the ranges of its indices."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from foretrace.base import FORMAT_BY_NAME, ModelError
from foretrace.operators.notation import Affine, IndexedOperator, IndexedRead, NotationTerm

_TOKEN = re.compile(
    r"\s*(?:(?P<word>[A-Za-z_]\w*)|(?P<number>\d+(?:\.\d+)?)|(?P<sign>\+=!|\+=|->|\S))"
)
_COMMENT = re.compile(r"#[^\n]*")

_Read: TypeAlias = tuple[Affine, int, str]  # an index, places of the dimension, the tensor


def read_operator(path: Path) -> IndexedOperator:
    """An operator from a file in index notation.

    Raises:
        ModelError: naming the file, with the line and a caret under what is wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as err:
        raise ModelError(f"{path} cannot be read as an operator's text: {err}") from err
    return parsed_operator(text, where=str(path))


def parsed_operator(text: str, *, where: str = "the operator") -> IndexedOperator:
    """An operator from its text.

    Raises:
        ModelError: with the line and a caret under what is wrong.
    """
    return _Reader(_COMMENT.sub(lambda one: " " * len(one[0]), text), where).operator()


class _Reader:
    """Takes a text token by token."""

    def __init__(self, text: str, where: str) -> None:
        self._text, self._where = text, where
        self._tokens = [
            (one.lastgroup or "", one[one.lastgroup or 0], one.start(one.lastgroup or 0))
            for one in _TOKEN.finditer(text)
        ]
        self._next = 0

    def operator(self) -> IndexedOperator:
        """The whole definition."""
        self._take("def")
        name = self._word("a name")
        formats, shapes = self._tensors()
        for sign in ("->", "("):
            self._take(sign)
        result_name = self._word("the result's name")
        for sign in (")", "{"):
            self._take(sign)
        result = self._access({}, is_result=True)
        if result.tensor != result_name:
            raise self._wrong(f"{result_name} is what the operator makes", result.at)
        sign = self._take("+=!", "+=", "=")
        terms = tuple(self._terms(shapes))
        self._take("}")
        if self._next < len(self._tokens):
            raise self._wrong("one statement in braces is the whole operator", self._at)
        ranges = self._ranges(result, terms, shapes, is_sum=sign != "=")
        unused = [one for one in shapes if not any(one == r.tensor for t in terms for r in t.reads)]
        if unused:
            raise self._wrong(f"{unused[0]} is never read", self._text.find(unused[0]))
        return IndexedOperator(
            name=name,
            formats={**formats, result_name: next(iter(formats.values()))},
            shapes=shapes,
            result=result,
            is_sum=sign != "=",
            keeps_result=sign == "+=",
            terms=terms,
            ranges=ranges,
        )

    def _tensors(self) -> tuple[dict[str, str], dict[str, tuple[int, ...]]]:
        formats: dict[str, str] = {}
        shapes: dict[str, tuple[int, ...]] = {}
        self._take("(")
        while True:
            at = self._at
            dtype = self._word("a number format")
            if dtype not in FORMAT_BY_NAME:
                raise self._wrong(f"{dtype!r} is no number format, as fp32 or bf16 are", at)
            self._take("(")
            sizes = [self._whole("a size")]
            while self._take(",", ")") == ",":
                sizes.append(self._whole("a size"))
            at = self._at
            name = self._word("the tensor's name")
            if name in formats or min(sizes) < 1:
                raise self._wrong("tensors have names of their own and sizes of at least 1", at)
            formats[name], shapes[name] = dtype, tuple(sizes)
            if self._take(",", ")") == ")":
                return formats, shapes

    def _terms(self, shapes: Mapping[str, tuple[int, ...]]) -> Iterator[NotationTerm]:
        sign = 1.0
        if self._is("-"):
            self._take("-")
            sign = -1.0
        while True:
            factor, reads, count = sign, [], 0
            while True:
                kind, word, _ = self._peek()
                if kind == "number":
                    self._next += 1
                    factor *= float(word)
                else:
                    reads.append(self._access(shapes))
                count += 1
                if not self._is("*"):
                    break
                self._take("*")
            if not reads:
                raise self._wrong("a term reads a tensor", self._at)
            yield NotationTerm(factor, tuple(reads), count - 1)
            if not (self._is("+") or self._is("-")):
                return
            sign = 1.0 if self._take("+", "-") == "+" else -1.0

    def _access(
        self, shapes: Mapping[str, tuple[int, ...]], *, is_result: bool = False
    ) -> IndexedRead:
        at = self._at
        name = self._word("a tensor")
        if not is_result and name not in shapes:
            raise self._wrong(f"{name!r} is no tensor: there are {', '.join(shapes)}", at)
        self._take("(")
        indices = [self._affine()]
        while self._take(",", ")") == ",":
            indices.append(self._affine())
        if not is_result and len(indices) != len(shapes[name]):
            raise self._wrong(
                f"{name} has {len(shapes[name])} dimensions, and {len(indices)} indices are here",
                at,
            )
        every = [one for each in indices for one in each.names]
        if len(set(every)) < len(every):
            raise self._wrong(f"an index stands twice in {name}", at)
        if is_result and not all(one.is_bare for one in indices):
            raise self._wrong("the result stands at bare indices", at)
        return IndexedRead(name, tuple(indices), at)

    def _affine(self) -> Affine:
        at, sign, constant = self._at, 1, 0
        factors: dict[str, int] = {}
        if self._is("-"):
            raise self._wrong("an index begins with a name or a number", at)
        while True:
            kind, word, _ = self._peek()
            if kind == "number":
                value = self._whole("a whole number")
                if self._is("*"):
                    self._take("*")
                    self._add(factors, sign * value)
                else:
                    constant += sign * value
            elif kind == "word":
                self._add(factors, sign)
            else:
                raise self._wrong(
                    f"an index is expected, and {word or 'the end'!r} is here", self._at
                )
            if not (self._is("+") or self._is("-")):
                return Affine(tuple(factors.items()), constant, at)
            sign = 1 if self._take("+", "-") == "+" else -1

    def _add(self, factors: dict[str, int], factor: int) -> None:
        at = self._at
        name = self._word("an index")
        if name in factors or factor <= 0:
            raise self._wrong(f"{name} stands twice, or times less than 1", at)
        factors[name] = factor

    def _ranges(
        self,
        result: IndexedRead,
        terms: Sequence[NotationTerm],
        shapes: Mapping[str, tuple[int, ...]],
        *,
        is_sum: bool,
    ) -> dict[str, range]:
        """The largest ranges with which all reads are in bounds."""
        reads = [
            (one, size, each.tensor)
            for term in terms
            for each in term.reads
            for one, size in zip(each.indices, shapes[each.tensor], strict=True)
        ]
        names = dict.fromkeys((*result.names, *(name for one, *_ in reads for name in one.names)))
        if not is_sum and (more := [name for name in names if name not in result.names]):
            raise self._wrong(
                f"{more[0]} is no index of the result: sum over it with `+=!`", result.at
            )
        begins, ends = dict.fromkeys(names, 0), self._bare_ends(reads)
        for one, _, _ in reads:
            if one.constant < 0 and one.factor_by_index:
                name, factor = one.factor_by_index[0]
                begins[name] = max(begins[name], -(one.constant // factor))
        while _next_ends(reads, ends):
            pass
        for name in names:
            if name not in ends:
                at = next((one.at for one, *_ in reads if name in one.names), result.at)
                raise self._wrong(f"nothing says how far {name} goes", at)
            if ends[name] <= begins[name]:
                at = next(one.at for one, *_ in reads if name in one.names)
                raise self._wrong(f"no value of {name} keeps all reads in bounds", at)
        for one, size, tensor in reads:
            most = one.constant + sum(each * (ends[name] - 1) for name, each in one.factor_by_index)
            if most >= size:
                raise self._wrong(
                    f"{tensor} has {size:,} places here, and {most:,} is read", one.at
                )
        return {name: range(begins[name], ends[name]) for name in names}

    def _bare_ends(self, reads: Sequence[_Read]) -> dict[str, int]:
        """Ends that bare indices state; each must be the same everywhere."""
        ends: dict[str, int] = {}
        said: dict[str, str] = {}
        for one, size, tensor in reads:
            if not one.is_bare:
                continue
            name = one.names[0]
            if ends.setdefault(name, size) != size:
                raise self._wrong(
                    f"{name} takes {ends[name]:,} values in {said[name]} and {size:,} in {tensor}",
                    one.at,
                )
            said.setdefault(name, tensor)
        return ends

    @property
    def _at(self) -> int:
        return self._peek()[2]

    def _peek(self) -> tuple[str, str, int]:
        if self._next < len(self._tokens):
            return self._tokens[self._next]
        return "", "", len(self._text.rstrip())

    def _is(self, sign: str) -> bool:
        return self._peek()[1] == sign

    def _take(self, *wanted: str) -> str:
        _, found, at = self._peek()
        if found not in wanted:
            expected = " or ".join(f"`{one}`" for one in wanted)
            raise self._wrong(f"{expected} is expected, and {found or 'the end'!r} is here", at)
        self._next += 1
        return found

    def _word(self, what: str) -> str:
        kind, found, at = self._peek()
        if kind != "word":
            raise self._wrong(f"{what} is expected, and {found or 'the end'!r} is here", at)
        self._next += 1
        return found

    def _whole(self, what: str) -> int:
        kind, found, at = self._peek()
        if kind != "number" or not found.isdigit():
            raise self._wrong(f"{what} is expected, and {found or 'the end'!r} is here", at)
        self._next += 1
        return int(found)

    def _wrong(self, what: str, at: int) -> ModelError:
        begin = self._text.rfind("\n", 0, at) + 1
        line = self._text[begin:].split("\n", 1)[0].rstrip()
        number = self._text.count("\n", 0, at) + 1
        return ModelError(f"{self._where}, line {number}: {what}\n{line}\n{' ' * (at - begin)}^")


def _next_ends(reads: Sequence[_Read], ends: dict[str, int]) -> bool:
    """Work out ends from reads in which one index alone is open; whether any changed."""
    before = dict(ends)
    for one, size, _ in reads:
        opened = [name for name in one.names if name not in before]
        if one.is_bare or len(opened) > 1 or not (opened or len(one.names) == 1):
            continue
        (name,) = opened or one.names
        factors = dict(one.factor_by_index)
        others = sum(each * (before[other] - 1) for other, each in factors.items() if other != name)
        end = (size - 1 - one.constant - others) // factors[name] + 1
        ends[name] = min(ends.get(name, end), end)
    return ends != before
