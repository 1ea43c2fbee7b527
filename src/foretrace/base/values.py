"""`dataclass` of the standard library, whose methods are not compiled until they are called.

A command imports some seven hundred classes of values and makes objects of a hundred. The standard
library compiles six methods for each when the class is made, half a millisecond (Python 3.11). Here
comparing, hashing and showing need no compiling, and `__init__` is compiled for the first object.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from types import MethodType
from typing import TYPE_CHECKING, Any

Method = Callable[..., Any]

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414  others take it from here
else:

    def dataclass(
        given: type | None = None,
        /,
        *,
        frozen: bool = False,
        eq: bool = True,
        repr: bool = True,  # noqa: A002  the standard library's word
        kw_only: bool = False,
        slots: bool = False,
    ) -> Any:
        """The class as `dataclasses.dataclass` makes it; that makes what can change or has slots.

        `fields`, `replace`, `asdict`, pickling and inheriting, also by classes that the standard
        library makes, are as they were.
        """

        def made(cls: type) -> type:
            if slots or not frozen:
                how = {"frozen": frozen, "eq": eq, "repr": repr, "kw_only": kw_only, "slots": slots}
                return dataclasses.dataclass(**how)(cls)
            _describe(cls, kw_only=kw_only)
            methods = {"__init__": _FirstInit(cls), **_guards(cls)}
            methods |= {"__repr__": _shown} if repr else {}
            methods |= _comparing(cls) if eq else {}
            for name, method in methods.items():
                if name not in vars(cls):
                    setattr(cls, name, method)
            return cls

        return made if given is None else made(given)


def _describe(cls: Any, *, kw_only: bool) -> None:
    """Give a class what `dataclasses` knows it by: the fields of its bases, then its own.

    A class without bases or methods is asked for its own ones: whether a base is frozen or not does
    not matter there.
    """
    annotations = inspect.get_annotations(cls)
    stated = {name: getattr(cls, name) for name in annotations if hasattr(cls, name)}
    words = {"__annotations__": annotations, "__module__": cls.__module__, "__doc__": ""}
    bare: Any = type(cls.__name__, (), stated | words)
    dataclasses.dataclass(init=False, repr=False, eq=False, kw_only=kw_only)(bare)
    for name, value in stated.items():
        if isinstance(value, dataclasses.Field):  # the class has its default, if it has one
            delattr(cls, name)
            if name in vars(bare):
                setattr(cls, name, vars(bare)[name])
    fields: dict[str, dataclasses.Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        fields |= vars(base).get("__dataclass_fields__", {})
    cls.__dataclass_fields__ = fields | bare.__dataclass_fields__
    cls.__dataclass_params__ = bare.__dataclass_params__
    cls.__dataclass_params__.frozen = True
    if "__match_args__" not in vars(cls):
        positional, _ = _parameters(cls)
        setattr(cls, "__match_args__", tuple(field.name for field in positional))  # noqa: B010  mypy


def _parameters(cls: Any) -> tuple[list[dataclasses.Field[Any]], list[dataclasses.Field[Any]]]:
    """Fields that an object is made of: those given by place, and those given by name."""
    given = [field for field in dataclasses.fields(cls) if field.init]
    return [f for f in given if not f.kw_only], [f for f in given if f.kw_only]


def _guards(cls: Any) -> dict[str, Method]:
    """What refuses to change an object; a class derived from it may have more than its fields."""
    fields = cls.__dataclass_fields__

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return {"__setattr__": __setattr__, "__delattr__": __delattr__}


@recursive_repr()
def _shown(self: Any) -> str:
    """`Class(field=value)`, as Python would write it."""
    shown = [f"{f.name}={getattr(self, f.name)!r}" for f in dataclasses.fields(self) if f.repr]
    return f"{type(self).__qualname__}({', '.join(shown)})"


def _comparing(cls: Any) -> dict[str, Method]:
    """Equality and hash of the values of an object's fields."""
    fields = dataclasses.fields(cls)
    compared = _values([f.name for f in fields if f.compare])
    hashed = _values([f.name for f in fields if (f.compare if f.hash is None else f.hash)])

    def __eq__(self: object, other: object) -> Any:  # noqa: N807
        return compared(self) == compared(other) if type(other) is type(self) else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(hashed(self))

    if vars(cls).get("__hash__", cls) is None and "__eq__" in vars(cls):
        cls.__hash__ = __hash__  # Python takes the hash from a class that states when two are equal
    return {"__eq__": __eq__, "__hash__": __hash__}


def _values(names: list[str]) -> Callable[[object], tuple[Any, ...]]:
    """What reads these of an object, always a tuple: equal where they are the same objects."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


class _FirstInit:
    """`__init__` of a class that has no object yet: gives place to the compiled one when called."""

    def __init__(self, cls: type) -> None:
        self._cls: Any = cls

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self if instance is None else MethodType(self, instance)

    def __call__(self, *given: Any, **named: Any) -> None:
        self._compiled()(*given, **named)

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._compiled())

    def _compiled(self) -> Method:
        init = _init(self._cls)
        if vars(self._cls)["__init__"] is self:
            self._cls.__init__ = init
        return init


_ASSIGN, _ABSENT = "__assign__", "__absent__"  # no field is called so


def _init(cls: Any) -> Method:
    """`__init__` of a frozen class, as it would be written."""
    positional, named = _parameters(cls)
    known: dict[str, Any] = {"__name__": cls.__module__}
    known |= {_ASSIGN: object.__setattr__, _ABSENT: dataclasses.MISSING}
    parameters = ["self", *(_parameter(field, known) for field in positional)]
    if named:
        parameters += ["*", *(_parameter(field, known) for field in named)]
    lines = [line for field in dataclasses.fields(cls) if (line := _assignment(field, known))]
    lines += ["self.__post_init__()"] if hasattr(cls, "__post_init__") else []
    source = f"def __init__({', '.join(parameters)}):\n  " + "\n  ".join(lines or ["pass"])
    exec(source, known)  # noqa: S102  names of fields, which are identifiers, and nothing else
    init: Method = known["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    init.__annotations__ = {f.name: f.type for f in (*positional, *named)} | {"return": None}
    return init


def _parameter(field: dataclasses.Field[Any], known: dict[str, Any]) -> str:
    """A field among the parameters, with its default, which is added to what is known."""
    if field.default_factory is not dataclasses.MISSING:
        return f"{field.name}={_ABSENT}"
    if field.default is dataclasses.MISSING:
        return field.name
    known[f"__default_{field.name}"] = field.default
    return f"{field.name}=__default_{field.name}"


def _assignment(field: dataclasses.Field[Any], known: dict[str, Any]) -> str:
    """What `__init__` does with a field; "" where the class's value is the object's."""
    value = field.name
    if field.default_factory is not dataclasses.MISSING:
        known[f"__make_{field.name}"] = field.default_factory
        value = f"__make_{field.name}()"
        if field.init:
            value = f"{value} if {field.name} is {_ABSENT} else {field.name}"
    elif not field.init:
        return ""
    return f"{_ASSIGN}(self, {field.name!r}, {value})"
