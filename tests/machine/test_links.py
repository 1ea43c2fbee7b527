"""The links of a machine, and those that a message takes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.machine import (
    LinkWay,
    MachineLinks,
    links_of,
    load_chip,
    load_host,
    load_machine,
    with_hosts,
)


def test_a_message_goes_up_to_the_tier_that_holds_both_ends_and_down() -> None:
    links = links_of(load_machine("llama3-24k"))
    names = [f"{level.name} {level.way.value}" for level in links.levels]

    def taken(source: int, target: int) -> list[str]:
        _, link = links.crossed(np.array([source]), np.array([target]))
        return sorted(names[links.level[one]] for one in link.tolist())

    assert taken(0, 7) == ["ports in", "ports out"]
    assert taken(0, 8) == ["cards in", "cards out"]
    assert taken(0, 16) == ["cards in", "cards out", "uplinks of rack in", "uplinks of rack out"]
    assert len(taken(0, 3072)) == 6


def behind_switches(
    chip: str, *, switches: int = 2, cards: int = 2, hosts: int = 2
) -> MachineLinks:
    """Hosts of four chips behind PCIe switches."""
    host = load_host("dgx-a100")
    host = replace(
        host, chip=load_chip(chip), num_chips=4, num_nics=cards, nic_bytes_per_ns=25.0,
        scale_up_bytes_per_ns=32.0, num_pcie_switches=switches, pcie_switch_bytes_per_ns=32.0,
    )  # fmt: skip
    machine = load_machine("dgx-a100")
    return links_of(
        with_hosts(
            replace(machine, host=host, tiers=(replace(machine.tiers[0], num_ranks=4),)), 4 * hosts
        )
    )


def test_messages_from_switch_to_switch_share_their_links() -> None:
    links = behind_switches("rtx-4090")

    def taken(source: int, target: int) -> list[str]:
        _, link = links.crossed(np.array([source]), np.array([target]))
        return sorted(
            f"{links.levels[links.level[one]].name} {one - links.first_link[links.level[one]]}"
            for one in link.tolist()
        )

    assert taken(0, 1) == ["ports 0", "ports 1"]
    assert taken(0, 3) == ["PCIe switches 0", "PCIe switches 1", "ports 0", "ports 3"]
    assert taken(1, 2) == ["PCIe switches 0", "PCIe switches 1", "ports 1", "ports 2"]
    # Cards are behind the switches of their chips, and reached by the same ports.
    assert taken(1, 6) == ["cards 0", "cards 3", "ports 1", "ports 6"]


def test_a_card_behind_another_switch_is_reached_over_both() -> None:
    own, linked = behind_switches("rtx-4090", cards=1), behind_switches("a100-sxm-80gb")

    names = [own.levels[at].name for at in own.level[own.to_card(np.array([3]), LinkWay.OUT)[1]]]
    assert names == ["ports", "PCIe switches", "PCIe switches"]
    assert not linked.is_by_pcie
    _, link = linked.to_card(np.array([3]), LinkWay.OUT)
    assert [linked.levels[at].name for at in linked.level[link]] == ["PCIe links of chips"]
    assert linked.between_switches(np.array([0]), np.array([3]))[1].size == 0


def test_chips_share_the_cards_of_their_host_and_ranks_an_oversubscribed_uplink() -> None:
    frontier, llama = (links_of(load_machine(name)) for name in ("frontier-78k", "llama3-24k"))

    host = frontier.machine.host
    assert host.num_nics is not None
    assert host.num_chips == 2 * host.num_nics
    cards = frontier.link(np.arange(host.num_chips), frontier.card_tier, LinkWay.OUT)
    assert len(set(cards.tolist())) == host.num_nics
    assert frontier.levels[2 * frontier.card_tier].bytes_per_ns == host.nic_bytes_per_ns
    message, _ = frontier.crossed(np.array([0, 0]), np.array([1, host.num_chips - 1]))
    assert np.bincount(message).tolist() == [2, 2]  # a port out and one in, of the tier between
    assert llama.levels[-1].bytes_per_ns == pytest.approx(3072 * 50 / 7)
    assert llama.num_links == sum(level.num_links for level in llama.levels)
