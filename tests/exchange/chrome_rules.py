"""What a file in the Chrome trace event format must keep to, as a list of what it breaks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

Event = dict[str, Any]
Thread = tuple[int, int]


def broken_rules(events: list[Event]) -> list[str]:
    """Every rule that these events break, in words; empty if they are valid."""
    return [*_unnamed(events), *_badly_nested(events), *_loose_flows(events), *_falling(events)]


def _thread(event: Event) -> Thread:
    return event["pid"], event["tid"]


def _unnamed(events: list[Event]) -> Iterator[str]:
    processes = {event["pid"] for event in events if event["name"] == "process_name"}
    threads = {_thread(event) for event in events if event["name"] == "thread_name"}
    for event in events:
        if event["pid"] not in processes:
            yield f"process {event['pid']} has no name"
        if event["ph"] in "Xsf" and _thread(event) not in threads:
            yield f"thread {_thread(event)} has no name"


def _badly_nested(events: list[Event]) -> Iterator[str]:
    """Slices of a thread, outer ones first where they begin together, must nest."""
    open_until: defaultdict[Thread, list[Decimal]] = defaultdict(list)
    slices = [event for event in events if event["ph"] == "X"]
    for event in sorted(slices, key=lambda event: (event["ts"], -event["dur"])):
        if event["ts"] < 0 or event["dur"] < 0:
            yield f"{event['name']} at {event['ts']} has a negative time"
        stack = open_until[_thread(event)]
        while stack and stack[-1] <= event["ts"]:
            stack.pop()
        end = event["ts"] + event["dur"]
        if stack and end > stack[-1]:
            yield f"{event['name']} at {event['ts']} ends after the slice around it"
        stack.append(end)


def _loose_flows(events: list[Event]) -> Iterator[str]:
    """A flow's two ends share an id, and each lies on a slice of its thread."""
    sides: dict[str, dict[Any, Event]] = {"s": {}, "f": {}}
    spans: defaultdict[Thread, list[tuple[Decimal, Decimal]]] = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            spans[_thread(event)].append((event["ts"], event["ts"] + event["dur"]))
        if event["ph"] in sides:
            if event["id"] in sides[event["ph"]]:
                yield f"flow {event['id']} has two {event['ph']!r}"
            sides[event["ph"]][event["id"]] = event
    if sides["s"].keys() != sides["f"].keys():
        yield f"flows without an other end: {sorted(sides['s'].keys() ^ sides['f'].keys())[:5]}"
    for event in (*sides["s"].values(), *sides["f"].values()):
        if not any(start <= event["ts"] <= end for start, end in spans[_thread(event)]):
            yield f"flow {event['id']} has its {event['ph']!r} on no slice"


def _falling(events: list[Event]) -> Iterator[str]:
    last: dict[tuple[int, str], Decimal] = {}
    for event in events:
        if event["ph"] == "C":
            key = event["pid"], event["name"]
            if event["ts"] < last.get(key, event["ts"]):
                yield f"counter {event['name']} goes back in time at {event['ts']}"
            last[key] = event["ts"]
