"""Descriptions of hardware are TOML files, found, extended and merged as all descriptions are."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from foretrace.base import (
    Document,
    MachineError,
    Shelf,
    document_names,
    document_path,
    read_document,
)

PRESETS = Path(__file__).parent / "presets"


class DescriptionKind(StrEnum):
    """What a file describes; the presets of each stand in a folder of that name and an s."""

    CHIP = "chip"
    HOST = "host"
    MACHINE = "machine"


_LIBRARIES = {
    described: Shelf(
        noun=described.value,
        kinds=(described.value,),
        presets=PRESETS,
        folder=f"{described}s",
        error=MachineError,
        named_lists=("tiers",),
    )
    for described in DescriptionKind
}


def names(described: DescriptionKind, folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all descriptions of a kind, sorted; a user's file hides the preset of its name."""
    return document_names(_LIBRARIES[described], folders)


def text_of(name: str, described: DescriptionKind, folders: Sequence[Path] = ()) -> str:
    """The file of that name as it is written: a hundred times faster than what it says.

    Raises:
        MachineError: if there is none.
    """
    path = document_path(name, _LIBRARIES[described], folders)
    return path.read_text(encoding="utf-8", errors="replace")


def document(
    name_or_path: str | Path, described: DescriptionKind, folders: Sequence[Path] = ()
) -> Document:
    """The description of that name, or in that file, merged with what it extends.

    Raises:
        MachineError: if there is none, it cannot be parsed, or it extends itself.
    """
    return read_document(name_or_path, _LIBRARIES[described], folders)
