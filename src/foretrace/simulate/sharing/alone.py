"""`alone_ns`: how long work on shared cores would have taken on a core of its own.

While n threads work, each goes at the speed of n; its work is that speed, summed up over its time.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from foretrace.base import Bools, Float64s, Int64s
from foretrace.graph import Timeline
from foretrace.simulate.sharing.cores import OWN, SHARED, Cores, hosts_of, needs
from foretrace.simulate.sharing.shared import rounded


def alone_ns(timeline: Timeline, cores: Cores, *, hosts: Mapping[int, int] | None = None) -> Int64s:
    """Duration of every node on a core of its own, int64[nodes]; the inverse of a simulation.

    Waiting is no work: a node's time runs from its start, when it stops waiting, to its end.
    What needs no core keeps its time.

    Args:
        timeline: measured or simulated on hosts with these cores.
        cores: of every host.
        hosts: any number for the host of every rank; all ranks on one host, if left out.

    Raises:
        SimulationError: if a rank has no host.
    """
    graph = timeline.graph
    need = needs(graph, cores)
    host, num_hosts = hosts_of(graph, hosts)
    found = timeline.duration_ns
    for number in range(num_hosts):
        is_here = (host == number) & (need != OWN) & (found > 0)
        if is_here.any():
            _replace_alone(found, timeline, cores, is_here & (need == SHARED), is_here)
    return found


def _replace_alone(
    found: Int64s, timeline: Timeline, cores: Cores, is_shared: Bools, is_here: Bools
) -> None:
    """Write what the work of one host takes alone over its times."""
    weight = np.where(is_shared[is_here], 1.0, cores.transfers)
    start_ns, end_ns = timeline.start_ns[is_here], timeline.end_ns[is_here]
    moment_ns, running = _running(start_ns, end_ns, weight)
    speed = cores.speeds(running)
    for is_kind, share in ((is_shared, 1.0), (is_here & ~is_shared, cores.transfers)):
        progress = 1.0 - share * (1.0 - speed)
        done_ns = np.concatenate(([0.0], np.cumsum(np.diff(moment_ns) * progress[:-1])))
        first = np.searchsorted(moment_ns, timeline.start_ns[is_kind])
        last = np.searchsorted(moment_ns, timeline.end_ns[is_kind])
        found[is_kind] = rounded(done_ns[last] - done_ns[first])


def _running(start_ns: Int64s, end_ns: Int64s, weight: Float64s) -> tuple[Int64s, Float64s]:
    """Moments at which something begins or ends, rising, and how many work from each on."""
    moment_ns, place = np.unique(np.concatenate((start_ns, end_ns)), return_inverse=True)
    change = np.bincount(place, weights=np.concatenate((weight, -weight)), minlength=len(moment_ns))
    return moment_ns, np.maximum(np.cumsum(change), 0.0)
