"""Scenario files: many what-ifs in one TOML file, strict in its keys.

```toml
[[scenario]]
name = "wider network"
set = { "network.pod.bandwidth" = "400Gb/s" }

[[scenario]]
name = "twice as deep"
layers = 64
pp = 4
```
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from msgspec import Meta

from foretrace.base import DescriptionKey, ScenarioError, parsed_toml, read_keys, read_value
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.edits.stated import edits_of

_ENTRIES = "scenario"
_KEYS = (DescriptionKey(_ENTRIES, tuple[dict[str, Any], ...], expected="a list of tables"),)
_NAME = DescriptionKey("name", Annotated[str, Meta(pattern=r"\S")], expected="a name")


@dataclass(frozen=True)
class NamedEdits:
    """One scenario as it was written: its name, and its edits in the order in which they act."""

    name: str
    edits: tuple[Edit, ...]


def read_scenarios(path: Path, *, folders: Sequence[Path] = ()) -> tuple[NamedEdits, ...]:
    """The scenarios of a file, in its order.

    Args:
        path: a TOML file of `[[scenario]]` entries.
        folders: the user's own, where names of machines are looked up before the presets.

    Raises:
        ScenarioError: if the file cannot be read as one, naming file, entry and key.
    """
    where = f"scenario file {str(path)!r}"
    document = read_keys(parsed_toml(path, ScenarioError), _KEYS, where, error=ScenarioError)
    entries = document.get(_ENTRIES, ())
    if not entries:
        raise ScenarioError(
            f"{where} holds no scenario: write one as [[scenario]], with a name and its edits below"
        )
    found: list[NamedEdits] = []
    for number, entry in enumerate(entries, start=1):
        one = _scenario(entry, number, where, folders)
        if one.name in {other.name for other in found}:
            raise ScenarioError(f"{where} has two scenarios called {one.name!r}: rename one")
        found.append(one)
    return tuple(found)


def _scenario(
    table: Mapping[str, object], number: int, where: str, folders: Sequence[Path]
) -> NamedEdits:
    here = f"scenario {number} of {where}"
    if "name" not in table:
        raise ScenarioError(f"{here} has no name: give it one, as in name = 'wider'")
    name = read_value(table["name"], _NAME, here, error=ScenarioError).strip()
    place = f"scenario {name!r} of {where}"
    edits = edits_of({key: table[key] for key in table if key != "name"}, place, folders=folders)
    if not edits:
        raise ScenarioError(f"{place} edits nothing: state what changes, as in layers = 96")
    return NamedEdits(name, edits)
