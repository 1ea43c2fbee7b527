"""Edits of durations and dependencies: kernels, launches, synchronisations, loading, overlap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foretrace.base import ScenarioError
from foretrace.whatif.changes.change import (
    AttentionKernel,
    Delayed,
    DurationChange,
    Fused,
    Graphed,
    Loading,
    SlowerNetwork,
    Takes,
    Times,
    Unsynchronised,
)
from foretrace.whatif.changes.selection import Selection
from foretrace.whatif.scenario import Scenario

EVERYTHING = Selection()


def _with(scenario: Scenario, change: DurationChange) -> Scenario:
    return replace(scenario, changes=(*scenario.changes, change))


@dataclass(frozen=True)
class Speed:
    """Selected work runs `factor` times as fast: 1.25 takes a fifth less, 0.5 twice as long."""

    factor: float
    of: Selection = field(default=EVERYTHING)

    def __post_init__(self) -> None:
        """Refuse what is no speed."""
        if not 0 < self.factor < float("inf"):
            raise ScenarioError(f"a speed must be above 0, got {self.factor}")

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this work faster or slower."""
        return _with(scenario, Times(self.of, 1 / self.factor))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`gemm x 1.25 as fast`, `all work rank 1 takes x 1.1 as long`."""
        if self.factor < 1:
            return f"{self.of} takes x {1 / self.factor:g} as long"
        return f"{self.of} x {self.factor:g} as fast"


@dataclass(frozen=True)
class Lasts:
    """Every selected operation takes so long; of several, the one given last counts."""

    duration_ns: int
    of: Selection = field(default=EVERYTHING)

    def __post_init__(self) -> None:
        """Refuse what is no duration."""
        if self.duration_ns < 0:
            raise ScenarioError(f"a duration must be 0 or more, got {self.duration_ns} ns")

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this duration."""
        return _with(scenario, Takes(self.of, self.duration_ns))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`*loss* takes 0.2 ms each`."""
        return f"{self.of} takes {self.duration_ns / 1e6:g} ms each"


@dataclass(frozen=True)
class Delay:
    """Before selected work passes more time: of the host, before its call, or of the device."""

    extra_ns: int
    of: Selection = field(default=EVERYTHING)
    once_per_block: bool = True
    on_device: bool = False

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this delay."""
        change = Delayed(self.of, self.extra_ns, self.once_per_block, self.on_device)
        return _with(scenario, change)

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`each block of all work layer forward rank 1 begins 2 ms later on the host`."""
        what = "each block of " if self.once_per_block else ""
        how = "later" if self.extra_ns >= 0 else "sooner"
        where = "device" if self.on_device else "host"
        time = f"{abs(self.extra_ns) / 1e6:g} ms"
        return f"{what}{self.of} begins {time} {how} on the {where}"


@dataclass(frozen=True)
class Fuse:
    """Runs of selected kernels become one, of `factor` times their summed time."""

    of: Selection
    factor: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no share of a time."""
        if not 0 <= self.factor < float("inf"):
            raise ScenarioError(f"a factor must be 0 or more, got {self.factor}")

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with these kernels fused."""
        return _with(scenario, Fused(self.of, self.factor))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`*elementwise* fused, x 0.5 of their time`; what it cannot know."""
        known = "" if self.factor != 1 else " (memory traffic that fusing saves is not known)"
        return f"{self.of} fused, x {self.factor:g} of their time{known}"


@dataclass(frozen=True)
class Attention:
    """Attention is one fused kernel (FlashAttention), or products and a softmax.

    What the other kind takes is a cost model's answer, so that a machine must be stated. It
    knows shapes; not dropout and masks in kernels of their own, the memory of scores, or host
    time of more or other launches than were recorded.
    """

    flash: bool
    of: Selection = field(default=EVERYTHING)
    is_causal: bool | None = None  # where shapes do not tell

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this attention."""
        return _with(scenario, AttentionKernel(self.flash, self.of, self.is_causal))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`attention as one fused kernel, costed from its shapes`; what it cannot know."""
        if self.flash:
            return "attention as one fused kernel, costed from its shapes"
        return (
            "attention as products and a softmax, costed from their shapes (without dropout, the "
            "memory of scores and the host time of more launches)"
        )


