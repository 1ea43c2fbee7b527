"""Host time of what is launched, and lags between device operations: the stated rule.

Every operation is launched by a call of its own, and the host does nothing else. It runs ahead of
the device as far as it can, so launches show where they are slower than the work they launch.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from foretrace.base import WorkloadError
from foretrace.graph import DEFAULT_NS, EdgeConstant, EdgeKind
from foretrace.workload.plan.plan import Plan


@dataclass(frozen=True, kw_only=True)
class Launch:
    """Time that the host takes from one launch to the next, and what hand-overs take."""

    forward_ns: int  # per operator of a forward pass, recomputed ones too
    backward_ns: int  # per operator of a backward pass
    optimizer_ns: int  # per operator of the optimizer
    exchange_ns: int  # per communication
    lag_ns: Mapping[EdgeKind, int] = field(default_factory=dict)  # 0 if left out

    def slowed(self, times: float) -> Launch:
        """On a host that takes so many times as long; hand-overs are the device's."""
        taken = ("forward_ns", "backward_ns", "optimizer_ns", "exchange_ns")
        return replace(self, **{name: round(times * getattr(self, name)) for name in taken})

    @property
    def constants(self) -> tuple[EdgeConstant, ...]:
        """The lags as a graph states them: without samples of its own."""
        return tuple(
            EdgeConstant(kind, lag_ns, 0, lag_ns, lag_ns)
            for kind, lag_ns in sorted(self.lag_ns.items())
        )


# Nothing but the work itself takes time: closed forms hold exactly.
AT_ONCE = Launch(forward_ns=0, backward_ns=0, optimizer_ns=0, exchange_ns=0)

_LAG_NS = {
    kind: DEFAULT_NS[kind]
    for kind in (EdgeKind.LAUNCH, EdgeKind.STREAM, EdgeKind.INTER_STREAM, EdgeKind.WAKE)
}

_LAUNCHES = {
    # Median host time between launches of kernels, waits left out, in public traces without
    # Python stacks. Forward: 17.0 us (v100-single of HolisticTraceAnalysis), 16.3 us (Qwen1.5-0.5B
    # on H100, TraceLens). Backward: 19.5 us, optimizer: 7.6 us (v100-single). Traces with stacks
    # have 30 to 100 us. Communication took 2.8 (DLRM on 8 A100) and 1.9 (DDP on V100) times as
    # long as kernels of the same backward pass. The profiler's own time is in all of these.
    "eager": Launch(
        forward_ns=16_600,
        backward_ns=19_500,
        optimizer_ns=7_600,
        exchange_ns=45_000,
        lag_ns=_LAG_NS,
    ),
    # Kernels that follow each other without a framework's work between: the lowest tenth of the
    # same times is 5.3 to 8.7 us. No public trace of a compiled training step is known.
    "compiled": Launch(
        forward_ns=7_000,
        backward_ns=7_000,
        optimizer_ns=7_000,
        exchange_ns=45_000,
        lag_ns=_LAG_NS,
    ),
    # A recorded graph is launched at once.
    "graph": Launch(forward_ns=0, backward_ns=0, optimizer_ns=0, exchange_ns=0, lag_ns=_LAG_NS),
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


def launch_of(plan: Plan) -> Launch:
    """The rule that a plan names, on the host that it says."""
    said = plan.implementation
    found = launch_named(said.launch)
    return found if said.launch_times is None else found.slowed(said.launch_times)
