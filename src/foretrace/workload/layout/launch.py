"""Host time of what is launched, and lags between device operations: the stated rule."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from foretrace.base import WorkloadError
from foretrace.graph import EdgeConstant, EdgeKind


@dataclass(frozen=True)
class Launch:
    """Time that the host takes to launch one operation, and what hand-overs take."""

    forward_ns: int  # per operator of the forward pass
    backward_ns: int  # per operator of the backward pass; recompute counts as forward
    optimizer_ns: int  # per operator of the optimizer
    exchange_ns: int  # per communication
    lag_ns: Mapping[EdgeKind, int] = field(default_factory=dict)  # 0 if left out

    @property
    def constants(self) -> tuple[EdgeConstant, ...]:
        """The lags, as a graph states them; not fitted to samples of its own."""
        return tuple(
            EdgeConstant(kind, lag_ns, 0, lag_ns, lag_ns)
            for kind, lag_ns in sorted(self.lag_ns.items())
        )


AT_ONCE = Launch(forward_ns=0, backward_ns=0, optimizer_ns=0, exchange_ns=0)

_LAGS = {
    EdgeKind.LAUNCH: 2_000,
    EdgeKind.STREAM: 1_200,
    EdgeKind.INTER_STREAM: 2_000,
    EdgeKind.WAKE: 7_000,
}
_LAUNCHES = {
    "eager": Launch(20_000, 20_000, 20_000, 40_000, _LAGS),
    "compiled": Launch(10_000, 10_000, 10_000, 40_000, _LAGS),
    "graph": Launch(0, 0, 0, 0, _LAGS),
}


def launch_named(name: str) -> Launch:
    """The rule of that name: eager, compiled or graph.

    Raises:
        WorkloadError: if there is none.
    """
    try:
        return _LAUNCHES[name]
    except KeyError:
        raise WorkloadError(
            f"no way to launch is called {name!r}: known are {', '.join(_LAUNCHES)}"
        ) from None
