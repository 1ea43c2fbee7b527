"""Names, durations and colours as drawings show them."""

from __future__ import annotations

from foretrace.base import NS_PER_UNIT
from foretrace.graph import (
    DEVICE_KINDS,
    NO_COLLECTIVE,
    EdgeKind,
    ExecutionGraph,
    NodeKind,
    block_words,
)

_COMMUNICATION = (NodeKind.ARRIVE, NodeKind.HUB, NodeKind.FINISH, NodeKind.GHOST)
# Paul Tol's light scheme, readable with any colour vision: https://personal.sron.nl/~pault/
_HOST_FILL, _DEVICE_FILL, _COMMUNICATION_FILL, _PLAIN_FILL = (
    "#77AADD", "#BBCC33", "#EE8866", "#DDDDDD",
)  # fmt: skip
_EDGE_COLOURS = {
    EdgeKind.LAUNCH: "#0077BB",
    EdgeKind.ISSUE: "#0077BB",
    EdgeKind.WAKE: "#CC3311",
    EdgeKind.QUEUE: "#CC3311",
    EdgeKind.STREAM: "#117733",
    EdgeKind.PROGRAMMATIC: "#117733",
    EdgeKind.INTER_STREAM: "#009988",
    EdgeKind.INTER_STREAM_INFERRED: "#009988",
    EdgeKind.ARRIVAL: "#EE7733",
    EdgeKind.TRANSFER: "#EE7733",
    EdgeKind.GHOST: "#EE7733",
    EdgeKind.THREAD: "#AA3377",
}
_OTHER_EDGE = "#777777"


def short_text(graph: ExecutionGraph, node: int, letters: int) -> str:
    """A node's name without return type, arguments, and what else has no room."""
    name: str = graph.names[graph.name[node]]
    if graph.collective[node] != NO_COLLECTIVE:
        one = graph.collectives[graph.collective[node]]
        name = f"{NodeKind(int(graph.kind[node])).name.lower()} {one.name} {one.position}"
    name = name.removeprefix("void ").removeprefix("at::native::")
    name = name.replace("(anonymous namespace)::", "")
    if len(name) > letters:
        name = name.partition("<")[0].partition("(")[0] or name
    if len(name) > letters:
        begin = letters // 3
        name = f"{name[:begin]}...{name[begin + 3 - letters :]}"
    return name


def full_text(graph: ExecutionGraph, node: int) -> str:
    """All that is known of a node, a line each."""
    operator = int(graph.operator[node])
    lines = [
        graph.names[graph.name[node]],
        (
            f"node {node}, {NodeKind(int(graph.kind[node])).name.lower().replace('_', ' ')}, "
            f"{int(graph.measured_ns[node]):,} ns"
        ),
        graph.names[operator] if operator >= 0 else "",
        block_words(int(graph.part[node]), int(graph.phase[node]), int(graph.layer[node])),
        graph.step_names[graph.step[node]] if graph.step[node] >= 0 else "",
    ]
    return "\n".join(filter(None, lines))


def duration_text(duration_ns: int) -> str:
    """A duration with three digits: `12.3 us`."""
    for unit, unit_ns in NS_PER_UNIT.items():
        if duration_ns >= unit_ns > 1:
            return f"{duration_ns / unit_ns:.3g} {unit}"
    return f"{duration_ns} ns"


def colour_of(graph: ExecutionGraph, node: int) -> str:
    """A box's colour: host, device, communication, or a mark."""
    kind = NodeKind(int(graph.kind[node]))
    if kind in _COMMUNICATION:
        return _COMMUNICATION_FILL
    if kind in DEVICE_KINDS:
        return _DEVICE_FILL
    marks = (NodeKind.RANK_START, NodeKind.STEP_BEGIN, NodeKind.STEP_END, NodeKind.HOST_SEGMENT)
    return _PLAIN_FILL if kind in marks else _HOST_FILL


def edge_colour(kind: EdgeKind) -> str:
    """A line's colour."""
    return _EDGE_COLOURS.get(kind, _OTHER_EDGE)


def edge_text(kind: EdgeKind) -> str:
    """What a line means, in words."""
    return kind.name.lower().replace("_", " ")
