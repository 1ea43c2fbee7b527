"""PyTorch execution traces as Chakra nodes: what Chakra's converter makes of them, and no less.

A host operator works for as long as it does not call another; a device operation waits for the
operator that launched it. Order on threads and streams is not stated here: it is the same for
every file, and added where the graph is built. Names, sizes and dependencies of communication
come from the execution trace. Source: src/converter/pytorch_converter.py of mlcommons/chakra at
21585d8, whose losses (synchronisations, sub-microsecond durations) are not repeated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from foretrace.base import NS_PER_US, CollectiveKind, collective_kind_of
from foretrace.trace.chakra.collect import Attribute, Collected
from foretrace.trace.chakra.schema import COMM_TYPES, NodeType, ValueField
from foretrace.trace.communication import is_communication

Node = Mapping[str, object]
_NUMBERS = ("rf_id", "fw_parent", "seq_id", "scope", "tid", "fw_tid")
_ITEM_BYTES, _NUM_ITEMS = 4, 3  # places in a tensor: id, storage, offset, elements, item bytes
_TENSOR_FIELDS = 6


def linked_nodes(
    content: Mapping[str, object],
) -> tuple[str, dict[str, Attribute], Collected]:
    """Version, metadata and nodes of an execution trace that was read whole."""
    listed = content["nodes"]
    if not isinstance(listed, list) or not all(isinstance(node, dict) for node in listed):
        raise TypeError("its nodes are no list of objects")
    nodes = [_flat(node) for node in listed]
    told: dict[str, Attribute] = {
        name: (ValueField.STRING, str(content[name]))
        for name in ("schema", "pid", "time", "start_ts", "finish_ts")
        if name in content
    }
    called_us: dict[int, float] = {}
    for node in nodes:
        if "cat" not in node:
            parent = _whole(node.get("parent", 0))
            called_us[parent] = called_us.get(parent, 0) + _number(node.get("dur", 0))
    callers = {_whole(node["id"]): node for node in nodes if "cat" not in node}
    collected = Collected()
    for node in sorted(nodes, key=lambda node: _whole(node["id"])):
        if "cat" in node:
            _add_device(collected, node, callers)
        else:
            _add_host(collected, node, called_us)
    return str(content.get("schema", "")), told, collected


def _flat(node: Node) -> Node:
    """A node as version 1.0.1 has it: attributes and lists of inputs stand in the node itself."""
    if "attrs" not in node:
        return node
    flat = {key: value for key, value in node.items() if key not in {"attrs", "inputs", "outputs"}}
    attributes = node["attrs"]
    for one in attributes if isinstance(attributes, list) else []:
        flat[str(one["name"])] = one["value"]
    for side in ("input", "output"):
        told = node.get(f"{side}s")
        told = told if isinstance(told, dict) else {}
        flat[f"{side}s"] = told.get("values", [])
        flat[f"{side}_shapes"] = told.get("shapes", [])
        flat[f"{side}_types"] = told.get("types", [])
    flat["parent"] = node.get("ctrl_deps", 0)
    return flat


def _add_host(collected: Collected, node: Node, called_us: Mapping[int, float]) -> None:
    number = _whole(node["id"])
    parent = _whole(node.get("parent", 0))
    own_us = _number(node.get("exclusive_dur", -1))
    if own_us < 0:
        own_us = max(_number(node.get("dur", 0)) - called_us.get(number, 0), 0)
    is_group = "process_group:init" in str(node["name"])
    collected.add(
        number,
        str(node["name"]),
        NodeType.METADATA if is_group else NodeType.COMP,
        control=[parent] if parent != number else [],
        data=_also(node),
        duration_micros=round(own_us),
        inputs=_values(node, "input"),
        outputs=_values(node, "output"),
        attributes={
            "is_cpu_op": (ValueField.BOOL, 1),
            **{name: (ValueField.INT64, _whole(node[name])) for name in _NUMBERS if name in node},
            "op_schema": (ValueField.STRING, str(node.get("op_schema", ""))),
            **_times(node, own_us),
        },
    )


def _add_device(collected: Collected, node: Node, callers: Mapping[int, Node]) -> None:
    told = node.get("args")
    stream = node.get("stream", told.get("stream") if isinstance(told, dict) else None)
    name, parent = str(node["name"]), _whole(node.get("parent", node.get("ctrl_deps", 0)))
    kind = NodeType.COMM_COLL if is_communication(name) else NodeType.COMP
    duration_us = _number(node.get("exclusive_dur", node.get("dur", 0)))
    collected.add(
        _whole(node["id"]),
        name,
        kind,
        control=[parent],
        data=[parent, *_also(node)],
        duration_micros=round(duration_us),
        inputs=_values(node, "input"),
        outputs=_values(node, "output"),
        attributes={
            "is_cpu_op": (ValueField.BOOL, 0),
            "stream": (ValueField.INT64, _whole(stream if stream is not None else 0)),
            **_communication(node, name, callers.get(parent, {})),
            **_times(node, duration_us),
        },
    )


def _times(node: Node, duration_us: float) -> dict[str, Attribute]:
    """Times to the nanosecond, where the trace has any."""
    found: dict[str, Attribute] = {
        "duration_ns": (ValueField.INT64, round(duration_us * NS_PER_US))
    }
    if "dur" not in node and "exclusive_dur" not in node:
        return {}
    if "ts" in node:
        found["start_ns"] = (ValueField.INT64, round(_number(node["ts"]) * NS_PER_US))
    return found


def _communication(node: Node, name: str, caller: Node) -> dict[str, Attribute]:
    if not is_communication(name):
        return {}
    kind = collective_kind_of(name)
    if kind is CollectiveKind.SEND_RECV:
        # One kernel serves sends, receives and all-to-all: the caller's inputs name which.
        inputs = caller.get("inputs")
        words = inputs if isinstance(inputs, list) else []
        kinds = [collective_kind_of(word) for word in words if isinstance(word, str)]
        kind = next((one for one in kinds if one in COMM_TYPES), kind)
    found: dict[str, Attribute] = {"comm_size": (ValueField.INT64, _bytes(node.get("inputs")))}
    if kind in COMM_TYPES:
        found["comm_type"] = (ValueField.INT64, int(COMM_TYPES[kind]))
    if node.get("pg_name"):
        found["pg_name"] = (ValueField.STRING, str(node["pg_name"]))
    return found


def _bytes(inputs: object) -> int:
    """Bytes of all tensors among these inputs."""
    if not isinstance(inputs, list):
        return 0
    if len(inputs) == _TENSOR_FIELDS and isinstance(inputs[-1], str) and ":" in inputs[-1]:
        return _whole(inputs[_NUM_ITEMS]) * _whole(inputs[_ITEM_BYTES])
    return sum(map(_bytes, inputs))


def _also(node: Node) -> list[int]:
    """Nodes that `chakra_trace_link` found a node to wait for: of another thread, of a device."""
    found: list[int] = []
    for name in ("inter_thread_dep", "sync_dep"):
        value = node.get(name)
        if isinstance(value, list):
            found += [_whole(each) for each in value]
        elif value is not None:
            found.append(_whole(value))
    return found


def _values(node: Node, side: str) -> Sequence[str] | None:
    texts = [
        msgspec.json.encode(node.get(name, [])).decode()
        for name in (f"{side}s", f"{side}_shapes", f"{side}_types")
    ]
    return None if all(text == "[]" for text in texts) else texts


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float(str(value))


def _whole(value: object) -> int:
    return int(_number(value)) if isinstance(value, float) else int(str(value))
