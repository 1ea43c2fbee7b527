"""What the environment decides; read here and nowhere below."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Where parsed traces are kept: `FORETRACE_CACHE`, or the platform's folder for caches."""
    own = os.environ.get("FORETRACE_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "foretrace"


def machine_folders() -> tuple[Path, ...]:
    """Where the user's own hardware is described: `FORETRACE_MACHINES`, or the platform's folder.

    A folder that does not exist is left out.
    """
    return _own_folders("FORETRACE_MACHINES", "machines")


def model_folders() -> tuple[Path, ...]:
    """Where the user's own models are described: `FORETRACE_MODELS`, or the platform's folder.

    A folder that does not exist is left out.
    """
    return _own_folders("FORETRACE_MODELS", "models")


def plan_folders() -> tuple[Path, ...]:
    """Where the user's own plans are: `FORETRACE_PLANS`, or the platform's folder.

    A folder that does not exist is left out.
    """
    return _own_folders("FORETRACE_PLANS", "plans")


def software_folders() -> tuple[Path, ...]:
    """Where the user's own software is described: `FORETRACE_SOFTWARE`, or the platform's folder.

    A folder that does not exist is left out.
    """
    return _own_folders("FORETRACE_SOFTWARE", "software")


def _own_folders(variable: str, name: str) -> tuple[Path, ...]:
    own = os.environ.get(variable)
    base = os.environ.get("XDG_CONFIG_HOME")
    folder = (Path(base) if base else Path.home() / ".config") / "foretrace" / name
    chosen = Path(own) if own else folder
    return (chosen,) if chosen.is_dir() else ()
