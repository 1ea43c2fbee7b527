"""Edits of durations and dependencies: kernels, launches, synchronisations, loading, overlap."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foretrace.base import ScenarioError
from foretrace.whatif.changes.change import (
    Delayed,
    DurationChange,
    Fused,
    Graphed,
    Loading,
    SlowerNetwork,
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
        """`gemm x 1.25 as fast`."""
        return f"{self.of} x {self.factor:g} as fast"


@dataclass(frozen=True)
class Delay:
    """Before selected work passes more host or device time."""

    extra_ns: int
    of: Selection = field(default=EVERYTHING)
    once_per_block: bool = True

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this delay."""
        return _with(scenario, Delayed(self.of, self.extra_ns, self.once_per_block))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`layer forward rank 1 delayed by 2 ms each`."""
        return f"{self.of} delayed by {self.extra_ns / 1e6:g} ms each"


@dataclass(frozen=True)
class Fuse:
    """Runs of selected kernels become one, of `factor` times their summed time."""

    of: Selection
    factor: float = 1.0

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with these kernels fused."""
        return _with(scenario, Fused(self.of, self.factor))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`*elementwise* fused, x 0.5 of their time`."""
        return f"{self.of} fused, x {self.factor:g} of their time"


@dataclass(frozen=True)
class CudaGraphs:
    """The launches of selected work cost the host nothing."""

    of: Selection = field(default=EVERYTHING)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with these launches gone."""
        return _with(scenario, Graphed(self.of))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`all work launched as CUDA graphs`."""
        return f"{self.of} launched as CUDA graphs"


@dataclass(frozen=True)
class RemoveSync:
    """The host does not wait for the device at calls of this name."""

    calls: str = "*"
    of: Selection = field(default=EVERYTHING)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario without these waits."""
        return _with(scenario, Unsynchronised(self.of, self.calls))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`no waiting at cudaStreamSynchronize`."""
        return f"no waiting at {self.calls}"


@dataclass(frozen=True)
class DataLoading:
    """Getting a step's data takes so long, or so many times as long."""

    duration_ns: int | None = None
    factor: float = 1.0

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this loading time."""
        return _with(scenario, Loading(self.duration_ns, self.factor))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`data loading takes 5 ms`."""
        if self.duration_ns is None:
            return f"data loading x {self.factor:g}"
        return f"data loading takes {self.duration_ns / 1e6:g} ms"


@dataclass(frozen=True)
class Network:
    """Transfers take a fixed time more, or so many times as long, without a machine's figures."""

    extra_ns: int = 0
    factor: float = 1.0
    groups: tuple[str, ...] = ()

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this network."""
        return _with(scenario, SlowerNetwork(self.groups, self.extra_ns, self.factor))

    def sentence(self, before: Scenario) -> str:  # noqa: ARG002  as every edit
        """`transfers of dp x 2 + 1 ms`."""
        which = ", ".join(self.groups) or "all groups"
        return f"transfers of {which} x {self.factor:g} + {self.extra_ns / 1e6:g} ms"
