"""The links of a machine, and those that a message takes."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.machine import LinkWay, links_of, load_machine


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
