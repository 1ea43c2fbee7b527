"""JSON Schemas of what commands print: made from answers, and held against them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.commands import command_tree

ROOT = Path(__file__).parents[1] / "src" / "foretrace" / "cli" / "schemas"
Schema = dict[str, Any]

_KEY = re.compile(r"[a-z][a-z0-9_]*$")  # of a field; other keys are names that data gives
_NUMBERED = re.compile(r".*_[0-9]+$")  # names of data too, where all keys are: tables of a plan
_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


def schema_of(value: object, *, is_answer: bool = False) -> Schema:
    """What one value is; the keys of an answer itself are its own, whatever they look like."""
    if isinstance(value, Mapping):
        inner = {str(key): schema_of(held) for key, held in value.items()}
        is_data = len(inner) > 1 and all(map(_NUMBERED.match, inner))
        if is_answer or (all(map(_KEY.match, inner)) and not is_data):
            return {"type": ["object"], "properties": inner, "required": sorted(inner)}
        return {"type": ["object"], "additionalProperties": _all_of(list(inner.values()))}
    if isinstance(value, list):
        return {"type": ["array"], "items": _all_of([schema_of(one) for one in value])}
    return {"type": [_TYPES[type(value)]]}


def _all_of(schemas: list[Schema]) -> Schema:
    found: Schema = {}
    for one in schemas:
        found = merged(found, one)
    return found


def merged(first: Schema, second: Schema) -> Schema:
    """What either is."""
    if not first or not second:
        return first or second
    types = {*first["type"], *second["type"]} - {"integer"}
    if "integer" in {*first["type"], *second["type"]} and "number" not in types:
        types.add("integer")
    found: Schema = {"type": sorted(types)}
    sides = [one for one in (first, second) if "object" in one["type"]]
    if any("additionalProperties" in one for one in sides):
        held = [one["additionalProperties"] for one in sides if "additionalProperties" in one]
        held += [one for side in sides for one in side.get("properties", {}).values()]
        found["additionalProperties"] = _all_of(held)
    elif sides:
        keys = dict.fromkeys(key for one in sides for key in one["properties"])
        found["properties"] = {
            key: _all_of([one["properties"][key] for one in sides if key in one["properties"]])
            for key in keys
        }
        found["required"] = sorted(set.intersection(*(set(one["required"]) for one in sides)))
    arrays = [one["items"] for one in (first, second) if "array" in one["type"]]
    if arrays:
        found["items"] = _all_of(arrays)
    return found


def wrong_in(value: object, schema: Schema, where: str = "$") -> Iterator[str]:
    """What of a value a schema does not allow."""
    if not schema:
        return
    name = {dict: "object", list: "array", **_TYPES}[type(value)]
    if name not in schema["type"] and not (name == "integer" and "number" in schema["type"]):
        yield f"{where} is of the type {name}, expected {schema['type']}"
    elif isinstance(value, dict):
        yield from (
            f"{where}.{key} is missing" for key in schema.get("required", ()) if key not in value
        )
        for key, held in value.items():
            own = schema.get("properties", {}).get(key, schema.get("additionalProperties"))
            if own is None:
                yield f"{where}.{key} is not in the schema"
            else:
                yield from wrong_in(held, own, f"{where}.{key}")
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from wrong_in(one, schema.get("items", {}), f"{where}[{at}]")


def command_of(line: str) -> str:
    """The command of a line."""
    words = f"{line} "
    paths = (" ".join(one.path) for one in command_tree() if one.path)
    return max((path for path in paths if words.startswith(f"{path} ")), key=len)


def check(command: str, value: dict[str, Any], *, is_update: bool) -> None:
    """Hold what a command printed against its schema; or widen the schema by it."""
    path = ROOT / f"{command.replace(' ', '-')}.json"
    version = value["schema_version"]
    kept = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    if is_update:
        body = {key: kept[key] for key in ("type", "properties", "required") if key in kept}
        found = merged(body, schema_of(value, is_answer=True))
        found["properties"]["schema_version"] = {"type": ["integer"], "const": version}
        kept = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "$id": f"foretrace:{command.replace(' ', '-')}:{version}",
            "title": f"foretrace {command} --json",
            **found,
        }
        path.write_text(json.dumps(kept, separators=(",", ":")) + "\n", encoding="utf-8")
    assert kept["properties"]["schema_version"]["const"] == version
    assert list(wrong_in(value, kept)) == [], (
        "run pytest --update-golden; a key that goes or changes is a new version"
    )
