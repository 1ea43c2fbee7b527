"""`function_named`: a function of the user's own, from a package or a file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

from foretrace.base.errors import WorkloadError


def function_named(named: str) -> Callable[..., Any]:
    """A function of the user's own.

    Args:
        named: "package.file:function", or "path/to/file.py:function".

    Raises:
        WorkloadError: if its file cannot be imported, or has no such function.
    """
    place, _, name = named.rpartition(":")
    if not place or not name:
        raise WorkloadError(
            f"module {named!r} names no function: write package.file:function, or "
            "path/to/file.py:function"
        )
    found = getattr(_loaded(place, named), name, None)
    if not callable(found):
        raise WorkloadError(f"there is no function {name!r} in {place}: name one that is there")
    return found  # type: ignore[no-any-return]


def _loaded(place: str, named: str) -> ModuleType:
    path = Path(place)
    try:
        if path.suffix == ".py":
            with _importable(path.resolve().parent):
                return _from_file(path)
        with _importable(Path.cwd()):
            return importlib.import_module(place)
    except Exception as err:  # whatever a user's file raises as it is imported
        raise WorkloadError(
            f"{named} cannot be loaded: {type(err).__name__}: {err}; give a file that Python can "
            "import"
        ) from err


def _from_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"no such file: {path}")
    found = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = found  # dataclasses in it look themselves up
    spec.loader.exec_module(found)
    return found


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """While it holds, modules of a folder can be imported, as of a program that is run there."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
