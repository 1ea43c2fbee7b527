"""The same small workloads as ASTRA-sim's congestion-aware analytical backend, and what differs.

Eight chips on one switch of 50 GiB/s, half a microsecond a link; 64 MiB messages, collectives in
chunks of an eighth. Its moments are what its library (commit 599a047) says when it is run on these.
It stores each chunk at the switch before it goes on; here a message is on all its links at once.
"""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.cost import CollectiveLoads, collective_loads
from foretrace.graph import NodeKind
from foretrace.machine import MachineLinks, import_description, links_of, load_machine
from foretrace.simulate import Traffic, simulate_links
from tests.graphs import GraphBuilder

MESSAGE, CHIPS = 2**26, 8
CHUNK_NS = MESSAGE / CHIPS / (50 * 2**30 / 1e9)
LINK_NS = 500


@pytest.fixture(scope="module")
def links(tmp_path_factory: pytest.TempPathFactory) -> MachineLinks:
    folder = tmp_path_factory.mktemp("astra")
    network = folder / "Switch.yml"
    network.write_text(
        "topology: [ Switch ]\nnpus_count: [ 8 ]\nbandwidth: [ 50.0 ]\nlatency: [ 500.0 ]\n"
    )
    machine = folder / "eight.toml"
    machine.write_text(import_description(network, host="dgx-h100").text)
    return links_of(load_machine(machine))


def together_ns(links: MachineLinks, uses: list[CollectiveLoads]) -> int:
    """When the last of some messages that begin at once has arrived; nobody else is there."""
    build = GraphBuilder()
    alone_ns = [one.least_ns * MESSAGE for one in uses]
    for lane, takes_ns in enumerate(alone_ns):
        build.add(NodeKind.FINISH, rank=lane, lane="stream 20", takes_ns=round(takes_ns))
    graph = build.graph()
    sizes = [len(one.link) for one in uses]
    capacity = links.bytes_per_ns
    traffic = Traffic(
        flow=np.arange(len(uses), dtype=np.int32),
        delay_ns=np.zeros(len(uses), np.int64),
        pattern=np.arange(len(uses), dtype=np.int32),
        first_use=np.append(0, np.cumsum(sizes)).astype(np.int64),
        link=np.concatenate([one.link for one in uses]).astype(np.int32),
        share=np.concatenate(
            [
                one.load * MESSAGE / capacity[one.link] / takes_ns
                for one, takes_ns in zip(uses, alone_ns, strict=True)
            ]
        ),
        pace=np.ones(len(uses)),
        num_links=links.num_links,
    )
    timeline, _ = simulate_links(graph, None, traffic)
    return int(timeline.end_ns.max())


def of_all(links: MachineLinks, name: str, count: int = 1) -> list[CollectiveLoads]:
    return [collective_loads(name, np.arange(CHIPS)[None, :], links)] * count


@pytest.mark.parametrize(
    ("pairs", "theirs_ns"),
    [
        (((0, 1),), 2_501_000),
        (((0, 2), (1, 2)), 3_751_000),
        (tuple((one, 0) for one in range(1, 8)), 10_001_000),
    ],
    ids=["one", "two to one", "seven to one"],
)
def test_messages_to_one_chip_take_as_long_but_for_being_stored_once(
    links: MachineLinks, pairs: tuple[tuple[int, int], ...], theirs_ns: int
) -> None:
    # The receiver's port is what all share.
    found = [collective_loads("SendRecv", np.array([pair]), links) for pair in pairs]
    ours_ns = together_ns(links, found)

    stored_ns = 8 * CHUNK_NS + 2 * LINK_NS
    assert ours_ns + stored_ns == pytest.approx(theirs_ns, abs=100)


@pytest.mark.parametrize(
    ("name", "count", "theirs_ns", "stored_ns"),
    [
        # Every step of a ring is stored on its way: it takes twice as long there.
        ("AllGather", 1, 2_194_500, 7 * CHUNK_NS + 14 * LINK_NS),
        ("AllReduce", 1, 4_389_000, 14 * CHUNK_NS + 28 * LINK_NS),
        # Two at once fill each other's pauses, so only the last chunk is.
        ("AllReduce", 2, 4_545_250, CHUNK_NS + 29 * LINK_NS),
        ("AllToAll", 1, 1_251_000, CHUNK_NS + 2 * LINK_NS),
    ],
)
def test_collectives_take_as_long_but_for_chunks_that_are_stored(
    links: MachineLinks, name: str, count: int, theirs_ns: int, stored_ns: float
) -> None:
    ours_ns = together_ns(links, of_all(links, name, count))

    assert ours_ns + stored_ns == pytest.approx(theirs_ns, rel=1e-3)
