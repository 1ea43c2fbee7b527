"""`Reasons`: why ranks got nothing done, each distinct reason once, for slices to point at."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import UNRECORDED_RANK, IdleCause, IdleCauses
from foretrace.base import Int64s
from foretrace.report.subjects import shortened


@dataclass(frozen=True)
class Reasons:
    """Numbered from `first` on: after a graph's nodes, so that one number is either."""

    first: int
    facets: tuple[tuple[str, str, str, str], ...]  # texts by `FACETS`
    number_by_title: Mapping[str, Int64s]  # int64[intervals] of each `IdleCauses`


def reasons(idle_by_title: Mapping[str, IdleCauses], first: int) -> Reasons:
    """The reasons of all intervals, of all titles."""
    pool: dict[tuple[str, str, str, str], int] = {}
    number_by_title = {}
    for title, idle in idle_by_title.items():
        columns = np.stack([idle.cause, idle.culprit_rank, idle.subject], axis=1).astype(np.int64)
        rows, of_interval = np.unique(columns, axis=0, return_inverse=True)
        numbers = [
            pool.setdefault(_facets(idle, cause, culprit, subject), len(pool))
            for cause, culprit, subject in rows.tolist()
        ]
        number_by_title[title] = first + np.array(numbers, np.int64)[of_interval.reshape(-1)]
    return Reasons(first, tuple(pool), number_by_title)


def _facets(idle: IdleCauses, cause: int, culprit: int, subject: int) -> tuple[str, str, str, str]:
    words = IdleCause(cause).words
    who = "not recorded" if culprit == UNRECORDED_RANK else f"of rank {culprit}"
    return (f"{words} {who}", shortened(idle.subjects[subject]), f"idle: {words}", "")
