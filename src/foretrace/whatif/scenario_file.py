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

from foretrace.base import ScenarioError, as_table, check_keys, parsed_toml
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.edits.stated import edit_keys, edits_of

_ENTRIES = "scenario"


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
    document = parsed_toml(path, ScenarioError)
    check_keys(document, (_ENTRIES,), where, error=ScenarioError)
    entries = document.get(_ENTRIES, [])
    if not isinstance(entries, list) or not entries:
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


def _scenario(entry: object, number: int, where: str, folders: Sequence[Path]) -> NamedEdits:
    table = as_table(entry, f"scenario {number} of {where}", error=ScenarioError)
    name = _name(table, number, where)
    place = f"scenario {name!r} of {where}"
    check_keys(table, ("name", *edit_keys()), place, error=ScenarioError)
    stated = {key: value for key, value in table.items() if key != "name"}
    edits = edits_of(stated, place, folders=folders)
    if not edits:
        raise ScenarioError(f"{place} edits nothing: state what changes, as in layers = 96")
    return NamedEdits(name, edits)


def _name(table: Mapping[str, object], number: int, where: str) -> str:
    name = table.get("name")
    if not isinstance(name, str) or not name.strip():
        has = "no name" if name is None else f"the name {name!r}"
        raise ScenarioError(
            f"scenario {number} of {where} has {has}: give it one, as in name = 'wider'"
        )
    return name.strip()
