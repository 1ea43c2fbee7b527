"""What a module's parts keep for the backward pass, need for a moment, and hand on.

Memory lives from the operator that makes it to the last one that reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foretrace.capture.module.execution import ModuleRun
from foretrace.capture.module.recorder import Event
from foretrace.operators import parsed_shapes


@dataclass(frozen=True)
class Moments:
    """Bytes by part; parts are numbered from -1."""

    kept_bytes: Mapping[int, int]  # from the forward pass to the backward pass
    forward_bytes: Mapping[int, int]  # beside that, at the worst moment of the forward pass
    backward_bytes: Mapping[int, int]  # of the backward pass; gradients of parameters left out
    crossing: Mapping[int, frozenset[int]]  # storages from parts before, whose gradients are wanted
    dtype_of: Mapping[int, str]  # of storages that cross


def moments(run: ModuleRun, part_of_tick: Sequence[int]) -> Moments:
    """Follow every piece of memory through both passes."""
    events, sizes = run.recorder.events, run.recorder.num_bytes
    made = _first_written(events, run.constants)
    last = {one: at for at, event in enumerate(events) for one in (*event.reads, *event.writes)}
    home = {one: part_of_tick[events[at].tick] for one, at in made.items()}
    kept: dict[int, int] = {}
    for one, tick in run.recorder.saved.items():
        if one not in run.constants:
            kept[one] = part_of_tick[tick]
    for one, at in made.items():  # what is kept to be computed again, and not by autograd
        if not events[at].is_backward and events[last[one]].is_backward:
            kept.setdefault(one, home[one])
    kept_bytes: dict[int, int] = defaultdict(int)
    for one, part in kept.items():
        kept_bytes[part] += sizes.get(one, 0)
    peaks = _peaks(run, part_of_tick, made, last, frozenset(kept) | run.gradients)
    crossing, dtype_of = _crossing(events, part_of_tick, home)
    return Moments(kept_bytes, peaks[False], peaks[True], crossing, dtype_of)


def _first_written(events: Sequence[Event], constants: frozenset[int]) -> dict[int, int]:
    """The event that makes each storage."""
    found: dict[int, int] = {}
    for at, event in enumerate(events):
        for one in event.writes:
            if one not in constants:
                found.setdefault(one, at)
    return found


def _peaks(
    run: ModuleRun,
    part_of_tick: Sequence[int],
    made: Mapping[int, int],
    last: Mapping[int, int],
    apart: frozenset[int],
) -> dict[bool, dict[int, int]]:
    """The most bytes at once by pass and part, without what is counted apart."""
    events, sizes = run.recorder.events, run.recorder.num_bytes
    ends: dict[int, list[int]] = defaultdict(list)
    for one, at in last.items():
        if one in made and one not in apart:
            ends[at].append(one)
    peaks: dict[bool, dict[int, int]] = {False: defaultdict(int), True: defaultdict(int)}
    now = 0
    for at, event in enumerate(events):
        now += sum(
            sizes[one] for one in set(event.writes) if made.get(one) == at and one not in apart
        )
        part = part_of_tick[event.tick]
        own = peaks[event.is_backward]
        own[part] = max(own[part], now)
        now -= sum(sizes[one] for one in ends[at])
    return peaks


def _crossing(
    events: Sequence[Event], part_of_tick: Sequence[int], home: Mapping[int, int]
) -> tuple[dict[int, frozenset[int]], dict[int, str]]:
    """Storages that pass from earlier parts into or through each part."""
    found: dict[int, set[int]] = defaultdict(set)
    dtype_of: dict[int, str] = {}
    for event in events:
        part = part_of_tick[event.tick]
        if event.is_backward or not event.needs:
            continue
        for one in event.needs:
            for each in range(home.get(one, part) + 1, part + 1):
                found[each].add(one)
            if home.get(one, part) < part:
                dtype_of.setdefault(one, _dtype(event, one))
    return defaultdict(frozenset, {part: frozenset(own) for part, own in found.items()}), dtype_of


def _dtype(event: Event, storage: int) -> str:
    shapes = parsed_shapes(event.signature)
    if shapes is None:
        return ""
    at = event.reads.index(storage)
    tensors = [one for one in shapes.inputs if one is not None]
    flat = [each for one in tensors for each in (one if isinstance(one, tuple) else (one,))]
    # A copy's signature begins with what is written.
    at = at + 1 if event.name == "aten::copy_" and len(event.reads) < len(flat) else at
    return flat[at].dtype if at < len(flat) else ""
