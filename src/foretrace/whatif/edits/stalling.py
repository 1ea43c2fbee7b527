"""`NoStalls`: calls of host threads that stood still take what they usually take."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from foretrace.analyze import EVERYTHING, StallKind, is_meant, nearest, stalls_among
from foretrace.base import ScenarioError
from foretrace.whatif.edits.costed import CostedJob
from foretrace.whatif.edits.edit import EditTurn, Holds, Key, StatedValues, WorkEdit

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

# The others have edits of their own.
_MEANT = tuple(
    kind
    for kind in StallKind
    if kind not in {StallKind.NONE, StallKind.DATA, StallKind.SYNCHRONISATION}
)


@dataclass(frozen=True)
class NoStalls(WorkEdit):
    """Every stall of a host thread is gone: the call takes its usual time, a collection none."""

    # As `foretrace stalls` calls them, alternatives with `|` between: "garbage collection".
    kinds: str = EVERYTHING

    WITHOUT_STALLS = Key(
        "without_stalls",
        Holds.NAMES,
        "Kinds of stalls that host threads no longer have: all.",
        "true, or a kind of stalls as `foretrace stalls` calls it",
        "KIND",
    )
    KEYS = (WITHOUT_STALLS,)
    TURNS = (EditTurn.LENGTHS,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[NoStalls]:
        """One for each kind."""
        for kinds in stated.names(cls.WITHOUT_STALLS):
            yield cls(kinds)

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """What it takes away."""
        if self.kinds == EVERYTHING:
            return "no call of a host thread takes longer than it usually does"
        return f"no host thread stalls for {self.kinds.replace('|', ' or ')}"

    def check(self, job: CostedJob) -> None:  # noqa: ARG002  as every edit
        """The kind must be one."""
        if not self._meant():
            told = nearest(self.kinds, [kind.words for kind in _MEANT])
            raise ScenarioError(f"no stall here is called {self.kinds!r}: {told}")

    def made(self, job: CostedJob, turn: EditTurn) -> CostedJob:  # noqa: ARG002  it has one
        """Usual times where there was a stall.

        Raises:
            ScenarioError: if there was none.
        """
        found = stalls_among(job.graph, np.rint(job.duration_ns).astype(np.int64))
        meant = np.isin(found.kind, self._meant())
        if not meant.any():
            kinds = "" if self.kinds == EVERYTHING else f" for {self.kinds.replace('|', ' or ')}"
            raise ScenarioError(
                f"no host thread stood still{kinds}, so nothing can be taken away: `foretrace "
                "stalls` says what is looked for."
            )
        extra_ns = np.zeros(len(job.duration_ns))
        extra_ns[found.node[meant]] = (found.usual_ns - found.took_ns)[meant]
        return job.plus(extra_ns)

    def _meant(self) -> tuple[StallKind, ...]:
        if self.kinds == EVERYTHING:
            return _MEANT
        return tuple(kind for kind in _MEANT if is_meant(self.kinds, kind.words))
