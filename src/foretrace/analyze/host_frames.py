"""`HostFrames`: what host threads were inside of: annotations, operators, Python functions, alarms.

In a graph a host thread is its calls and the time between them; what encloses them is in the files
alone. In: a recording and its ranks' traces. Out: the frames on the recording's timeline; of too
many the longest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from foretrace.answer import Stretch
from foretrace.base import Int32s, Int64s, UInt8s
from foretrace.graph import Recording
from foretrace.trace import Category, Trace

_CATEGORIES = (Category.OPERATOR, Category.ANNOTATION, Category.PYTHON)
# The first of them as files have them; what an optimizer's monitor saw is a file of its own.
FRAME_KINDS = ("framework operator", "annotation", "Python function", "optimizer", "alarm")
_KIND_OF_CATEGORY = np.zeros(256, np.uint8)
for _kind, _category in enumerate(_CATEGORIES):
    _KIND_OF_CATEGORY[_category] = _kind


@dataclass(frozen=True)
class HostFrames:
    """One row per frame."""

    names: tuple[str, ...]
    rank: Int32s  # int32[frames]
    kind: UInt8s  # uint8[frames], position in `FRAME_KINDS`
    name: Int32s  # int32[frames], position in `names`
    start_ns: Int64s  # int64[frames]
    end_ns: Int64s  # int64[frames]
    num_left_out: int = 0
    longest_left_out_ns: int = 0

    def __len__(self) -> int:
        """Number of frames."""
        return len(self.rank)

    def with_span(self, name: str, kind: str, where: Stretch) -> HostFrames:
        """Also this one."""
        return replace(
            self,
            names=(*self.names, name),
            rank=np.append(self.rank, np.int32(where.rank)),
            kind=np.append(self.kind, np.uint8(FRAME_KINDS.index(kind))),
            name=np.append(self.name, np.int32(len(self.names))),
            start_ns=np.append(self.start_ns, where.begin_ns),
            end_ns=np.append(self.end_ns, where.end_ns),
        )


def host_frames(
    recording: Recording, trace_by_rank: Mapping[int, Trace], *, max_frames: int
) -> HostFrames:
    """The frames of these ranks' host threads that lie on the timeline, at most so many."""
    place: dict[str, int] = {}
    columns = []
    last_ns = int(recording.measured.end_ns.max(initial=0))
    for rank, trace in sorted(trace_by_rank.items()):
        rows = np.flatnonzero(np.isin(trace.category, _CATEGORIES))
        start_ns = recording.on_timeline(rank, trace.start_ns[rows])
        end_ns = recording.on_timeline(rank, trace.start_ns[rows] + trace.duration_ns[rows])
        inside = (end_ns > 0) & (start_ns < last_ns)
        used, name = np.unique(trace.name[rows[inside]], return_inverse=True)
        pooled = [place.setdefault(trace.strings[one], len(place)) for one in used.tolist()]
        columns.append(
            (
                np.full(int(inside.sum()), rank, np.int32),
                _KIND_OF_CATEGORY[trace.category[rows[inside]]],
                np.array(pooled, np.int32)[name.reshape(-1)],
                np.maximum(start_ns[inside], 0),
                np.minimum(end_ns[inside], last_ns),
            )
        )
    rank_of, kind, name, start_ns, end_ns = map(np.concatenate, zip(*columns, strict=True))
    longest = np.argsort(start_ns - end_ns, kind="stable")
    kept = np.sort(longest[:max_frames])
    left_out = longest[max_frames:]
    return HostFrames(
        tuple(place),
        rank_of[kept],
        kind[kept],
        name[kept].astype(np.int32),
        start_ns[kept],
        end_ns[kept],
        len(left_out),
        int((end_ns - start_ns)[left_out].max(initial=0)),
    )
