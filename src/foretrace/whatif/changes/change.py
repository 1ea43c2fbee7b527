"""Changes as data, in the order in which they are made."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.whatif.changes.selection import Selection


@dataclass(frozen=True)
class Times:
    """Selected work takes `factor` times as long; several on one node multiply."""

    selection: Selection
    factor: float


@dataclass(frozen=True)
class Takes:
    """Every selected operation takes so long; stated last wins."""

    selection: Selection
    duration_ns: int


@dataclass(frozen=True)
class Delayed:
    """Before every selected operation (or before each block of it) passes so much more time.

    Below zero: less, but no operation takes less than nothing.
    """

    selection: Selection
    extra_ns: int
    once_per_block: bool = False


@dataclass(frozen=True)
class Fused:
    """Runs of selected kernels that follow each other on a stream become one, of so much time.

    `factor`: share of their summed duration that is left; launches and gaps between them go.
    """

    selection: Selection
    factor: float


@dataclass(frozen=True)
class Graphed:
    """The selected work's launches cost the host nothing: CUDA graphs."""

    selection: Selection


@dataclass(frozen=True)
class Unsynchronised:
    """The host does not wait for the device at selected calls (all calls, if nothing is said)."""

    selection: Selection
    calls: str = "*"  # pattern of the runtime calls' names: "cudaStreamSynchronize"


@dataclass(frozen=True)
class Loading:
    """Getting a step's data takes so long instead, on the host; `None`: `factor` times as long."""

    duration_ns: int | None = None
    factor: float = 1.0


@dataclass(frozen=True)
class SlowerNetwork:
    """Every transfer of collectives of some groups takes longer: a delay and a factor.

    For what no machine describes; a described network is changed by its figures instead.
    """

    groups: tuple[str, ...] = ()  # of `foretrace.workload.Group`; none: all
    extra_ns: int = 0
    factor: float = 1.0


DurationChange = (
    Times | Takes | Delayed | Fused | Graphed | Unsynchronised | Loading | SlowerNetwork
)
