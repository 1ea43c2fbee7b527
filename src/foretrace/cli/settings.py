"""What the environment and files of settings decide; read here and nowhere below."""

from __future__ import annotations

import os
import re
from enum import StrEnum
from pathlib import Path

import typer

from foretrace.cli.configuration import setting, text_setting, user_folder

_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)\s*(?P<unit>([KMGT]I?)?B|)", re.IGNORECASE)
_BYTES_OF = {
    "B": 1,
    **{f"{prefix}B": 1000 ** (at + 1) for at, prefix in enumerate("KMGT")},
    **{f"{prefix}IB": 1024 ** (at + 1) for at, prefix in enumerate("KMGT")},
}


PROGRESS = "FORETRACE_PROGRESS"


class ProgressKind(StrEnum):
    """How progress is told on stderr."""

    AUTO = "auto"  # a line on a terminal, gone at the end
    JSON = "json"  # a line of JSON whenever it changes
    NONE = "none"


def progress_kind() -> ProgressKind:
    """How progress is told: `FORETRACE_PROGRESS`, or as it suits standard error.

    Raises:
        BadParameter: if it is told in no such way.
    """
    own = text_setting("progress") or ProgressKind.AUTO
    if own not in set(ProgressKind):
        raise typer.BadParameter(f"{PROGRESS} is {own!r}: expected {', '.join(ProgressKind)}")
    return ProgressKind(own)


def cache_folder() -> Path:
    """Where parsed traces are kept: `FORETRACE_CACHE`, or the platform's folder for caches."""
    own = text_setting("cache")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "foretrace"


def max_cache_bytes() -> int:
    """What that folder may hold: `FORETRACE_CACHE_SIZE`, or 20 GB.

    Raises:
        BadParameter: if it is no size.
    """
    from foretrace.trace import DEFAULT_MAX_BYTES  # on demand: help needs no reader of traces

    own = setting("cache_size")
    return DEFAULT_MAX_BYTES if own is None else parsed_bytes(str(own.value), own.origin)


def parsed_bytes(text: str, name: str) -> int:
    """A size as it is typed: `500MB`, `20GiB`, `0`.

    Raises:
        BadParameter: if it is none.
    """
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise typer.BadParameter(f"{name} is {text!r}: expected a size, as 500MB, 20GB or 8GiB")
    size: int = round(float(found["number"]) * _BYTES_OF[found["unit"].upper() or "B"])
    return size


def machine_folders(costs: Path | None = None) -> tuple[Path, ...]:
    """Where the user's own hardware is described: `FORETRACE_MACHINES`, or the platform's folder.

    A folder that does not exist is left out.

    Args:
        costs: what `--costs` names: a folder that says what its kernels take; the first to.
    """
    return (*(() if costs is None else (costs,)), *_own_folders("machines"))


def model_folders() -> tuple[Path, ...]:
    """Where the user's own models are described: `FORETRACE_MODELS`, or the platform's folder.

    A folder that does not exist is left out.
    """
    return _own_folders("models")


def plan_folders() -> tuple[Path, ...]:
    """Where the user's own plans are: `FORETRACE_PLANS`, or the platform's folder.

    A folder that does not exist is left out.
    """
    return _own_folders("plans")


def software_folders() -> tuple[Path, ...]:
    """Where the user's own software is described: `FORETRACE_SOFTWARE`, or the platform's folder.

    A folder that does not exist is left out.
    """
    return _own_folders("software")


def _own_folders(name: str) -> tuple[Path, ...]:
    own = text_setting(name)
    chosen = Path(own) if own else user_folder() / name
    return (chosen,) if chosen.is_dir() else ()
