"""Exchanges of tokens around experts: how many copies are sent, and limits of links."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import distinct
from foretrace.cost.expert_exchange import CONSTANTS, ExchangeShapes, exchange_ns
from foretrace.machine import load_chip

START = {one.name: one.start for one in CONSTANTS}
H100 = load_chip("h100-sxm")


def shapes(
    *, tokens: int = 4096, chosen: int = 8, hosts: int = 1, processors: int = 24, direct: int = 0
) -> ExchangeShapes:
    sizes = (tokens, 7168, chosen, 256, 8 * hosts, hosts, processors, 50, direct)
    return ExchangeShapes.of(np.array([sizes], np.int64), "bf16")


@given(st.integers(1, 16), st.integers(1, 12))
def test_distinct_parts_are_those_of_random_choices(parts: int, chosen: int) -> None:
    draws = np.random.default_rng(0).integers(parts, size=(4000, chosen))
    seen = np.mean([len(set(draw)) for draw in draws.tolist()])

    assert float(distinct(parts, chosen)) == pytest.approx(seen, rel=0.05)


def test_a_token_goes_once_to_a_rank_and_once_to_a_host() -> None:
    token = 4096 * 7168 * 2

    inside = shapes()
    assert inside.link_bytes[0] == pytest.approx(token * 8 * (1 - (7 / 8) ** 8) * 7 / 8)
    assert inside.network_bytes.tolist() == [0]
    between = shapes(hosts=4)
    assert between.network_bytes[0] == pytest.approx(token * 4 * (1 - (3 / 4) ** 8) * 3 / 4)
    assert shapes(hosts=4, direct=1).network_bytes[0] == pytest.approx(token * 8 * 3 / 4)


def test_links_and_the_network_bound_what_is_sent() -> None:
    (inside,) = exchange_ns(shapes(tokens=65_536), H100, START)
    (between,) = exchange_ns(shapes(tokens=65_536, hosts=4), H100, START)

    assert H100.link_bytes_per_ns is not None
    assert inside > shapes(tokens=65_536).link_bytes[0] / H100.link_bytes_per_ns
    assert between > shapes(tokens=65_536, hosts=4).network_bytes[0] / 50


def test_few_processors_copy_slowly_and_more_experts_mean_more_copies() -> None:
    (few,) = exchange_ns(shapes(processors=4), H100, START)
    (many,) = exchange_ns(shapes(processors=24), H100, START)
    (one,) = exchange_ns(shapes(chosen=1), H100, START)

    assert few > 3 * many
    assert one < many


def test_a_message_is_on_its_way_between_hosts_however_few_tokens_there_are() -> None:
    def took_ns(hosts: int, values: dict[str, float]) -> float:
        return float(exchange_ns(shapes(tokens=1, hosts=hosts, direct=1), H100, values)[0])

    farther = {**START, "crossing_ns": START["crossing_ns"] + 5000}

    assert took_ns(4, farther) - took_ns(4, START) == pytest.approx(5000)
    assert took_ns(1, farther) == took_ns(1, START)
