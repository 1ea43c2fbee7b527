"""Links that flows share: begins and ends of flows per processor second, and the oracle's moments.

python bench/links.py                     events per second, by how many flows meet
python bench/links.py --networks 10000    hold random networks against the plain-Python oracle
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from foretrace.graph import ExecutionGraph, NodeKind
from foretrace.simulate import NO_FLOW, Traffic, simulate_links
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


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.networks:
        farthest = held_against_oracle(chosen.networks)
        print(f"{chosen.networks} random networks: at most {farthest:.6f} ns from the oracle")
    for beside in (2, 4, 16):
        speed = events_per_s(200_000, beside) / 1e6
        print(f"{beside} chains for two links: {speed:.2f} million events/s")


if __name__ == "__main__":
    main()
