"""What files of settings say: `foretrace.toml` here, then the user's `config.toml`.

An option on the command line beats a variable of the environment, which beats the working folder's
file, which beats the user's. At the top of a file stand the settings below; a table called as a
command, `[estimate]` or `[risk.steps]`, holds that command's options by their names.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from typer.core import TyperArgument, TyperOption

from foretrace.base import ModelError

PROJECT_FILE = "foretrace.toml"
_NOTHING = "not set"


@dataclass(frozen=True)
class KnownSetting:
    """One key at the top of a file."""

    key: str
    variable: str  # of the environment, that beats it
    help: str
    commands: tuple[str, ...] = ()  # whose option of this name it fills; () of every command
    is_option: bool = True  # else it is read where it is needed


SETTINGS = {
    one.key: one
    for one in (
        KnownSetting("data", "FORETRACE_RUN", "the run that is read where no PATH is given"),
        KnownSetting(
            "machine", "FORETRACE_MACHINE", "what --machine is", ("estimate", "whatif", "risk")
        ),
        KnownSetting("model", "FORETRACE_MODEL", "what --model is", ("estimate", "whatif", "risk")),
        KnownSetting("plan", "FORETRACE_PLAN", "what --plan is", ("estimate", "risk")),
        KnownSetting("chip", "FORETRACE_CHIP", "what --chip is", ("throughput", "calibrate")),
        KnownSetting("price", "FORETRACE_PRICE", "what --price is", ("estimate",)),
        KnownSetting("workers", "FORETRACE_WORKERS", "files read at once"),
        KnownSetting("progress", "FORETRACE_PROGRESS", "auto, json or none", is_option=False),
        KnownSetting("cache", "FORETRACE_CACHE", "folder of parsed traces", is_option=False),
        KnownSetting("cache_size", "FORETRACE_CACHE_SIZE", "what it may hold", is_option=False),
        KnownSetting("models", "FORETRACE_MODELS", "folder of your models", is_option=False),
        KnownSetting("plans", "FORETRACE_PLANS", "folder of your plans", is_option=False),
        KnownSetting("machines", "FORETRACE_MACHINES", "folder of your hardware", is_option=False),
        KnownSetting("software", "FORETRACE_SOFTWARE", "folder of your software", is_option=False),
    )
}
_PARAMETER_OF = {"data": "paths"}  # of a command, where it is called otherwise


@dataclass(frozen=True)
class FoundSetting:
    """A value and where it stands."""

    value: object
    origin: str


def user_folder() -> Path:
    """Where the user's own files are."""
    base = os.environ.get("XDG_CONFIG_HOME")
    return (Path(base) if base else Path.home() / ".config") / "foretrace"


def setting(key: str) -> FoundSetting | None:
    """What one key is set to; the environment's, else the nearest file's.

    Raises:
        ModelError: if a file cannot be read, or has a key that there is not.
    """
    own = os.environ.get(SETTINGS[key].variable)
    if own:
        return FoundSetting(own, SETTINGS[key].variable)
    for path, table in _files():
        if key in table:
            return FoundSetting(table[key], str(path))
    return None


def text_setting(key: str) -> str | None:
    """The same as text; `None` where nothing is set."""
    found = setting(key)
    return None if found is None else str(found.value)


def defaults_of(path: tuple[str, ...], command: Any) -> dict[str, object]:
    """What files and environment say of a command's options, by its parameters' names.

    Args:
        path: the command as typed: ("risk", "steps").
        command: as typer runs it.

    Raises:
        ModelError: if a table holds an option that the command has not.
    """
    parameter_of = {
        option.lstrip("-"): parameter.name
        for parameter in command.params
        if isinstance(parameter, TyperOption)
        for option in parameter.opts
    }
    arguments = {one.name for one in command.params if isinstance(one, TyperArgument)}
    found: dict[str, object] = {}
    for key, one in SETTINGS.items():
        name = _PARAMETER_OF.get(key) if key in _PARAMETER_OF else parameter_of.get(key)
        is_meant = one.is_option and (not one.commands or path[0] in one.commands)
        is_there = name in arguments if key in _PARAMETER_OF else name is not None
        told = setting(key) if is_meant and is_there else None
        if told is not None and name is not None:
            found[name] = [told.value] if key in _PARAMETER_OF else told.value
    for file, table in reversed(list(_files())):
        for key, value in _table_of(table, path).items():
            if isinstance(value, dict):
                continue
            name = parameter_of.get(key.replace("_", "-"))
            if name is None:
                near = get_close_matches(key.replace("_", "-"), parameter_of, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise ModelError(
                    f"{str(file)!r} sets {key!r} of [{'.'.join(path)}], and `foretrace "
                    f"{' '.join(path)}` has no such option{hint}"
                )
            found[name] = value
    return found


def everything() -> Iterator[tuple[str, object, str, str]]:
    """Every setting: its key, value, where it stands, and what it is for; then commands' tables."""
    for key, one in SETTINGS.items():
        found = setting(key)
        value, origin = ("", _NOTHING) if found is None else (found.value, found.origin)
        yield key, value, origin, one.help
    seen = set()
    for path, table in _files():
        for key, value in _flat(table):
            if key not in SETTINGS and key not in seen:
                seen.add(key)
                yield key, value, str(path), "an option of that command"


def _flat(table: Mapping[str, object], before: str = "") -> Iterator[tuple[str, object]]:
    for key, value in table.items():
        name = f"{before}{key}"
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name}.")
        else:
            yield name, value


def _table_of(table: Mapping[str, object], path: tuple[str, ...]) -> Mapping[str, object]:
    for one in path:
        inner = table.get(one)
        table = inner if isinstance(inner, Mapping) else {}
    return table


def _files() -> Iterator[tuple[Path, Mapping[str, object]]]:
    """The files that there are, the nearest first."""
    for path in (Path(PROJECT_FILE), user_folder() / "config.toml"):
        if path.is_file():
            yield path, _read(path)


def _read(path: Path) -> Mapping[str, object]:
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as err:  # of TOML, and of bytes that are no text
        raise ModelError(f"settings in {str(path)!r} cannot be read: {err}") from err
    for key, value in table.items():
        if key not in SETTINGS and not isinstance(value, dict):
            near = get_close_matches(key, SETTINGS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ModelError(
                f"{str(path)!r} sets {key!r}, where one of {', '.join(SETTINGS)} or a command's "
                f"table is expected{hint}"
            )
    return table
