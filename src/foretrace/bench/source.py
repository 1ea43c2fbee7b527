"""`Node`: what an execution trace says of one operator, from a file of any schema version.

Schema 1.0.1 has flat nodes with `parent`, later ones nest inputs and outputs and list attributes;
1.1.1 adds strides. Sources: PyTorch's `execution_trace_observer.cpp`, and files of each version.
"""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from foretrace.base import TraceError

_GZIP, _ZIPPED_TAR = b"\x1f\x8b", ".tar.gz"


@dataclass(frozen=True, slots=True)
class Argument:
    """One recorded input or output."""

    type: str  # "Tensor(float)", "GenericList[Int,Int]", "Int", ...
    value: object
    shape: object
    strides: object  # none: not recorded


@dataclass(frozen=True, slots=True)
class Node:
    """One node of an execution trace."""

    id: int
    parent: int
    name: str
    schema: str  # "aten::mm(Tensor self, Tensor mat2) -> Tensor"; "" if it is no operator
    record_function: int
    inputs: tuple[Argument, ...]
    outputs: tuple[Argument, ...]
    attributes: Mapping[str, object]


def read_nodes(path: Path) -> tuple[Node, ...]:
    """The nodes of an execution trace, in the order of the file.

    Args:
        path: JSON, gzip or a tar archive of one file.

    Raises:
        TraceError: if it is no execution trace.
    """
    try:
        document = msgspec.json.decode(_raw(path))
        return tuple(_node(one) for one in document["nodes"])
    except (ValueError, KeyError, TypeError, EOFError, zlib.error, tarfile.TarError) as err:
        raise TraceError(
            f"{str(path)!r} is no execution trace that can be read ({type(err).__name__}: {err}): "
            "expected JSON with `nodes`, as torch.profiler.ExecutionTraceObserver writes it"
        ) from err


def _raw(path: Path) -> bytes:
    raw = path.read_bytes()
    raw = gzip.decompress(raw) if raw.startswith(_GZIP) else raw
    if not path.name.endswith(_ZIPPED_TAR):
        return raw
    with tarfile.open(fileobj=io.BytesIO(raw)) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member) if member.name.endswith(".json") else None
            if file is not None:
                return file.read()
    raise ValueError("the archive holds no JSON file")


def _node(said: dict[str, object]) -> Node:
    is_flat = "attrs" not in said  # schema 1.0.1
    attributes = said if is_flat else _attributes(said["attrs"])
    parent = said["parent"] if is_flat else said["ctrl_deps"]
    return Node(
        id=_number(said["id"]),
        parent=_number(parent),
        name=str(said["name"]),
        schema=str(attributes.get("op_schema", "")),
        record_function=_number(attributes.get("rf_id", 0)),
        inputs=_arguments(said, "input"),
        outputs=_arguments(said, "output"),
        attributes={} if is_flat else attributes,
    )


def _attributes(listed: object) -> dict[str, object]:
    rows = listed if isinstance(listed, list) else []
    return {str(one["name"]): one["value"] for one in rows}


def _arguments(said: Mapping[str, object], side: str) -> tuple[Argument, ...]:
    nested = said[f"{side}s"]
    if isinstance(nested, dict):
        values, shapes, types = (nested[key] for key in ("values", "shapes", "types"))
        strides = nested.get("strides") or [None] * len(values)
    else:
        values, shapes, types = nested, said[f"{side}_shapes"], said[f"{side}_types"]
        strides = [None] * len(_list(values))
    columns = zip(_list(types), _list(values), _list(shapes), _list(strides), strict=True)
    return tuple(Argument(str(kind), *rest) for kind, *rest in columns)


def _list(value: object) -> list[object]:
    if not isinstance(value, list):
        raise TypeError(f"found {value!r} where a list is expected")
    return value


def _number(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError(f"found {value!r} where a number is expected")
    return value
