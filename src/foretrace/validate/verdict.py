"""`ReplayVerdict`: whether a replay is to be believed, and what is missing where it is not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

from foretrace.answer import Plain, component_text, percent_text
from foretrace.graph import (
    BEFORE,
    CUT_OFF,
    DEVICE_WORK,
    GRAPH_KERNELS,
    LOST_KERNELS,
    LOST_LAUNCHES,
    LOST_WORK,
    EdgeKind,
    Finding,
    Recording,
)

if TYPE_CHECKING:
    from foretrace.validate.results import DurationMix, ReplaySummary

END_PERCENT = 0.5  # of the step, that its end may be off on any rank
PART_PERCENT = 1.0  # of the step, that any part of it may be off
MOST_PINNED = 0.1  # of device operations, that may start when they did for want of a launch
MOST_ESTIMATED = 0.5  # of the replayed time, that may rest on work that was not recorded

# What makes a replay wrong, what weighs most first; other findings are no excuse.
_CAUSES = (
    CUT_OFF,
    GRAPH_KERNELS,
    LOST_WORK,
    LOST_LAUNCHES,
    LOST_KERNELS,
    "launches",
    BEFORE,
    "clock",
    "collectives",
    "ghosts",
    "streams",
    "launch queue",
)
_MAX_CAUSES = 2


class Trust(StrEnum):
    """What a replay that was held against its recording deserves."""

    BELIEVED = "believed"
    UNTESTED = "untested"  # it could not have been wrong
    DOUBTED = "doubted"


@dataclass(frozen=True)
class ReplayVerdict(Plain):
    """Said before any number of a replay."""

    trust: Trust
    reasons: tuple[str, ...]  # sentences, what was found first, then what is missing

    @property
    def sentences(self) -> tuple[str, ...]:
        """The verdict in words, then the reasons."""
        said = {
            Trust.BELIEVED: "this replay can be believed",
            Trust.UNTESTED: "this replay proves little",
            Trust.DOUBTED: "do not believe this replay",
        }
        first, *others = self.reasons
        return (f"{said[self.trust]}: {first}", *others)


def verdict_of(recording: Recording, summary: ReplaySummary, mix: DurationMix) -> ReplayVerdict:
    """What a replay with these errors deserves."""
    wrong = tuple(_wrong(summary))
    if wrong:
        missing = _missing(recording.findings)
        return ReplayVerdict(Trust.DOUBTED, (f"{', and '.join(wrong)}.", *missing))
    untested = tuple(_untested(recording, mix))
    if untested:
        return ReplayVerdict(Trust.UNTESTED, untested)
    end = percent_text(summary.worst_step_error_percent)
    part = percent_text(summary.worst_component_error_percent)
    held = f"every step ends within {end} of what was measured, its parts are within {part}."
    return ReplayVerdict(Trust.BELIEVED, (held,))


def _wrong(summary: ReplaySummary) -> Iterator[str]:
    end, part = summary.worst_step_error_percent, summary.worst_component_error_percent
    if end > END_PERCENT:
        yield f"a step ends {percent_text(end)} off what was measured ({END_PERCENT} % is allowed)"
    if part > PART_PERCENT:
        yield (
            f"{component_text(summary.worst_component)} is {percent_text(part)} of a step off "
            f"({PART_PERCENT:g} % is allowed)"
        )


def _missing(findings: Sequence[Finding]) -> Iterator[str]:
    known = [one for topic in _CAUSES for one in findings if one.topic == topic]
    yield from (f"{one.topic}: {one.text}" for one in known[:_MAX_CAUSES])
    if not known:
        yield "why is not known: the recording seems complete. `foretrace draw` shows what waits."


def _untested(recording: Recording, mix: DurationMix) -> Iterator[str]:
    if not recording.measured.is_measured:
        yield "the files do not say when anything happened, so there is nothing to hold it against."
        return
    pinned = _pinned_share(recording)
    if pinned > MOST_PINNED:
        yield (
            f"{percent_text(100 * pinned)} of the device operations have no recorded launch and "
            "start when they did, so that most of the measurement is repeated."
        )
    unrecorded = _unrecorded_share(recording)
    if unrecorded > MOST_PINNED:
        yield (
            f"unrecorded device work, {percent_text(100 * unrecorded)} of the recorded time over "
            "all streams, is as long as measured."
        )
    if mix.estimated > MOST_ESTIMATED:
        yield (
            f"{percent_text(100 * mix.estimated)} of the replayed time rests on ranks and work "
            "that were not recorded; it is what remains of the measured time."
        )
    yield from (one.text for one in recording.findings if one.topic == "device")


def _pinned_share(recording: Recording) -> float:
    """Device operations that nothing but unrecorded work starts, of all."""
    graph = recording.graph
    device = graph.is_device
    into = graph.edge_target
    is_pinned = np.zeros(graph.num_nodes, np.bool_)
    is_pinned[into[graph.edge_kind == EdgeKind.GHOST]] = True
    is_pinned[into[graph.edge_kind == EdgeKind.LAUNCH]] = False
    return float((is_pinned & device).sum() / max(int(device.sum()), 1))


def _unrecorded_share(recording: Recording) -> float:
    """Time that streams stand still for what was not recorded, of the recorded time."""
    measured = recording.measured
    graph = recording.graph
    is_missing = np.array([name == DEVICE_WORK for name in graph.names], np.bool_)[graph.name]
    recorded_ns = int(measured.end_ns.max() - measured.start_ns.min()) * len(graph.ranks)
    return int(graph.measured_ns[is_missing].sum()) / max(recorded_ns, 1)
