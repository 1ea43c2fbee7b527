"""`RecordedLinks`: what the collectives of a recorded job, and of edited ones, ask of links.

A recorded transfer took its time beside whatever it met, so it goes at rate 1 as it was recorded,
and a level of links carries what the machine states or, if that is more, what recorded transfers
put on one of its links at once. The recorded job is then its replay, to the nanosecond, and an
edited one is slower where more meet than did. Groups of which no rank was recorded do what the
lowest recorded one of their kind and stages does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from foretrace.base import Float64s, Int64s, ScenarioError, joined_ranges
from foretrace.cost import step_costs
from foretrace.estimate import SharedLinks, StepTraffic, shared_links, step_traffic
from foretrace.graph import ExecutionGraph, Timeline
from foretrace.machine import Machine, MachineLinks, links_of, with_hosts
from foretrace.simulate import NO_FLOW
from foretrace.whatif.outcome import ScenarioOutcome
from foretrace.workload import Group, Plan, groups_of

_FULL = 1 + 1e-9
_TOLD = 1.01
_KINDS = (
    Group.TENSOR, Group.CONTEXT, Group.EXPERT, Group.EXPERT_TENSOR, Group.DATA, Group.SHARD,
    Group.REPLICA, Group.EXPERT_DATA, Group.EMBEDDING, Group.ALL,
)  # fmt: skip


@dataclass(frozen=True)
class RecordedLinks:
    """The links that a recorded job ran on."""

    machine: Machine
    carried: Float64s  # float64[levels], the most at once of what is stated; 1 at least
    notes: tuple[str, ...]

    @classmethod
    def of(cls, replayed: Timeline, plan: Plan, machine: Machine) -> RecordedLinks:
        """As wide as recorded transfers show.

        Args:
            replayed: the recorded job.
            plan: of it.
            machine: that it ran on; rank r at place r.

        Raises:
            MachineError: if the machine is too small, or has no links that can be told.
        """
        stated = links_of(with_hosts(machine, plan.num_ranks))
        graph, duration_ns = replayed.graph, replayed.graph.measured_ns
        found = _traffic(graph, duration_ns, plan, stated)
        carried = np.ones(len(stated.levels))
        np.maximum.at(carried, stated.level[found.own_link], _most_at_once(replayed, found))
        return cls(machine, carried, (*_wider(stated, carried), *_unsized(graph)))

    def traffic(
        self,
        graph: ExecutionGraph,
        duration_ns: Int64s,
        plan: Plan,
        *,
        machine: Machine,
        num_bytes: Int64s,
    ) -> StepTraffic:
        """What an edited job asks of a machine's links, its own or another one's.

        Args:
            graph: arranged.
            duration_ns: int64[nodes], of every node alone.
            plan: of the edited job.
            machine: that it is to run on.
            num_bytes: int64[collectives], after the edit.
        """
        found = links_of(with_hosts(machine, plan.num_ranks))
        if [one.name for one in links_of(self.machine).levels] == [
            one.name for one in found.levels
        ]:
            found = found.widened(self.carried)
        return _traffic(graph, duration_ns, plan, found, num_bytes)


def _wider(stated: MachineLinks, carried: Float64s) -> Iterator[str]:
    """Levels that carry more than is stated, both ways as one."""
    for at in range(0, len(stated.levels), 2):
        times = float(carried[at : at + 2].max())
        if times > _TOLD:
            yield (
                f"recorded transfers put up to {times:.2f} times on {stated.levels[at].name} of "
                f"what {stated.machine.name} states: they are taken to carry that"
            )


def _unsized(graph: ExecutionGraph) -> Iterator[str]:
    count = sum(graph.collectives.each(lambda one: one.num_bytes < 0 and len(one.ranks) > 1))
    if count:
        yield (
            f"{count:,} of {len(graph.collectives):,} transfers state no bytes, so they find their "
            "links empty: record with shapes (record_shapes=True)"
        )


def _traffic(
    graph: ExecutionGraph,
    duration_ns: Int64s,
    plan: Plan,
    links: MachineLinks,
    num_bytes: Int64s | None = None,
) -> StepTraffic:
    try:
        return step_traffic(
            graph,
            duration_ns,
            model=step_costs(links.machine.unshared()),
            links=links,
            groups=partial(represented_groups, plan=plan),
            num_bytes=num_bytes,
        )
    except ValueError as err:  # of places outside the machine
        raise ScenarioError(
            f"{err}: state a machine with as many chips as the job has ranks"
        ) from err


def represented_groups(graph: ExecutionGraph, plan: Plan) -> Sequence[Int64s]:
    """The groups that do what each make of a graph's collectives says, at the same time.

    Args:
        graph: of all of a plan's ranks, or of some that stand for the others.
        plan: that they run under.

    Returns:
        int64[groups, members] for each of `graph.collectives.makes`, its own first.
    """
    own = [tuple(sorted(one.ranks)) for one in graph.collectives.makes]
    if len(graph.ranks) >= plan.num_ranks:
        return [np.array([ranks], np.int64) for ranks in own]
    is_there = np.zeros(plan.num_ranks, np.bool_)
    is_there[[rank for rank in graph.ranks if rank < plan.num_ranks]] = True
    table = _Groups(plan)
    found: dict[tuple[int, ...], Int64s] = {}
    taken = set()
    for ranks in sorted(set(own)):
        found[ranks] = np.array([ranks], np.int64)
        key, alike = table.alike(ranks)
        if key not in taken:
            taken.add(key)
            away = alike[~is_there[alike].any(axis=1)]
            found[ranks] = np.concatenate([found[ranks], away])
    return [found[ranks] for ranks in own]


class _Groups:
    """All groups of a plan, by kind and stage."""

    def __init__(self, plan: Plan) -> None:
        self._pipelines = groups_of(plan, Group.PIPELINE)
        self._stage = np.empty(plan.num_ranks, np.int64)
        self._stage[self._pipelines] = np.arange(plan.pipeline)
        self._rows = {kind: groups_of(plan, kind) for kind in _KINDS}

    def alike(self, ranks: tuple[int, ...]) -> tuple[object, Int64s]:
        """What a group has in common with others, and these; int64[groups, members]."""
        if max(ranks) >= len(self._stage):
            return ranks, np.array([ranks], np.int64)
        stages = self._stage[list(ranks)]
        for kind, rows in self._rows.items():
            own = rows[(rows == ranks[0]).any(axis=1)]
            if own.shape[1] == len(ranks) and (own == ranks).all(axis=1).any():
                return (kind, *stages.tolist()), rows[(self._stage[rows] == stages).all(axis=1)]
        # A transfer is between two stages of every pipeline.
        own = self._pipelines[(self._pipelines == ranks[0]).any(axis=1)][0]
        if np.isin(ranks, own).all():
            return (Group.PIPELINE, *stages.tolist()), self._pipelines[:, stages]
        return ranks, np.array([ranks], np.int64)


def _most_at_once(timeline: Timeline, found: StepTraffic) -> Float64s:
    """Of what each link of the traffic has, the most that flows put on it at once."""
    traffic, most = found.traffic, np.zeros(found.traffic.num_links)
    node = np.flatnonzero(traffic.flow != NO_FLOW)
    flow = traffic.flow[node]
    begin = np.full(traffic.num_flows, np.iinfo(np.int64).max)
    end = np.zeros(traffic.num_flows, np.int64)
    np.minimum.at(begin, flow, timeline.start_ns[node] + traffic.delay_ns[node])
    np.maximum.at(end, flow, timeline.end_ns[node])
    first, last = (traffic.first_use[traffic.pattern + at] for at in (0, 1))
    use = joined_ranges(first, last - first)
    of = np.repeat(np.arange(traffic.num_flows), last - first)
    # Of equal times ends come before begins.
    link = np.tile(traffic.link[use], 2)
    change = np.concatenate([traffic.share[use], -traffic.share[use]])
    order = np.lexsort((change, np.concatenate([begin[of], end[of]]), link))
    carried = np.cumsum(change[order])  # what every link begins with is what the last one left: 0
    np.maximum.at(most, link[order], carried)
    return np.where(most > _FULL, most, 1.0)


def shared_links_of(found: ScenarioOutcome) -> SharedLinks | None:
    """What the mean step asked of the network; `None` if every transfer had it alone."""
    if found.shared is None:
        return None
    return shared_links(found.shared, lambda machine: step_costs(machine.unshared()))
