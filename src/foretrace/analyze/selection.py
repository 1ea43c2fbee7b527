"""`Selection`: which work of a job is meant, as people write it, and its nodes in a graph.

A selection is words with spaces between, all of which must hold; `|` stands between alternatives,
`*` and `?` match in names, and quotes hold a name with spaces together:

    gemm                          a class of work, a family of kernels, or a type of collective
    flash attention layers:0-3    of these layers
    gemm|attention ranks:3        what rank 3 computes in products and attention
    ranks:3 compute|host          all that rank 3 computes, and its host's time
    kernels:"void at::*<4, float>"

Host time is in it only where `host` says so, or where a class or call is named that is the host's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from enum import IntEnum
from fnmatch import fnmatchcase
from typing import TypeVar

import numpy as np

from foretrace.analyze.attributes import (
    NUMBERED,
    Attribute,
    SelectionKey,
    WorkKind,
    attribute,
    edge_values,
)
from foretrace.base import Bools, ScenarioError, cut_short
from foretrace.graph import ExecutionGraph, Part, Phase

EVERYTHING = "all"
SELECTION_EXAMPLE = "'gemm', 'kernels:*flash*' or 'gemm layers:0-3 ranks:1'"

_WORD = re.compile(r'(?:"[^"]*"|[^\s"])+')
_KEY = re.compile(r"([a-z-]+):(.*)", re.DOTALL)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
_LARGEST_NUMBER = 2**20  # of a layer or rank: a slip of the hand must not fill the memory
_MAX_NAMED = 5
_MAX_LENGTH = 60  # of a kernel's name in an error

Member = TypeVar("Member", bound=IntEnum)

_PLACES = (
    SelectionKey.PART,
    SelectionKey.PHASE,
    SelectionKey.LAYER,
    SelectionKey.MICROBATCH,
    SelectionKey.RANK,
)
_OF_NODES: Mapping[str, tuple[SelectionKey, ...]] = {
    "named": (SelectionKey.CLASS, SelectionKey.FAMILY),
    "of_class": (SelectionKey.CLASS,),
    "kernels": (SelectionKey.KERNEL,),
    "calls": (SelectionKey.CALL,),
    "operators": (SelectionKey.OPERATOR,),
    "groups": (SelectionKey.GROUP,),
    "parts": (SelectionKey.PART,),
    "phases": (SelectionKey.PHASE,),
    "layers": (SelectionKey.LAYER,),
    "microbatches": (SelectionKey.MICROBATCH,),
    "ranks": (SelectionKey.RANK,),
}


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Nodes that fit everything stated; what is left out fits all.

    Texts are patterns (`*`, `?`, `[...]`) with `|` between alternatives; case does not matter.
    """

    named: str | None = None  # class, family or collective: "gemm", "flash attention", "allreduce"
    of_class: str | None = None  # class alone, the host's own too: "launch"
    kernels: str | None = None  # device operations by name: "*flash*"
    calls: str | None = None  # the host's calls by name: "cudaLaunchKernel"
    operators: str | None = None  # by the framework operator's name: "aten::addmm"
    groups: str | None = None  # transfers by process group
    parts: tuple[Part, ...] = ()
    phases: tuple[Phase, ...] = ()
    layers: tuple[int, ...] | None = None
    microbatches: tuple[int, ...] | None = None
    ranks: tuple[int, ...] | None = None
    # Left out: compute, and transfers too where work is named; of a class or call, whatever it is.
    works: tuple[WorkKind, ...] = ()
    edges: str | None = None  # what nodes wait for, by kind: "launch"; alone, and no work

    def __str__(self) -> str:
        """In words: `gemm layer layers 3 forward rank 1`."""
        named = (self.named, self.of_class, self.kernels, self.calls, self.operators, self.groups)
        what = next((one for one in named if one), None)
        words = [what or " and ".join(self.works) or "all work"]
        words += [one.name.lower() for one in self.parts]
        if self.layers is not None:
            words.append("layers " + ",".join(map(str, self.layers)))
        words += [one.name.lower() for one in self.phases]
        if self.microbatches is not None:
            words.append("microbatches " + ",".join(map(str, self.microbatches)))
        if self.ranks is not None:
            words.append("rank " + ",".join(map(str, self.ranks)))
        return " ".join(words)

    @property
    def written(self) -> str:
        """As `selection_of` reads it: `gemm layers:0-3 ranks:1`."""
        words = [] if self.named is None else [_bare(self.named)]
        for key, name in _FIELDS.items():
            value = getattr(self, name)
            if isinstance(value, str):
                words.append(f"{key}:{_quoted(value)}")
            elif value and isinstance(value[0], IntEnum):
                words.append(f"{key}:{'|'.join(one.name.lower() for one in value)}")
            elif value:
                words.append(f"{key}:{','.join(_ranges(value))}")
        return " ".join([*words, *(["|".join(self.works)] if self.works else [])]) or EVERYTHING

    @property
    def kinds(self) -> tuple[WorkKind, ...]:
        """The kinds of work that it can be about."""
        if self.works:
            return self.works
        if self.of_class or self.calls:
            return tuple(WorkKind)
        if self.named or self.kernels or self.operators or self.groups:
            return (WorkKind.COMPUTE, WorkKind.COMMUNICATION)
        return (WorkKind.COMPUTE,)


