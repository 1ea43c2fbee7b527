"""`Names` and `DimensionScale`: neutral names for texts that are not public, other sizes.

A text has one neutral name in all files of a run, whatever it names there, so that what belonged
together still does. Shapes may be multiplied by a factor.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from foretrace.base import CollectiveKind, collective_kind_of
from foretrace.exchange.anonymised import public
from foretrace.trace import RuntimeRole, is_communication, role_of

_ENGINE = "autograd::engine::evaluate_function: "
_MODULE = "nn.Module: "
_PREFIXES = ("Optimizer.step#", "Optimizer.zero_grad#", "enumerate(DataLoader)#")
_QUOTED = re.compile(r"'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\"")
_BACKEND = re.compile(r"(?:gloo|nccl|mpi|ucc|xccl|rccl):")
_NEUTRAL = re.compile(r"(.*?)(\d+)$")
# Numbers below are ranks of tensors, positions of dimensions and codes of data types.
_LEAST_SIZE = 32


class Names:
    """Gives neutral names; remembers what it replaced and what it let through."""

    def __init__(
        self,
        *,
        keep: Iterable[str] = (),
        drop: Iterable[str] = (),
        known: Mapping[str, str] | None = None,
    ) -> None:
        """Begin with names that were given before, so that they are given again.

        Args:
            keep: shell patterns of whole texts that stay as they are.
            drop: shell patterns of whole texts that are replaced though they are public.
            known: text -> neutral name.
        """
        self._keep = tuple(keep)
        self._drop = tuple(drop)
        self._neutral = dict(known or {})
        self._given: dict[tuple[str, str], str] = {}
        self._count = _counted(self._neutral.values())
        self.operators: frozenset[str] = frozenset()  # ATen's that the traces show, folded
        self.replaced: dict[str, str] = {}  # text -> what stands in its place
        self.kept: dict[str, bool] = {}  # text -> whether only `keep` let it through
        self.removed: dict[str, set[str]] = {}  # key -> texts that are gone with it

    @property
    def neutral(self) -> dict[str, str]:
        """Every text ever replaced, also in earlier runs -> its neutral name."""
        return dict(self._neutral)

    def remove(self, key: str, value: object) -> None:
        """Remember that a member went, with the texts inside."""
        self.removed.setdefault(key, set()).update(_texts_in(value))

    def operator(self, name: str) -> str:
        """An operator, an annotation or a runtime call."""
        return self._named(name, self._is_operator, stem="name_")

    def kernel(self, name: str) -> str:
        """A kernel, copy or fill."""
        return self._named(name, public.is_public_kernel, stem="kernel_")

    def either(self, name: str) -> str:
        """A name of which it is not known what it names."""
        return self._named(
            name,
            lambda text: public.is_public_kernel(text) or self._is_operator(text),
            stem="name_",
        )

    def frame(self, name: str) -> str:
        """A Python frame, or a module's call."""
        return self._named(name, public.is_public_frame, stem="python_")

    def group(self, name: str) -> str:
        """A process group's name or description."""
        return self._named(name, public.is_public_group, stem="group_")

    def collective(self, name: str) -> str:
        """What a record calls its collective."""
        return self._named(name, public.is_public_collective, stem="name_")

    def type(self, name: str) -> str:
        """A type of data."""
        return self._named(name, public.is_public_type, stem="type_")

    def value(self, text: str) -> str:
        """A plain value that an operator took; quoted texts inside count one by one."""
        if text[:1] in ("[", "(") and _QUOTED.search(text):
            return _QUOTED.sub(lambda found: f"'{self.value(found[1] or found[2] or '')}'", text)
        return self._named(text, public.is_public_value, stem="text_")

    def numbers(self, text: str) -> str:
        """A text that ought to be a list of numbers."""
        return self._named(text, public.is_number_text, stem="text_")

    def device(self, name: str) -> str:
        """The name of a chip: public unless it is dropped."""
        return self._named(name, bool, stem="device_")

    def schema(self, text: str) -> str:
        """An operator's schema; of one that is not public, its own names go."""
        if not text:
            return text
        name, bracket, rest = text.partition("(")
        plain = name.rpartition(".")[0] if "." in name.rpartition("::")[2] else name
        new = self.operator(plain)
        if new == plain:
            return text
        self.replaced.setdefault(text, new)
        return f"{new}{bracket}{_bare(rest)}" if bracket else new

    def _is_operator(self, name: str) -> bool:
        return public.is_public_operator(name, self.operators)

    def _named(self, text: str, is_public: Callable[[str], bool], *, stem: str) -> str:
        """What stands for a text; a million events ask for a few thousand."""
        if not text:
            return text
        key = (text, is_public.__name__)
        if key not in self._given:
            self._given[key] = self._judged(text, stem, is_public=is_public(text))
        return self._given[key]

    def _judged(self, text: str, stem: str, *, is_public: bool) -> str:
        is_asked = any(fnmatchcase(text, pattern) for pattern in self._keep)
        is_dropped = any(fnmatchcase(text, pattern) for pattern in self._drop)
        if (is_public or is_asked) and not is_dropped:
            self.kept[text] = is_asked and not is_public
            return text
        if text not in self._neutral:
            self._neutral[text] = self._new(text, stem)
        self.replaced[text] = self._neutral[text]
        return self._neutral[text]

    def _new(self, text: str, stem: str) -> str:
        """A neutral name of the same kind, as far as a replay and the blocks ask for it."""
        for prefix in _PREFIXES:
            if text.startswith(prefix):
                own, _, method = text.removeprefix(prefix).rpartition(".")
                return f"{prefix}{self._part(own, 'class_')}.{method if own else 'call'}"
        if text.startswith(_ENGINE):
            return _ENGINE + self.operator(text.removeprefix(_ENGINE))
        if text.startswith(_MODULE):
            own, _, number = text.removeprefix(_MODULE).rpartition("_")
            return f"{_MODULE}{self._part(own, 'Module')}_{number if number.isdigit() else 0}"
        if text.endswith("Backward") and stem == "name_":
            forward = text.removesuffix("Backward")
            return f"{self._part(forward, stem)}Backward"
        if text.startswith("runFunction"):  # how MTIA starts a program
            stem = "runFunction - "
        elif stem != "python_" and is_communication(text):
            kind = collective_kind_of(text)
            found = _BACKEND.match(text)
            stem = found[0] if found else "ncclDevKernel_"
            stem += "" if kind == CollectiveKind.UNKNOWN else f"{kind}_"
        elif stem == "name_" and "::" in text and " " not in text and text[:5] != "torch":
            stem = "own::name_"  # an operator that is dispatched by its namespace
        elif stem == "name_" and role_of(text) != RuntimeRole.OTHER:
            return text  # a runtime's word, which all its users share
        return self._part(text, stem)

    def _part(self, text: str, stem: str) -> str:
        """The neutral name of a text or of a part of one, given once."""
        if text not in self._neutral:
            self._count[stem] += 1
            self._neutral[text] = f"{stem}{self._count[stem]}"
        return self._neutral[text]


