"""`Selection`: which work of a job an edit is about, as people write it, and its nodes in a graph.

A selection is words with spaces between: a class or family of work alone (`gemm`, `flash
attention`), `all`, or `kernels:PATTERN`, `operators:PATTERN`, `part:NAME`, `phase:NAME`,
`layers:0,4-7`, `ranks:3`; `with-host` takes the host's time in too.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import TypeVar

import numpy as np

from foretrace.analyze import is_compute
from foretrace.base import Bools, Int32s, Integers, ScenarioError, UInt8s, numbered_rows
from foretrace.graph import ExecutionGraph, NodeKind, Part, Phase
from foretrace.operators import recognised

EVERYTHING = "all"
WITH_HOST = "with-host"
SELECTION_EXAMPLE = "'gemm', 'kernels:*flash*' or 'gemm layers:0-3 ranks:1'"

_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_LARGEST_NUMBER = 2**20  # of a layer or rank: a slip of the hand must not fill the memory
_MAX_NAMED = 5
_MAX_LENGTH = 60  # of a kernel's name in an error
_TRANSFERS = ("collective", "communication")  # what a transfer of any kind is called

Member = TypeVar("Member", bound=IntEnum)


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Nodes that fit everything stated; what is left out fits all.

    Chosen is compute: kernels, copies and fills, and operators where a host alone computes. Names
    and families choose transfers too. Names and families are patterns (`*`, `?`, `[...]`) in which
    case does not matter.
    """

    kernels: str | None = None  # pattern of device operations' names: "*flash*"
    operators: str | None = None  # pattern of the framework operators' names: "aten::addmm"
    # Class or family as `operators` calls it: "gemm", "flash attention"; of a transfer also its
    # collective, "allreduce", or "collective" for all of them.
    family: str | None = None
    part: Part | None = None
    phase: Phase | None = None
    layers: tuple[int, ...] | None = None
    ranks: tuple[int, ...] | None = None
    with_host: bool = False  # host time too: calls, and the time between them

    def __str__(self) -> str:
        """In words: `gemm kernels of layer 3, forward, on rank 1`."""
        what = self.family or self.kernels or self.operators or "all work"
        words = [what]
        if self.part is not None:
            words.append(self.part.name.lower())
        if self.layers is not None:
            words.append("layers " + ",".join(map(str, self.layers)))
        if self.phase is not None:
            words.append(self.phase.name.lower())
        if self.ranks is not None:
            words.append("rank " + ",".join(map(str, self.ranks)))
        return " ".join(words)

    @property
    def written(self) -> str:
        """As `selection_of` reads it: `gemm layers:0-3 ranks:1`."""
        named = [] if self.family is None else [self.family]
        words = [f"{name}:{value}" for name, value in self._texts() if value is not None]
        host = [WITH_HOST] if self.with_host else []
        return " ".join([*named, *words, *host]) or EVERYTHING

    def _texts(self) -> Iterator[tuple[str, str | None]]:
        for name in ("kernels", "operators"):
            yield name, getattr(self, name)
        yield "part", None if self.part is None else self.part.name.lower()
        yield "phase", None if self.phase is None else self.phase.name.lower()
        yield "layers", None if self.layers is None else ",".join(_ranges(list(self.layers)))
        yield "ranks", None if self.ranks is None else ",".join(_ranges(list(self.ranks)))


def selection_of(text: str) -> Selection:
    """The work that a text names.

    Raises:
        ScenarioError: if a word of it means nothing.
    """
    found: dict[str, object] = {}
    words = text.split()
    if not words:
        raise ScenarioError(
            f"{text!r} names no work: write 'all', a family or more, as in {SELECTION_EXAMPLE}"
        )
    for word in words:
        name, colon, value = word.partition(":")
        if word == WITH_HOST:
            found["with_host"] = True
        elif not colon and word != EVERYTHING:
            found["family"] = f"{found['family']} {word}" if "family" in found else word
        elif colon:
            key = _key(name, word)
            if key in found:
                raise ScenarioError(f"{text!r} states {key} twice: state it once")
            found[key] = _READERS[key](value)
    return Selection(**found)  # type: ignore[arg-type]  # read for their fields


