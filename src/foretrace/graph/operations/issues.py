"""Which `c10d::` call issued each CPU collective: gloo's spans carry no id that says it.

A group's collectives form one queue, so spans of a kind and size start in the order of their
calls (checked on every collective of four gloo recordings of torch 2.13: no exception).
"""

from __future__ import annotations

import re

import numpy as np

from foretrace.base import CollectiveKind, Int64s
from foretrace.graph.operations.host import ISSUE_PREFIX, WORKER_PREFIX
from foretrace.trace import Trace

_SEND = "c10d::send"
START_SLACK_NS = 1_000  # a span may seem to start this much before its call
_SHAPE = re.compile(r"\[\s*(\d+(?:\s*,\s*\d+)*)\s*\]")
# Kinds whose call and span show the same tensor, so that sizes must agree.
_SAME_SIZE = frozenset(
    (
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.SEND,
        CollectiveKind.RECV,
        CollectiveKind.BROADCAST,
    )
)


def issue_events(trace: Trace, item_rows: Int64s, span_rows: Int64s) -> Int64s:
    """Row of the call that issued each span, int64[spans]; -1 where none fits."""
    calls = [
        int(row)
        for row in item_rows[np.argsort(trace.start_ns[item_rows], kind="stable")].tolist()
        if trace.strings[trace.name[row]].startswith(ISSUE_PREFIX)
    ]
    described = {row: (_kind(trace, row), _elements(trace, row)) for row in calls}
    issue = np.full(len(span_rows), -1, np.int64)
    pending: list[int] = []
    next_call = 0
    for index in np.argsort(trace.start_ns[span_rows], kind="stable").tolist():
        row = int(span_rows[index])
        while (
            next_call < len(calls)
            and trace.start_ns[calls[next_call]] <= trace.start_ns[row] + START_SLACK_NS
        ):
            pending.append(calls[next_call])
            next_call += 1
        kind, elements = _kind(trace, row), _elements(trace, row)
        for call in pending:
            if _fits(described[call], kind, elements):
                issue[index] = call
                pending.remove(call)
                break
    return issue


def begins_of_sends(trace: Trace, start_ns: Int64s, issue: Int64s) -> Int64s:
    """When operations began, those that send where their calls did; int64[operations].

    gloo writes to the wire inside the call and opens the span after it (torch 2.13). Where
    processes share cores the other end may have everything before the call returns: in 48 of 384
    transfers of six recordings, by up to 10 ms; in none before the call began.
    """
    is_send = np.array([text == _SEND for text in trace.strings] + [False], np.bool_)
    name_of_issue = np.append(trace.name, np.int32(-1))[issue]
    return np.where(is_send[name_of_issue], np.append(trace.start_ns, 0)[issue], start_ns)


def _fits(call: tuple[str, int | None], kind: str, elements: int | None) -> bool:
    call_kind, call_elements = call
    # reduce_scatter_tensor runs as an all-reduce of the whole input.
    scatters = CollectiveKind.REDUCE_SCATTER in call_kind
    is_same = kind in call_kind or (kind == CollectiveKind.ALL_REDUCE and scatters)
    if not is_same or kind not in _SAME_SIZE or scatters:
        return is_same
    return call_elements is None or elements is None or call_elements == elements


def _kind(trace: Trace, row: int) -> str:
    text: str = trace.strings[trace.name[row]]
    return text.removeprefix(ISSUE_PREFIX).removeprefix(WORKER_PREFIX).replace("_", "")


def _elements(trace: Trace, row: int) -> int | None:
    """Elements of the first tensor that the event's shapes show."""
    if trace.signature[row] < 0:
        return None
    shape = _SHAPE.search(trace.strings[trace.signature[row]])
    return int(np.prod([int(size) for size in shape.group(1).split(",")])) if shape else None
