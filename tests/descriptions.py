"""Descriptions as TOML files hold them."""

from __future__ import annotations

import json
from collections.abc import Mapping


def as_toml(value: object) -> str:
    """A value on one line of TOML."""
    if isinstance(value, Mapping):
        inner = ", ".join(f"{json.dumps(key)} = {as_toml(each)}" for key, each in value.items())
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(as_toml, value))}]"
    return json.dumps(value)
