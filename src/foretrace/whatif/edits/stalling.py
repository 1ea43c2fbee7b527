"""`NoStalls`: calls of host threads that stood still take what they usually take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import StallKind, stalls_among
from foretrace.base import ScenarioError
from foretrace.whatif.edits.costed import CostedJob
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

# They have edits of their own.
_NOT_MEANT = (StallKind.DATA, StallKind.SYNCHRONISATION)


@dataclass(frozen=True)
class NoStalls(WorkEdit):
    """Every stall of a host thread is gone: the call takes its usual time, a collection none."""

    WITHOUT_STALLS = Key(
        "without_stalls",
        Holds.FLAG,
        "Host threads no longer stand still: calls take their usual time.",
        "true",
    )
    KEYS = (WITHOUT_STALLS,)
    TURNS = (EditTurn.LENGTHS,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[NoStalls]:
        """If it is stated as true."""
        if stated.fields(cls.KEYS).get(cls.WITHOUT_STALLS.name):
            yield cls()

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """What it takes away."""
        return "no call of a host thread takes longer than it usually does"

    def check(self, job: CostedJob) -> None:
        """Nothing here: it finds its own calls, and says what it found."""

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Usual times where there was a stall.

        Raises:
            ScenarioError: if there was none.
        """
        found = stalls_among(job.graph, np.rint(job.duration_ns).astype(np.int64))
        meant = ~np.isin(found.kind, _NOT_MEANT)
        if not meant.any():
            raise ScenarioError(
                "no host thread stood still, so nothing can be taken away: `foretrace stalls` says "
                "what is looked for."
            )
        extra_ns = np.zeros(len(job.duration_ns))
        extra_ns[found.node[meant]] = (found.usual_ns - found.took_ns)[meant]
        return job.plus(extra_ns)
