"""Prices of links against steps simulated again with wider ones."""

from __future__ import annotations

import pytest

import foretrace as ft
from foretrace.base import WorkloadError
from foretrace.estimate.shared_links import with_rails
from foretrace.machine import load_machine

MACHINE = load_machine("h100-24k")
KEYS = {
    "tp": 8, "pp": 2, "dp": 8, "global_batch": 64, "micro_batch": 1, "sequence": 2048,
    "recompute": "none", "sharding.level": "zero1",
}  # fmt: skip


def test_the_price_of_a_hundredth_is_what_a_step_simulated_with_it_saves() -> None:
    found = ft.estimate("llama3.2-1b", KEYS, MACHINE, network="shared")

    assert found.links is not None
    cards = found.links.rows[1]
    again = ft.estimate("llama3.2-1b", KEYS, with_rails(MACHINE, 1, 0.01), network="shared")
    # Most of it is kernels that are slowed for less long by gradients beside them.
    assert cards.gain_ns > 0
    assert found.step_ns - again.step_ns == pytest.approx(cards.gain_ns, rel=0.05)


def test_one_more_rail_saves_about_its_price_and_all_of_them_more() -> None:
    found = ft.estimate("llama3.2-1b", KEYS, MACHINE, network="shared", one_more_rail=True)

    assert found.links is not None
    cards, *_, whole = found.more_rails
    assert (cards.links, cards.num_rails, whole.links) == ("cards", 8, "all of them")
    assert cards.priced_ns == pytest.approx(found.links.rows[1].gain_ns * 12.5, abs=1)
    assert 0.5 * cards.priced_ns < cards.saved_ns < 1.3 * cards.priced_ns
    assert whole.saved_ns >= cards.saved_ns
    assert whole.links_per_hour is None
    with pytest.raises(WorkloadError, match="is told where links are shared"):
        ft.estimate("llama3.2-1b", KEYS, MACHINE, one_more_rail=True)


def test_links_that_make_a_step_longer_are_named() -> None:
    """Transfers that end sooner slow other kernels: the published plan in 8 chunks."""
    found = ft.estimate(
        "llama3-405b", "llama3-405b-8k-16k-gpus", MACHINE, network="shared", one_more_rail=True
    )
    longer = [row.links for row in found.more_rails[:-1] if row.saved_ns < 0]
    [note] = [one for one in found.notes if "makes the simulated step longer" in one]

    assert longer
    assert all(one in note for one in longer)