def selection_of(text: str) -> Selection:
    """The work that a text names.

    Raises:
        ScenarioError: if a word of it means nothing.
    """
    words = _WORD.findall(text)
    if not words or text.count('"') % 2:
        raise ScenarioError(
            f"{text!r} names no work: write 'all', a family or more, as in {SELECTION_EXAMPLE}; a "
            "name with spaces stands between double quotes"
        )
    found: dict[str, object] = {}
    named: list[str] = []
    for word in words:
        keyed = _KEY.fullmatch(word)
        if keyed is not None:
            key = _key(keyed[1], word)
            _state(found, key, _READERS[key](keyed[2].replace('"', "")), text)
        elif set(word.split("|")) <= set(WorkKind):
            _state(found, "works", tuple(WorkKind(one) for one in word.split("|")), text)
        elif word != EVERYTHING:
            named.append(word.replace('"', ""))
    if named:
        found["named"] = _text(" ".join(named))
    return Selection(**{_FIELDS.get(key, key): one for key, one in found.items()})  # type: ignore[arg-type]  # read for their fields


def _state(found: dict[str, object], key: str, value: object, text: str) -> None:
    if key in found:
        raise ScenarioError(f"{text!r} states {key} twice: state it once, {key}:THIS|THAT")
    found[key] = value


def _key(name: str, word: str) -> str:
    key = next((one for one in (name, f"{name}s", name.removesuffix("s")) if one in _READERS), None)
    if key is not None:
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