@dataclass(frozen=True)
class CudaGraphs:
    """The launches of selected work cost the host nothing."""

    of: Selection = field(default=EVERYTHING)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with these launches gone."""
        return _with(scenario, Graphed(self.of))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`all work launched as CUDA graphs`; what it cannot know."""
        return f"{self.of} launched as CUDA graphs (if it can be captured: shapes stay the same)"


@dataclass(frozen=True)
class RemoveSync:
    """The host does not wait for the device at calls of this name."""

    calls: str = "*"
    of: Selection = field(default=EVERYTHING)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario without these waits."""
        return _with(scenario, Unsynchronised(self.of, self.calls))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`the host does not wait at cudaStreamSynchronize`."""
        return f"the host does not wait at {_calls(self.calls, self.of)}"


@dataclass(frozen=True)
class MoveSync:
    """At calls of this name the host waits for what they waited for so many steps before.

    So does a program that reads a step's loss one step later.
    """

    steps: int = 1
    calls: str = "*"
    of: Selection = field(default=EVERYTHING)

    def __post_init__(self) -> None:
        """Refuse what moves nothing."""
        if type(self.steps) is not int or self.steps < 1:
            raise ScenarioError(
                f"steps must be a whole number from 1 on, got {self.steps!r}; to wait for nothing "
                "at all, remove the synchronisation"
            )

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with these waits moved."""
        return _with(scenario, Unsynchronised(self.of, self.calls, self.steps))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`the host waits at cudaStreamSynchronize for what it waited for 1 step before`."""
        unit = "step" if self.steps == 1 else "steps"
        calls = _calls(self.calls, self.of)
        return f"the host waits at {calls} for what it waited for {self.steps} {unit} before"


def _calls(calls: str, of: Selection) -> str:
    named = "all calls" if calls == "*" else calls
    return named if of == EVERYTHING else f"{named} of {of}"


@dataclass(frozen=True)
class DataLoading:
    """Getting a step's data takes so long, or so many times as long."""

    duration_ns: int | None = None
    factor: float = 1.0
    ranks: tuple[int, ...] | None = None  # `None`: all

    def __post_init__(self) -> None:
        """Refuse a length and a factor together, and what is neither."""
        if self.duration_ns is not None and self.factor != 1:
            raise ScenarioError(
                f"data loading takes {self.duration_ns} ns or {self.factor:g} times as long: "
                "state one of them"
            )
        if (self.duration_ns or 0) < 0 or not 0 <= self.factor < float("inf"):
            raise ScenarioError(
                f"data loading must take 0 or more, got {self.duration_ns} ns, x {self.factor}"
            )

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this loading time."""
        return _with(scenario, Loading(self.duration_ns, self.factor, self.ranks))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`data loading takes 5 ms on rank 1`."""
        where = "" if self.ranks is None else " on rank " + ",".join(map(str, self.ranks))
        if self.duration_ns is None:
            return f"data loading x {self.factor:g}{where}"
        return f"data loading takes {self.duration_ns / 1e6:g} ms{where}"


@dataclass(frozen=True)
class Network:
    """Transfers take a fixed time more, or so many times as long, without a machine's figures."""

    extra_ns: int = 0
    factor: float = 1.0
    groups: tuple[str, ...] = ()  # "dp", or a process group as the recording calls it; none: all

    def __post_init__(self) -> None:
        """Refuse what is no factor."""
        if not 0 <= self.factor < float("inf"):
            raise ScenarioError(f"a factor must be 0 or more, got {self.factor}")

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this network."""
        return _with(scenario, SlowerNetwork(self.groups, self.extra_ns, self.factor))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`transfers of dp x 2 + 1 ms`."""
        which = ", ".join(self.groups) or "all groups"
        return f"transfers of {which} x {self.factor:g} + {self.extra_ns / 1e6:g} ms"