def _key(name: str, word: str) -> str:
    key = name if name in _READERS else f"{name}s"
    if key in _READERS:
        return key
    near = get_close_matches(name, _READERS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"an operator is 'operators:{word}'"
    raise ScenarioError(
        f"{word!r} begins with {name!r}, which selects nothing: allowed are "
        f"{', '.join(f'{key}:' for key in _READERS)}; {hint}"
    )


def _numbers(text: str) -> tuple[int, ...]:
    found: set[int] = set()
    for part in text.split(","):
        match = _RANGE.fullmatch(part)
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if not first <= last <= _LARGEST_NUMBER:
            raise ScenarioError(f"{text!r} are no numbers: write them as in 0,4-7")
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def _member(kind: type[Member]) -> Callable[[str], Member]:
    names = {one.name.lower(): one for one in kind if one}

    def read(text: str) -> Member:
        if text in names:
            return names[text]
        near = get_close_matches(text, names, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ScenarioError(
            f"no {kind.__name__.lower()} is called {text!r}: expected one of "
            f"{', '.join(names)}{hint}"
        )

    return read


def _text(text: str) -> str:
    if not text:
        raise ScenarioError(f"a selection names nothing: write it as in {SELECTION_EXAMPLE}")
    return text


_READERS: Mapping[str, Callable[[str], object]] = {
    "family": _text,
    "kernels": _text,
    "operators": _text,
    "part": _member(Part),
    "phase": _member(Phase),
    "layers": _numbers,
    "ranks": _numbers,
}


@dataclass(frozen=True)
class _Criterion:
    """One thing that a selection states."""

    what: str
    wanted: str
    mask: Bools  # bool[nodes]
    have: Callable[[], Iterable[str]]  # what could have been stated instead


def selected(graph: ExecutionGraph, selection: Selection) -> Bools:
    """Nodes that a selection names; bool[nodes].

    Raises:
        ScenarioError: if something it states names nothing in the graph, or nothing fits it all.
    """
    mask = _candidates(graph, selection)
    if not mask.any():
        raise ScenarioError(
            f"{str(selection)!r} selects nothing: the recording holds no kernels, copies or "
            "operators; was the device left out when it was recorded?"
        )
    criteria = tuple(_criteria(graph, selection, mask))
    for criterion in criteria:
        if not (mask & criterion.mask).any():
            raise ScenarioError(_nothing(criterion))
    for criterion in criteria:
        mask &= criterion.mask
    if not mask.any():
        raise ScenarioError(
            f"{str(selection)!r} selects nothing: there is work for each of "
            f"{', '.join(f'{one.what} {one.wanted}' for one in criteria)}, but none that fits them "
            "all. Leave one out; transfers are selected by family 'collective', host time by "
            "with_host."
        )
    return mask


def fitting(graph: ExecutionGraph, selection: Selection) -> Bools:
    """The same, and no nodes where there are none; bool[nodes]."""
    mask = _candidates(graph, selection)
    for criterion in _criteria(graph, selection, mask):
        mask &= criterion.mask
    return mask


def of_block(graph: ExecutionGraph, selection: Selection) -> Bools:
    """Nodes of any kind whose block and rank fit; bool[nodes]."""
    mask = np.ones(graph.num_nodes, np.bool_)
    for criterion in _of_block(graph, selection, mask):
        mask &= criterion.mask
    return mask


def is_meant(wanted: str, value: str) -> bool:
    """Whether a text is, or fits, what somebody wrote."""
    return value == wanted or fnmatchcase(value.lower(), wanted.lower())


def nearest(wanted: str, have: Iterable[str]) -> str:
    """What there is, nearest first, in words: `there are 'gemm', 'copy' and 7 more`."""
    known = list(dict.fromkeys(have))
    if not known:
        return "none is known"
    plain = wanted.strip("*").lower()
    by_lower = {one.lower(): one for one in known}
    near = [one for one in known if plain and plain in one.lower()]
    near += [by_lower[one] for one in get_close_matches(plain, by_lower, _MAX_NAMED)]
    named = list(dict.fromkeys([*near, *known]))[:_MAX_NAMED]
    rest = f" and {len(known) - len(named)} more" if len(known) > len(named) else ""
    return f"there are {', '.join(repr(_shortened(one)) for one in named)}{rest}"


def _candidates(graph: ExecutionGraph, selection: Selection) -> Bools:
    """Work that the selection could be about."""
    mask = is_compute(graph)
    if selection.kernels or selection.operators or selection.family:
        mask |= graph.kind == NodeKind.FINISH
    if selection.with_host:
        mask |= graph.is_host
    return mask


def _criteria(graph: ExecutionGraph, selection: Selection, among: Bools) -> Iterator[_Criterion]:
    works = among & (is_compute(graph) | (graph.kind == NodeKind.FINISH))
    if selection.family is not None:
        yield _of_family(graph, selection.family, works)
    if selection.kernels is not None:
        yield _of_texts(graph, ("kernel", selection.kernels), graph.name, works)
    if selection.operators is not None:
        has_name = graph.kind == NodeKind.OPERATOR
        column = np.where(has_name, graph.name, graph.operator).astype(np.int32)
        yield _of_texts(graph, ("operator", selection.operators), column, among)
    yield from _of_block(graph, selection, among)


def _of_block(graph: ExecutionGraph, selection: Selection, among: Bools) -> Iterator[_Criterion]:
    if selection.part is not None:
        yield _of_member(("part", selection.part), graph.part, among, Part)
    if selection.phase is not None:
        yield _of_member(("phase", selection.phase), graph.phase, among, Phase)
    if selection.layers is not None:
        yield _of_numbers(("layer", selection.layers), graph.layer, among)
    if selection.ranks is not None:
        yield _of_numbers(("rank", selection.ranks), graph.rank, among)


def _of_texts(
    graph: ExecutionGraph, asked: tuple[str, str], column: Int32s, works: Bools
) -> _Criterion:
    what, wanted = asked
    used = np.unique(column[works & (column >= 0)])
    chosen = [at for at in used.tolist() if is_meant(wanted, graph.names[at])]
    mask = works & np.isin(column, chosen)
    return _Criterion(what, repr(wanted), mask, lambda: sorted(graph.names[at] for at in used))


def _of_family(graph: ExecutionGraph, wanted: str, works: Bools) -> _Criterion:
    """By class or family of distinct pairs of a kernel and its operator; transfers by theirs."""
    nodes = np.flatnonzero(works)
    collective = np.where(graph.kind == NodeKind.FINISH, graph.collective, -1)[nodes]
    columns = (graph.name[nodes], graph.operator[nodes], _kinds(graph)[collective])
    number = numbered_rows(columns)
    _, first = np.unique(number, return_index=True)
    rows = np.stack(columns)[:, first].T
    names = [_names(graph, *row) for row in rows.tolist()]
    chosen = np.array([any(is_meant(wanted, one) for one in each) for each in names], np.bool_)
    mask = np.zeros(graph.num_nodes, np.bool_)
    mask[nodes] = chosen[number]
    return _Criterion("family", repr(wanted), mask, lambda: sorted({*itertools.chain(*names)}))


def _kinds(graph: ExecutionGraph) -> Int32s:
    """First collective of each name, int32[collectives + 1]; the last entry stands for none."""
    first: dict[str, int] = {}
    found = [first.setdefault(one.name, at) for at, one in enumerate(graph.collectives)]
    return np.array([*found, -1], np.int32)


def _names(graph: ExecutionGraph, name: int, operator: int, collective: int) -> tuple[str, ...]:
    known = recognised(graph.names[name], graph.names[operator] if operator >= 0 else "")
    if collective >= 0:
        return (graph.collectives[collective].name, *_TRANSFERS, known.family)
    return (str(known.kind), known.family)


def _of_member(
    asked: tuple[str, IntEnum], column: UInt8s, among: Bools, members: type[IntEnum]
) -> _Criterion:
    what, wanted = asked

    def have() -> list[str]:
        return [members(at).name.lower() for at in np.unique(column[among]).tolist() if at]

    return _Criterion(what, repr(wanted.name.lower()), column == wanted, have)


def _of_numbers(asked: tuple[str, tuple[int, ...]], column: Integers, among: Bools) -> _Criterion:
    what, wanted = asked

    def have() -> list[str]:
        return _ranges([at for at in np.unique(column[among]).tolist() if at >= 0])

    return _Criterion(what, ",".join(map(str, wanted)), np.isin(column, wanted), have)


def _ranges(numbers: list[int]) -> list[str]:
    """Rising numbers as `0-39`, `48`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(low) if low == high else f"{low}-{high}" for low, high in found]


def _nothing(criterion: _Criterion) -> str:
    there = nearest(criterion.wanted.strip("'"), criterion.have())
    return f"no {criterion.what} here is {criterion.wanted}: {there}."


def _shortened(name: str) -> str:
    return name if len(name) <= _MAX_LENGTH else name[: _MAX_LENGTH - 3] + "..."
