"""`dataclass` of `foretrace.base` makes what the standard library's makes, for less at import."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from foretrace.base import dataclass

Maker = Callable[..., Any]


@dataclass(frozen=True)
class Point:
    """A value with every kind of field."""

    across: int
    up: float = 1.5
    marks: list[int] = field(default_factory=list)
    noted: str = field(default="", compare=False, repr=False)
    doubled: int = field(init=False, default=0)
    kind: ClassVar[str] = "point"

    def __post_init__(self) -> None:
        object.__setattr__(self, "doubled", 2 * self.across)


def classes(dataclass: Maker) -> tuple[type[Any], ...]:
    """The same classes by one maker: all that a class of the house states in one way or another."""

    @dataclass(frozen=True)
    class Plain:
        first: int
        second: str = "b"
        made: list[int] = field(default_factory=list)
        unseen: int = field(default=3, repr=False, compare=False)
        fixed: int = field(init=False, default=7)
        shared: ClassVar[int] = 1

    @dataclass(frozen=True, kw_only=True)
    class Named(Plain):
        third: float
        fourth: float = 0.5

    @dataclass(frozen=True)
    class Single:
        only: object

    @dataclass(frozen=True)
    class Empty:
        pass

    @dataclass(frozen=True, eq=False, repr=False)
    class Itself:
        first: int

        def __repr__(self) -> str:
            return "itself"

    @dataclass(frozen=True)
    class Own:  # noqa: PLW1641  its hash is what is tried
        first: int

        def __init__(self) -> None:
            object.__setattr__(self, "first", 9)

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Own)

    @dataclass(frozen=True)
    class Below(Single):
        only: object
        more: int = 2
        hashed: int = field(default=0, hash=False)

    return Plain, Named, Single, Empty, Itself, Own, Below


GIVEN: tuple[tuple[int, tuple[Any, ...], dict[str, Any]], ...] = (
    (0, (1,), {}),
    (0, (1, "c"), {"made": [1], "unseen": 4}),
    (0, (1, "c", [1]), {}),
    (0, (), {}),
    (0, (1,), {"fixed": 3}),
    (0, (1,), {"other": 3}),
    (1, (1,), {"third": 2.0}),
    (1, (1, "c"), {"third": 2.0, "fourth": 1.0}),
    (1, (1,), {}),
    (1, (1, "c", [], 3, 2.0), {}),
    (2, (None,), {}),
    (2, ((1, 2),), {}),
    (3, (), {}),
    (4, (1,), {}),
    (5, (), {}),
    (6, (1,), {"more": 4}),
    (6, (1, 4, 5), {}),
)


def outcome(cls: type[Any], given: tuple[Any, ...], named: dict[str, Any]) -> object:
    """What making an object comes to: how it is shown and kept, or what it is refused with."""
    try:
        one = cls(*given, **named)
    except TypeError as error:
        return str(error)
    number: object = None  # of the place in memory
    try:
        number = hash(one) if vars(cls).get("__hash__") else None
    except TypeError as error:
        number = str(error)
    return repr(one), vars(one), number, one == copy.copy(one), one == object(), one.__match_args__


@pytest.mark.parametrize(("index", "given", "named"), GIVEN)
def test_objects_are_those_of_the_standard_library(
    index: int, given: tuple[Any, ...], named: dict[str, Any]
) -> None:
    ours, theirs = classes(dataclass)[index], classes(dataclasses.dataclass)[index]

    assert outcome(ours, given, named) == outcome(theirs, given, named)


@pytest.mark.parametrize("index", range(7))
def test_classes_say_of_themselves_what_the_standard_library_lets_them(index: int) -> None:
    def said(cls: Any) -> object:
        known = [
            (one.name, one.type, one.default, one.init, one.kw_only, one.repr, one.compare)
            for one in fields(cls)
        ]
        values = {name: getattr(cls, name, "none") for name, *_ in known}
        parameters = [
            (one.name, one.kind, one.default is one.empty)
            for one in inspect.signature(cls).parameters.values()
        ]
        return known, values, parameters, cls.__init__.__qualname__

    assert said(classes(dataclass)[index]) == said(classes(dataclasses.dataclass)[index])


def test_what_is_frozen_stays() -> None:
    class Derived(Point):
        """A class that is no value may have more than its fields."""

    one, derived = Point(1), Derived(1)

    for name in ("across", "other"):
        with pytest.raises(FrozenInstanceError):
            setattr(one, name, 2)
    with pytest.raises(FrozenInstanceError):
        del one.across
    with pytest.raises(FrozenInstanceError):
        derived.across = 2  # type: ignore[misc]
    changed: Any = derived
    changed.other = 2
    del changed.other
    assert one == Point(1)


def test_values_are_replaced_copied_pickled_and_matched() -> None:
    one = Point(2, marks=[3])

    assert replace(one, across=3).doubled == 6
    assert dataclasses.asdict(one)["marks"] == [3]
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one  # noqa: S301
    match one:
        case Point(across, up):
            assert (across, up) == (2, 1.5)


def test_a_list_made_for_one_object_is_not_anothers() -> None:
    Point(1).marks.append(4)

    assert Point(1).marks == []


def test_an_object_that_holds_an_array_equals_itself() -> None:
    single = classes(dataclass)[2]
    array = np.arange(3)

    assert single(array) == single(array)


def test_an_object_that_holds_itself_is_shown() -> None:
    single = classes(dataclass)[2]
    held: list[object] = []
    one = single(held)
    held.append(one)

    assert repr(one).endswith("Single(only=[...])")


def test_the_standard_library_derives_from_ours_and_ours_from_its() -> None:
    base = classes(dataclasses.dataclass)[2]

    @dataclasses.dataclass(frozen=True)
    class Theirs(Point):
        more: int = 0

    @dataclass(frozen=True)
    class Ours(base):  # type: ignore[misc,valid-type]
        more: int = 0

    assert Theirs(1, more=2).doubled == 2
    assert Ours(1, 2) == Ours(1, 2) != Ours(1, 3)
    with pytest.raises(TypeError, match="cannot inherit non-frozen dataclass from a frozen one"):

        @dataclasses.dataclass
        class Changing(Point):  # type: ignore[misc]
            pass


def test_a_base_without_objects_is_initialised_by_what_derives_from_it() -> None:
    @dataclass(frozen=True)
    class Base:
        first: int

    class Derived(Base):
        def __init__(self) -> None:
            super().__init__(5)

    assert Derived().first == Derived().first == 5


def test_what_can_change_and_what_has_slots_are_the_standard_librarys() -> None:
    @dataclass
    class Changing:
        first: int = 1

    @dataclass(frozen=True, slots=True)
    class Slotted:
        first: int = 1

    one = Changing()
    one.first = 2

    assert one == Changing(2)
    assert not hasattr(Slotted(), "__dict__")


def test_making_a_class_compiles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(dataclasses, "exec", lambda *given: compiled.append(given), raising=False)

    @dataclass(frozen=True)
    class One:
        first: int

    assert compiled == []
    assert One(1).first == 1