def _members(kind: type[Member]) -> Callable[[str], tuple[Member, ...]]:
    names = {one.name.lower(): one for one in kind if one}

    def read(text: str) -> tuple[Member, ...]:
        for one in text.split("|"):
            if one not in names:
                near = get_close_matches(one, names, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ScenarioError(
                    f"no {kind.__name__.lower()} is called {one!r}: expected one of "
                    f"{', '.join(names)}{hint}"
                )
        return tuple(names[one] for one in text.split("|"))

    return read


def _text(text: str) -> str:
    if not all(text.split("|")):
        raise ScenarioError(
            f"a selection names nothing in {text!r}: write it as in {SELECTION_EXAMPLE}"
        )
    return text


_READERS: Mapping[str, Callable[[str], object]] = {
    "class": _text,
    "kernels": _text,
    "calls": _text,
    "operators": _text,
    "groups": _text,
    "part": _members(Part),
    "phase": _members(Phase),
    "layers": _numbers,
    "microbatches": _numbers,
    "ranks": _numbers,
    "edges": _text,
}
_FIELDS = {
    key: {"class": "of_class", "part": "parts", "phase": "phases"}.get(key, key) for key in _READERS
}


def _bare(name: str) -> str:
    """A name that must not be read as a key or a kind of work."""
    is_plain = not set(name.split()) & {*WorkKind, EVERYTHING} and not set(name) & set(':"')
    return name if is_plain else f'"{_plain(name)}"'


def _quoted(text: str) -> str:
    return f'"{_plain(text)}"' if re.search(r'[\s"]', text) else text


def _plain(text: str) -> str:
    """Without quotes of its own: `?` stands for any letter."""
    return text.replace('"', "?")


@dataclass(frozen=True)
class _Criterion:
    """One thing that a selection states, and what nodes have there."""

    what: str
    wanted: str  # in words
    is_wanted: Callable[[str], bool]
    attributes: tuple[Attribute, ...]  # one of which must be what is wanted

    def mask(self, among: Bools) -> Bools:
        """Nodes that meet it; bool[nodes]."""
        mask = np.zeros(len(among), np.bool_)
        for found in self.attributes:
            chosen = np.zeros(len(found.values), np.bool_)
            for at in found.present(among):
                chosen[at] = self.is_wanted(found.values[at])
            mask |= found.mask(chosen)
        return mask & among

    def nothing(self, among: Bools) -> str:
        """In a sentence, what there is instead."""
        have = sorted(one.values[at] for one in self.attributes for at in one.present(among))
        if have and all(one.isdigit() for one in have):
            have = _ranges(sorted(map(int, have)))
        return f"no {self.what} here is {self.wanted}: {nearest(self.wanted.strip(chr(39)), have)}."


def selected(graph: ExecutionGraph, selection: Selection) -> Bools:
    """Nodes that a selection names; bool[nodes].

    Raises:
        ScenarioError: if something it states names nothing in the graph, or nothing fits it all.
    """
    if selection.edges is not None:
        raise ScenarioError(
            f"{selection.written!r} selects waiting between nodes, where work is expected: only "
            "`foretrace sensitivity --change` changes that."
        )
    among = _among(graph, selection)
    if not among.any():
        raise ScenarioError(
            f"{str(selection)!r} selects nothing: the recording holds no kernels, copies or "
            "operators; was the device left out when it was recorded?"
        )
    mask = among.copy()
    criteria = tuple(_criteria(graph, selection))
    for criterion in criteria:
        found = criterion.mask(among)
        if not found.any():
            raise ScenarioError(criterion.nothing(among))
        mask &= found
    if not mask.any():
        raise ScenarioError(
            f"{str(selection)!r} selects nothing: there is work for each of "
            f"{', '.join(f'{one.what} {one.wanted}' for one in criteria)}, but none that fits them "
            "all. Leave one out; transfers are selected by 'communication', host time by 'host'."
        )
    return mask


def fitting(graph: ExecutionGraph, selection: Selection) -> Bools:
    """The same, and no nodes where there are none; bool[nodes]."""
    mask = _among(graph, selection)
    for criterion in _criteria(graph, selection):
        mask = criterion.mask(mask)
    return mask


def in_place(graph: ExecutionGraph, selection: Selection) -> Bools:
    """Nodes of any kind whose operator, block and rank fit; bool[nodes]."""
    mask = np.ones(graph.num_nodes, np.bool_)
    for criterion in _criteria(graph, selection, (SelectionKey.OPERATOR, *_PLACES)):
        mask = criterion.mask(mask)
    return mask


def selected_edges(pattern: str) -> Bools:
    """Kinds of edges that a text names; bool[edge kinds].

    Raises:
        ScenarioError: if it names none.
    """
    values = edge_values()
    chosen = np.array([is_meant(pattern, one) for one in values], np.bool_)
    if not chosen.any():
        raise ScenarioError(f"no edge is called {pattern!r}: {nearest(pattern, values)}.")
    return chosen


def is_meant(wanted: str, value: str) -> bool:
    """Whether a text is, or fits, what somebody wrote, alternatives with `|` between."""
    return value == wanted or any(
        value == one or fnmatchcase(value.lower(), one.lower()) for one in wanted.split("|")
    )


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
    return f"there are {', '.join(repr(cut_short(one, _MAX_LENGTH)) for one in named)}{rest}"


def _among(graph: ExecutionGraph, selection: Selection) -> Bools:
    """Work that the selection could be about."""
    found = attribute(graph, SelectionKey.WORK)
    return found.mask(np.array([one in selection.kinds for one in WorkKind], np.bool_))


def _criteria(
    graph: ExecutionGraph,
    selection: Selection,
    only: tuple[SelectionKey, ...] = tuple(SelectionKey),
) -> Iterator[_Criterion]:
    for one in fields(selection):
        read = _OF_NODES.get(one.name, ())
        wanted = getattr(selection, one.name)
        if not wanted or not set(read) & set(only):
            continue
        what = "family" if one.name == "named" else str(read[0])
        attributes = tuple(attribute(graph, field) for field in read)
        yield _Criterion(what, _told(wanted), _test(wanted, read[0]), attributes)


def _told(wanted: object) -> str:
    if isinstance(wanted, tuple):
        names = [one.name.lower() if isinstance(one, IntEnum) else str(one) for one in wanted]
        return ",".join(names) if names[0].isdigit() else repr("|".join(names))
    return repr(wanted)


def _test(wanted: object, field: SelectionKey) -> Callable[[str], bool]:
    if isinstance(wanted, str):
        return lambda value: is_meant(wanted, value)
    assert isinstance(wanted, tuple)  # noqa: S101  texts and tuples are all there is
    names = {str(one) if field in NUMBERED else one.name.lower() for one in wanted}
    return names.__contains__


def _ranges(numbers: Iterable[int]) -> list[str]:
    """Rising numbers as `0-39`, `48`."""
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return [str(low) if low == high else f"{low}-{high}" for low, high in found]