def _counted(names: Iterable[str]) -> Counter[str]:
    """The highest number that each stem of neutral names has had."""
    counted: Counter[str] = Counter()
    for name in names:
        found = _NEUTRAL.match(name)
        if found:
            counted[found[1]] = max(counted[found[1]], int(found[2]))
    return counted


def _bare(arguments: str) -> str:
    """The arguments of a schema by number, with their types as far as these are PyTorch's."""
    inside = arguments.rpartition(")")[0]
    inside, _, given = inside.partition(") ->")
    bare = [
        f"{_type(part)} argument_{place}"
        for place, part in enumerate(part for part in _split(inside) if part != "*")
    ]
    return f"{', '.join(bare)}) -> {_type(given or arguments.rpartition('->')[2])}"


def _type(text: str) -> str:
    first = text.strip().rpartition(" ")[0] if " " in text.strip() else text.strip()
    return first if first and public.is_public_type(first) else "Any"


def _split(text: str) -> list[str]:
    parts, depth, last = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            parts.append(text[last:at].strip())
            last = at + 1
    return [part for part in (*parts, text[last:].strip()) if part]


def _texts_in(value: object) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts_in(inner)


@dataclass(frozen=True)
class DimensionScale:
    """Multiplies every dimension above 1: equal dimensions stay equal, so products still fit."""

    factor: float = 1.0

    @property
    def is_on(self) -> bool:
        """Whether anything changes."""
        return self.factor != 1.0

    def size(self, number: int) -> int:
        """One dimension, or a number of elements or bytes."""
        return max(1, round(number * self.factor)) if number > 1 else number

    def sizes(self, value: object) -> object:
        """Dimensions in lists of any depth."""
        if isinstance(value, bool) or not isinstance(value, int | list):
            return value
        if isinstance(value, list):
            return [self.sizes(inner) for inner in value]
        return self.size(value)

    def value(self, value: object) -> object:
        """A plain value: whole numbers large enough to be a dimension."""
        if isinstance(value, list):
            return [self.value(inner) for inner in value]
        if isinstance(value, bool) or not isinstance(value, int) or value < _LEAST_SIZE:
            return value
        return self.size(value)


def numbers_in(value: object) -> Iterator[int]:
    """Whole numbers in lists within lists, in their order."""
    if isinstance(value, list):
        for inner in value:
            yield from numbers_in(inner)
    elif isinstance(value, int):
        yield value
