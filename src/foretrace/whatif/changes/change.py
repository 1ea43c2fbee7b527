"""Changes as data, in the order in which they are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from foretrace.whatif.changes.selection import Selection


@dataclass(frozen=True)
class AttentionKernel:
    """Attention is one fused kernel, or products and a softmax; a cost model says how long.

    Stated last wins.
    """

    is_fused: bool
    selection: Selection = field(default=Selection())
    is_causal: bool | None = None  # where shapes do not tell; `None`: then it counts as not


@dataclass(frozen=True)
class Takes:
    """Every selected operation takes so long; stated last wins."""

    selection: Selection
    duration_ns: int


@dataclass(frozen=True)
class Times:
    """Selected work takes `factor` times as long; several on one node multiply."""

    selection: Selection
    factor: float


@dataclass(frozen=True)
class SlowerNetwork:
    """Every transfer of collectives of some groups takes longer: a factor, then a delay.

    For what no machine describes; a described network is changed by its figures instead.
    """

    groups: tuple[str, ...] = ()  # of `foretrace.workload.Group`, or process groups; none: all
    extra_ns: int = 0
    factor: float = 1.0


@dataclass(frozen=True)
class Delayed:
    """Before every selected operation (or before each block of it) passes so much more time.

    On the host, before the call that launches it, or on the device. Below zero: less, but nothing
    takes less than no time. Several on one operation add up.
    """

    selection: Selection
    extra_ns: int
    once_per_block: bool = False
    on_device: bool = False


@dataclass(frozen=True)
class Fused:
    """Runs of selected kernels that follow each other on a stream become one, of so much time.

    `factor`: share of their summed duration that is left; launches and gaps between them go. A
    run ends with its block, and where another stream or the host waits for it, or it for them.
    """

    selection: Selection
    factor: float


@dataclass(frozen=True)
class Graphed:
    """The selected work's launches cost the host nothing: CUDA graphs.

    Of each run of them without another launch or a wait between, the first stays: it launches
    the graph.
    """

    selection: Selection


@dataclass(frozen=True)
class Unsynchronised:
    """The host does not wait for the device at selected calls (all calls, if nothing is said).

    With `steps` it waits for what the same call waited for so many steps before: a value that is
    read later. Kernels and families select what is waited for.
    """

    selection: Selection
    calls: str = "*"  # pattern of the runtime calls' names: "cudaStreamSynchronize"
    steps: int = 0  # 0: it never waits


@dataclass(frozen=True)
class Loading:
    """Getting a step's data takes so long instead, on the host; `None`: `factor` times as long.

    Of several lengths the one stated last wins; factors multiply.
    """

    duration_ns: int | None = None
    factor: float = 1.0
    ranks: tuple[int, ...] | None = None  # `None`: all


DurationChange = (
    AttentionKernel
    | Takes
    | Times
    | SlowerNetwork
    | Delayed
    | Fused
    | Graphed
    | Unsynchronised
    | Loading
)
