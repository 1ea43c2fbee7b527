"""Reading what a recording wrote, without any of foretrace's own readers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any


def contents(path: Path) -> dict[str, Any]:
    """A gzipped JSON file."""
    with gzip.open(path) as file:
        loaded: dict[str, Any] = json.load(file)
    return loaded


def spans(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """Duration events of a Kineto file, by start."""
    events = [event for event in trace["traceEvents"] if event.get("ph") == "X"]
    return sorted(events, key=lambda event: float(event["ts"]))


def step_marks(trace: dict[str, Any]) -> list[dict[str, Any]]:
    """The profiler's step marks, by start."""
    return [event for event in spans(trace) if event["name"].startswith("ProfilerStep#")]
