"""Links that flows share: begins and ends of flows per processor second, and the oracle's moments.

python bench/links.py                     events per second, by how many flows meet
python bench/links.py --networks 10000    hold random networks against the plain-Python oracle
python bench/links.py --private           links that nobody crowds against the static engine: every
                                          kept recording (FORETRACE_DATA) and estimate
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import foretrace as ft
from foretrace.base import Int64s, ModelError
from foretrace.cost import step_costs
from foretrace.estimate import step_traffic
from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.machine import Machine, links_of, load_machine, with_hosts
from foretrace.simulate import NO_FLOW, Traffic, simulate, simulate_links, simulate_shared
from tests.golden_tests.answers import drafted
from tests.golden_tests.estimates import CASES
from tests.golden_tests.table import Table
from tests.graphs import GraphBuilder
from tests.oracles.links import LinksOracle

_SHARES = (0.125, 0.25, 0.5, 0.75, 1.0, 2.0)


def random_network(rng: np.random.Generator) -> tuple[ExecutionGraph, Traffic]:
    """A dozen nodes, some of them parts of flows over a few links."""
    build = GraphBuilder()
    count = int(rng.integers(2, 13))
    for node in range(count):
        before = [int(one) for one in rng.integers(0, node, rng.integers(0, 3))] if node else []
        takes_ns = int(rng.integers(0, 60))
        build.add(NodeKind.FINISH, lane=f"stream {node}", takes_ns=takes_ns, after=before)
    num_links, num_patterns = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    links = [
        rng.choice(num_links, size=int(rng.integers(0, num_links + 1)), replace=False)
        for _ in range(num_patterns)
    ]
    num_flows = int(rng.integers(1, 7))
    sizes = [len(one) for one in links]
    return build.graph(), Traffic(
        flow=rng.integers(NO_FLOW, num_flows, count).astype(np.int32),
        delay_ns=rng.integers(0, 20, count),
        pattern=rng.integers(0, num_patterns, num_flows).astype(np.int32),
        first_use=np.append(0, np.cumsum(sizes)).astype(np.int64),
        link=np.concatenate(links).astype(np.int32),
        share=rng.choice(_SHARES, sum(sizes)),
        pace=rng.choice((0.25, 0.5, 1.0, 2.0), num_patterns),
        num_links=num_links,
    )


def held_against_oracle(count: int) -> float:
    """The farthest that any moment of so many networks is from the oracle's, in ns."""
    rng = np.random.default_rng(19)
    farthest = 0.0
    for _ in range(count):
        graph, traffic = random_network(rng)
        oracle = LinksOracle(graph, graph.measured_ns, traffic)
        timeline, _ = simulate_links(graph, None, traffic)
        if oracle.most > 1:
            sys.exit("a link carried more than it can")
        for node in np.flatnonzero(traffic.flow != NO_FLOW).tolist():
            farthest = max(
                farthest,
                abs(float(timeline.end_ns[node] - oracle.ends[node])),
                abs(float(timeline.start_ns[node] - oracle.starts[node])),
            )
    return farthest


def events_per_s(num_flows: int, beside: int) -> float:
    """Chains of flows that meet `beside` others on two links each, per processor second."""
    build = GraphBuilder()
    rng = np.random.default_rng(1)
    chain = 1000
    for lane in range(num_flows // chain):
        last: list[int] = []
        for takes_ns in rng.integers(1000, 50_000, chain).tolist():
            node = build.add(NodeKind.FINISH, lane=f"stream {lane}", takes_ns=takes_ns, after=last)
            last = [node]
    graph = build.graph()
    chains = num_flows // chain
    num_links = max(2, 2 * chains // beside)
    links = np.stack([np.arange(chains) % num_links, (np.arange(chains) * 7 + 3) % num_links])
    links[1] = np.where(links[1] == links[0], (links[1] + 1) % num_links, links[1])
    traffic = Traffic(
        flow=np.arange(num_flows, dtype=np.int32),
        delay_ns=np.zeros(num_flows, np.int64),
        pattern=(np.arange(num_flows) // chain).astype(np.int32),
        first_use=np.arange(0, 2 * chains + 1, 2, dtype=np.int64),
        link=links.T.ravel().astype(np.int32),
        share=np.full(2 * chains, 0.6),
        pace=np.ones(chains),
        num_links=num_links,
    )
    simulate_links(graph, None, traffic)  # compiles
    begin_s = time.process_time()
    _, times = simulate_links(graph, None, traffic)
    return times.num_events / (time.process_time() - begin_s)


def is_static(graph: ExecutionGraph, duration_ns: Int64s, machine: Machine) -> bool | None:
    """Whether flows over links as wide as can be take what the static engine says.

    `None`, where nothing in the graph goes over links.
    """
    ranks = max((max(one.ranks) for one in graph.collectives.makes), default=0) + 1
    hosts = with_hosts(machine, max(ranks, machine.num_ranks)).unshared()
    found = step_traffic(
        graph, duration_ns, model=step_costs(hosts), links=links_of(hosts), least_left=1e-6
    )
    traffic = replace(found.traffic, share=found.traffic.share * 1e-9)
    timeline, static = (
        simulate_shared(graph, duration_ns, traffic=traffic),
        simulate(graph, duration_ns),
    )
    if not (
        np.array_equal(timeline.start_ns, static.start_ns)
        and np.array_equal(timeline.end_ns, static.end_ns)
    ):
        return False
    return True if traffic.num_flows else None


def kept_cases(data: Path) -> Iterator[tuple[str, ExecutionGraph, Int64s, Machine]]:
    """Graphs, durations and machines of the kept recordings that are at hand, then of estimates."""
    machine = load_machine("dgx-a100")
    for case in sorted(Table("recordings").kept()):
        root, _, rest = case.partition("/")
        path = (data / "traces" if root == "traces" else Path("examples")) / rest
        try:
            if path.exists():
                graph = ft.load(path).graph
                yield case, graph, graph.measured_ns, machine
        except ModelError:
            continue  # kept as refused
    for name, case in CASES.items():
        plan = drafted(case.preset, case.plan) if case.preset else case.plan
        try:
            found = ft.estimate(
                case.model, plan, case.machine, num_ranks=case.num_ranks, folded=case.is_folded
            )
        except ModelError:
            continue
        yield name, found.graph, found.timeline.duration_ns, found.machine


def held_against_static(data: Path) -> None:
    """Print how many are equal to the nanosecond, and the names of those that are not."""
    verdicts = Counter[object]()
    for name, graph, duration_ns, machine in kept_cases(data):
        try:
            verdict: object = is_static(graph, duration_ns, machine)
        except ModelError as err:
            verdict = "refused"
            print(f"{name}: {err}")
        verdicts[verdict] += 1
        if verdict is False:
            print(f"differs: {name}")
    print(
        f"equal to the nanosecond: {verdicts[True]} with flows, {verdicts[None]} without; "
        f"different: {verdicts[False]}; refused: {verdicts['refused']}; "
        f"{time.process_time():.0f} CPU s"
    )


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=0)
    parser.add_argument("--private", action="store_true")
    chosen = parser.parse_args()
    if chosen.private:
        held_against_static(Path(os.environ.get("FORETRACE_DATA", "../shared/data")))
        return
    if chosen.networks:
        farthest = held_against_oracle(chosen.networks)
        print(f"{chosen.networks} random networks: at most {farthest:.6f} ns from the oracle")
    for beside in (2, 4, 16):
        speed = events_per_s(200_000, beside) / 1e6
        print(f"{beside} chains for two links: {speed:.2f} million events/s")


if __name__ == "__main__":
    main()
