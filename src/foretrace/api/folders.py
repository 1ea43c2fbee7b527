"""Where parsed columns are kept."""

from __future__ import annotations

from pathlib import Path


def cache_folder_of(cache: bool | Path) -> Path | None:  # noqa: FBT001  as `load` takes it
    """The folder that `cache=` of a verb stands for; None: nowhere."""
    if isinstance(cache, Path):
        return cache
    return Path.home() / ".cache" / "foretrace" if cache else None
