"""Folders offer their names without loading what is behind them until it is used (PEP 562)."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from importlib.machinery import PathFinder  # not `importlib.util`, which loads twenty modules
from types import ModuleType

from foretrace.base.errors import MissingExtraError

_ALL = re.compile(r"^    from (foretrace[\w.]*) import \*", re.MULTILINE)
_OFFER = re.compile(r"^    from (foretrace[\w.]*) import \w+ as (\w+)$", re.MULTILINE)


class _Folder(ModuleType):
    """A package whose offered names are loaded when they are first asked for."""

    _home_of: dict[str, str]  # name -> module that defines it
    _verb: str  # what to call in its place, where a command is called as the folder is

    def __call__(self, *_: object, **__: object) -> object:
        """Refuse, and say what was meant."""
        hint = f": call {self._verb}" if self._verb else ""
        raise TypeError(f"{self.__name__} is a folder of functions and cannot be called{hint}")

    def __getattr__(self, name: str) -> object:
        """The offered name, loaded now and kept."""
        home = self._home_of.get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        value: object = getattr(import_module(home), name)
        self.__dict__[name] = value
        return value

    def __setattr__(self, name: str, value: object) -> None:
        """Set it, unless a module inside the folder would hide the offered name it shares."""
        if not (isinstance(value, ModuleType) and name in self._home_of):
            super().__setattr__(name, value)

    def __dir__(self) -> list[str]:
        """What `dir` and completion show."""
        return sorted(self._home_of)


def lazily(package: str, *, verb: str = "") -> None:
    """Make a package offer the names that its `__init__.py` imports under `TYPE_CHECKING`.

    Type checkers and readers see plain imports, one per line, and they are the only list.
    Loading happens by name, so a command pays for what it uses.

    Args:
        package: `__name__` of the package that calls this in its `__init__.py`.
        verb: what to call in place of it, where a command has its name.
    """
    module = sys.modules[package]
    home_of = _offers(package)
    for name in home_of:
        module.__dict__.pop(name, None)  # a folder inside, loaded to read its list
    module.__dict__.update(_home_of=home_of, _verb=verb, __all__=sorted(home_of))
    module.__class__ = _Folder


def _offers(package: str) -> dict[str, str]:
    """Where each name that a package offers stands; `import *` takes another list in."""
    source = source_of(package)
    taken = {name: home for other in _ALL.findall(source) for name, home in _offers(other).items()}
    return taken | {name: home for home, name in _OFFER.findall(source)}


def home_of(folder: ModuleType, name: str) -> str:
    """The module that defines a name which a folder offers, through folders that hand it on."""
    home = folder.__name__
    while name in (offers := _offers(home)):
        home = offers[name]
    return home


def source_of(module: str) -> str:
    """The text of a module of ours, whether it is loaded or not."""
    if module in sys.modules:
        spec = sys.modules[module].__spec__
    else:
        folder = import_module(module.rpartition(".")[0])
        spec = PathFinder.find_spec(module, folder.__path__)
    get_source = getattr(None if spec is None else spec.loader, "get_source", None)
    text: str | None = None if get_source is None else get_source(module)
    if text is None:
        raise ImportError(
            f"foretrace needs its source files, and {module} has none: install it again"
        )
    return text


class _Optional(ModuleType):
    """A library of an extra, loaded when something of it is first used."""

    _extra: str

    def __getattr__(self, name: str) -> object:
        """Something of the library, which is loaded now."""
        try:
            library = import_module(self.__name__)
        except ImportError as error:
            raise MissingExtraError(
                f"this needs {self.__name__}, which cannot be loaded ({error}): install it with "
                f'pip install "foretrace[{self._extra}]"'
            ) from None
        value: object = getattr(library, name)
        self.__dict__[name] = value
        return value


def optional(library: str, *, extra: str) -> ModuleType:
    """A library that is loaded when something of it is first used.

    Args:
        library: its name: "torch".
        extra: of foretrace, which installs it.
    """
    found = _Optional(library)
    vars(found)["_extra"] = extra
    return found
