"""What the analyses found in a timeline, as tracks to draw beside it."""

from __future__ import annotations

import numpy as np

from foretrace.analyze import (
    UNRECORDED_RANK,
    CriticalPath,
    IdleCause,
    IdleCauses,
    PieceKind,
    Stillness,
    critical_path,
    idle,
    windows,
)
from foretrace.exchange import Slices, Track, cause_slices, memory_counters, path_slices
from foretrace.graph import Recording, Timeline


def found_tracks(timeline: Timeline, recording: Recording | None = None) -> tuple[Track, ...]:
    """The critical path of every step, why each rank was idle, and its memory if recorded."""
    memory: tuple[Track, ...] = ()
    if recording is not None and timeline.is_measured:
        memory = memory_counters(recording.memory)
    table = windows(timeline)
    if not len(table):
        return memory
    names = [table.step_names[step] for step in table.step.tolist()]
    paths = [critical_path(timeline, step=name) for name in names]
    return (_path_track(timeline, paths), *_idle_tracks(idle(timeline)), *memory)


def _path_track(timeline: Timeline, paths: list[CriticalPath]) -> Slices:
    """The steps' paths one after the other; where two steps overlap, the later one's rest."""
    begin_ns = np.concatenate([path.begin_ns for path in paths])
    end_ns = np.concatenate([path.end_ns for path in paths])
    begin_ns[1:] = np.maximum(begin_ns[1:], np.maximum.accumulate(end_ns)[:-1])
    kept = np.flatnonzero(begin_ns < end_ns)
    labels = [label for path in paths for label in path.labels()]
    return path_slices(
        timeline,
        np.concatenate([path.node for path in paths])[kept],
        is_work=np.concatenate([path.kind == PieceKind.WORK for path in paths])[kept],
        begin_ns=begin_ns[kept],
        end_ns=end_ns[kept],
        labels=[labels[piece] for piece in kept.tolist()],
    )


def _idle_tracks(idle: IdleCauses) -> tuple[Slices, ...]:
    culprits = zip(
        idle.kind.tolist(),
        idle.cause.tolist(),
        idle.rank.tolist(),
        idle.culprit_rank.tolist(),
        strict=True,
    )
    return cause_slices(
        idle.rank.astype(np.int64),
        begin_ns=idle.begin_ns,
        end_ns=idle.end_ns,
        causes=[_words(kind, IdleCause(cause), ranks) for kind, cause, *ranks in culprits],
        details=[idle.subjects[subject] for subject in idle.subject.tolist()],
    )


def _words(kind: int, cause: IdleCause, ranks: list[int]) -> str:
    """A cause as its slice is named: "host work", "waiting for rank 3: compute"."""
    rank, culprit = ranks
    if culprit == UNRECORDED_RANK:
        return "waiting for a rank that was not recorded"
    if culprit != rank:
        return f"waiting for rank {culprit}: {cause.words}"
    return f"waiting: {cause.words}" if kind == Stillness.WAITING else cause.words
