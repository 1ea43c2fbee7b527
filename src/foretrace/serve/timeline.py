"""`write_engine_trace`: what an engine did over time, as one file that opens in Perfetto.

A process for each engine that runs by itself: its steps with what each works on, and counters of
the queue, of what runs and of the cache; below it its requests, as many tracks as run at once.
"""

from __future__ import annotations

from heapq import heappop, heappush
from pathlib import Path

import numpy as np

from foretrace.base import Float64s, Int64s
from foretrace.exchange import Counter, Slices, Track, write_tracks
from foretrace.serve.running import EngineRun, EngineSteps

_KINDS = ("prefill", "decode", "prefill and decode")


def write_engine_trace(path: Path, run: EngineRun) -> int:
    """Write an engine's timeline; the number of slices written.

    Args:
        path: where to. Perfetto's own format if the name ends in `.pftrace`, else Chrome's JSON;
            compressed if `.gz` follows.
        run: that ended.
    """
    count = len(run.steps)
    names = ["engine"] if count == 1 else [f"engine {at}" for at in range(count)]
    processes = {
        name: engine_tracks(steps, run.num_stages)
        for name, steps in zip(names, run.steps, strict=True)
    }
    return write_tracks(path, {**processes, "requests": request_tracks(run)})


def engine_tracks(steps: EngineSteps, num_stages: int = 1) -> tuple[Track, ...]:
    """Steps and counters of one engine.

    Args:
        steps: of it.
        num_stages: steps that may be on their way at once, each on a track of its own.
    """
    ends = steps.start_ns + steps.duration_ns
    kind = np.where(steps.prefill_tokens == 0, 1, np.where(steps.num_decodes == 0, 0, 2))
    told = {
        "prompts": steps.num_prefills,
        "tokens of prompts": steps.prefill_tokens,
        "sequences that get a token": steps.num_decodes,
    }
    tracks: list[Track] = []
    for first in range(num_stages):
        rows = slice(first, None, num_stages)
        tracks.append(
            Slices(
                track="steps" if num_stages == 1 else f"steps {first}",
                rank=None,
                names=_KINDS,
                name=kind[rows].astype(np.int64),
                start_ns=steps.start_ns[rows],
                end_ns=ends[rows],
                arguments=tuple(
                    (key, tuple(map(str, values[rows].tolist()))) for key, values in told.items()
                ),
            )
        )
    counted = (
        ("waiting", "requests", steps.num_waiting),
        ("running", "requests", steps.num_running),
        ("cache in use", "blocks", steps.used_blocks),
        ("tokens of prompts in a step", "tokens", steps.prefill_tokens),
        ("decodes in a step", "sequences", steps.num_decodes),
    )
    return (*tracks, *(_counter(each, steps.start_ns, ends) for each in counted))


def request_tracks(run: EngineRun) -> tuple[Track, ...]:
    """Requests from when they were first put into a step, on as few tracks as hold them."""
    free: list[int] = []
    running: list[tuple[int, int]] = []
    members: list[list[int]] = []
    for at in np.argsort(run.scheduled_ns, kind="stable").tolist():
        while running and running[0][0] <= run.scheduled_ns[at]:
            heappush(free, heappop(running)[1])
        if not free:
            members.append([])
        lane = heappop(free) if free else len(members) - 1
        members[lane].append(at)
        heappush(running, (int(run.last_ns[at]), lane))
    return tuple(_lane(run, np.array(rows), lane) for lane, rows in enumerate(members))


def _lane(run: EngineRun, rows: Int64s, lane: int) -> Slices:
    """Each request, and inside it what came before its first token and behind it."""
    requests, count = run.requests, len(rows)
    edges = (run.scheduled_ns[rows], run.first_ns[rows], run.last_ns[rows])
    told = {
        "prompt tokens": requests.prompt_tokens,
        "output tokens": requests.output_tokens,
        "begun again": run.preempted,
        "waited us": (run.scheduled_ns - requests.arrival_ns) // 1000,
    }

    def woven(*columns: Int64s) -> Int64s:
        found: Int64s = np.stack(columns, axis=1).ravel()
        return found

    return Slices(
        track=f"running {lane}",
        rank=None,
        names=(*(f"request {requests.names[at]}" for at in rows.tolist()), "to the first", "reply"),
        name=woven(np.arange(count), np.full(count, count), np.full(count, count + 1)),
        start_ns=woven(edges[0], edges[0], edges[1]),
        end_ns=woven(edges[2], edges[1], edges[2]),
        arguments=tuple(
            (key, tuple(text for one in values[rows].tolist() for text in (str(one), "", "")))
            for key, values in told.items()
        ),
    )


def _counter(what: tuple[str, str, Int64s], start_ns: Int64s, ends: Int64s) -> Counter:
    """Of each step while it lasts, and nothing where the engine has nothing to do."""
    name, unit, values = what
    idle = np.flatnonzero(start_ns[1:] > np.maximum.accumulate(ends)[:-1])
    at_ns = np.concatenate([start_ns, ends[idle], ends[-1:]])
    known: Float64s = np.concatenate([values, np.zeros(len(idle) + 1)])
    order = np.argsort(at_ns, kind="stable")
    return Counter(name, None, unit, at_ns[order], known[order])
