"""Minimal reader; to be replaced by trace's."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Argument:
    """One recorded input or output."""

    type: str
    value: object
    shape: object
    strides: object  # None: not recorded


@dataclass(frozen=True)
class Node:
    """One node of an execution trace."""

    id: int
    parent: int
    name: str
    schema: str
    record_function: int
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    attributes: Mapping[str, object] = field(default_factory=dict)


def read_nodes(path: Path) -> tuple[Node, ...]:
    raw = path.read_bytes()
    if path.name.endswith(".tar.gz"):
        with tarfile.open(path) as archive:
            member = next(m for m in archive.getmembers() if m.name.endswith(".json"))
            raw = archive.extractfile(member).read()
    elif path.name.endswith(".gz"):
        raw = gzip.decompress(raw)
    return tuple(sorted((_node(n) for n in json.loads(raw)["nodes"]), key=lambda n: n.id))


def _node(n):
    if "attrs" in n:
        a = {x["name"]: x["value"] for x in n["attrs"]}
        return Node(n["id"], n["ctrl_deps"], n["name"], a["op_schema"], a["rf_id"],
            _args(n["inputs"]), _args(n["outputs"]), a)
    return Node(n["id"], n["parent"], n["name"], n["op_schema"], n["rf_id"],
        _args({"values": n["inputs"], "shapes": n["input_shapes"], "types": n["input_types"]}),
        _args({"values": n["outputs"], "shapes": n["output_shapes"], "types": n["output_types"]}), n)


def _args(s):
    strides = s.get("strides") or [None] * len(s["values"])
    return tuple(Argument(t, v, sh, st) for t, v, sh, st in zip(s["types"], s["values"], s["shapes"], strides))
