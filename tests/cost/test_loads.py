"""What trees put on links: against the closed form, and a published series."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.cost import collective_loads
from foretrace.cost.network.loads import tree_parents
from foretrace.cost.network.span import span_of
from foretrace.machine import links_of, load_machine, with_hosts
from tests.machine.test_links import behind_switches


@pytest.mark.parametrize("count", [2, 3, 8, 13, 64])
def test_trees_span_all_hosts_and_who_has_children_in_one_is_a_leaf_of_the_other(
    count: int,
) -> None:
    both = tree_parents(count)

    has_children = []
    for parent in both:
        above = np.arange(count)
        for _ in range(count.bit_length() + 1):
            above = np.where(parent[above] < 0, above, parent[above])
        (root,) = np.flatnonzero(parent < 0)
        assert (above == root).all()
        has_children.append(np.bincount(parent[parent >= 0], minlength=count) > 0)
    assert (has_children[0] & has_children[1]).sum() <= count % 2 + (count > 2)


@pytest.mark.parametrize(("hosts", "times"), [(2, 1.0), (16, 2.0)])
def test_a_host_sends_a_message_twice_and_one_of_a_pair_once(hosts: int, times: float) -> None:
    links = links_of(with_hosts(load_machine("dgx-h100"), hosts * 8))

    found = collective_loads("allreduce", np.arange(hosts * 8)[None], links, by_tree=True)

    assert found.one_load == pytest.approx(times / 8)


def test_what_goes_between_pcie_switches_is_on_their_links() -> None:
    links = behind_switches("rtx-4090")
    names = [level.name for level in links.levels]

    def loads(name: str, groups: list[list[int]]) -> dict[str, float]:
        found = collective_loads(name, np.array(groups), links)
        return {
            names[at]: load for at, load in zip(links.level[found.link], found.load, strict=True)
        }

    # All-to-all: two chips send half of what they have over the link of their switch.
    assert loads("alltoall", [[0, 1, 2, 3]]) == {"ports": 3 / 4, "PCIe switches": 1.0}
    assert loads("alltoall", [[0, 1], [2, 3]]) == {"ports": 1 / 2}
    assert loads("allgather", [[0, 1, 2, 3]]) == {"ports": 3 / 4, "PCIe switches": 3 / 4}
    # Two pairs that cross meet there.
    assert loads("sendrecv", [[0, 2], [1, 3]]) == {"ports": 1.0, "PCIe switches": 2.0}
    # Four rings over two hosts: of two switches each passes one on its way inside.
    found = loads("allgather", [list(range(8))])
    assert found["PCIe switches"] == pytest.approx(7 / 8 / 2)
    assert found["cards"] == pytest.approx(7 / 8 / 2)
    # Out by its card too: beside what goes on inside, a quarter of the message.
    assert found["ports"] == pytest.approx(7 / 8)


def test_each_member_of_a_host_adds_a_card_as_published() -> None:
    # two hosts of H100s, 1 GB summed by 1, 2 and 4 members of each: NVIDIA/nccl issue 1250
    measured_s = {1: 0.27, 2: 0.13, 4: 0.067}
    links = links_of(with_hosts(load_machine("dgx-h100"), 16))

    for inside, taken_s in measured_s.items():
        group = np.concatenate([np.arange(inside), 8 + np.arange(inside)])[None]
        tree, ring = (
            collective_loads("allreduce", group, links, by_tree=one).least_ns
            for one in (True, False)
        )
        alone = collective_loads("allreduce", np.array([[0, 8]]), links).least_ns
        assert tree / alone == pytest.approx(taken_s / measured_s[1], rel=0.05)
        assert ring >= tree


def test_on_empty_links_who_shares_a_card_with_nobody_has_all_of_it() -> None:
    base = load_machine("dgx-a100")
    machine = with_hosts(replace(base, host=replace(base.host, num_nics=4)), 16)
    empty = machine.unshared()

    def gets(*places: int) -> float:
        (level,) = span_of(places, empty).levels
        return level.ring_bytes_per_ns / machine.tiers[1].bytes_per_ns

    assert gets(0, 8) == 2  # of what is each chip's while all send
    assert gets(0, 1, 8, 9) == 2  # both on the first card
    assert gets(0, 2, 8, 10) == 4
    assert gets(*range(16)) == 8
    (level,) = span_of((0, 8), machine).levels
    assert level.ring_bytes_per_ns == machine.tiers[1].bytes_per_ns
