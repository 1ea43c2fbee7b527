"""Annealing of tables adds up what the account does, and ends where every tier has room."""

from __future__ import annotations

import time
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from foretrace.search.table_account import NUM_TIMED, TableAccount
from foretrace.search.table_annealing import annealed
from foretrace.search.table_floor import table_floor
from foretrace.search.table_moves import DealtTables
from foretrace.search.table_starts import start
from tests.search.test_tables import HBM, HOST, accounted, large

annealing = import_module("foretrace.search.table_annealing")


def account_of(seed: int, num_ranks: int) -> TableAccount:
    return accounted(*large(seed, num_ranks, num_tables=12), HBM, HOST)


def begun(account: TableAccount) -> DealtTables:
    floor = table_floor(account)
    assert floor is not None
    return start(account, floor)[1]


def plain_energy(placement: DealtTables, evened: float, over: float) -> float:
    account = placement.account
    timed = placement.loads[:, :NUM_TIMED] * account.slopes
    even = evened * np.sqrt((timed**2).mean(axis=0)).sum()
    above = float(account.excess(placement.loads[None])[0])
    return float(placement.value_ns + even + over * above)


@pytest.mark.compiled
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("num_ranks", [1, 2, 6])
def test_what_moves_add_up_is_the_accounts_sum(
    seed: int, num_ranks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = account_of(seed, num_ranks)
    first = begun(account)
    seen: list[tuple[Any, ...]] = []
    anneal = annealing.anneal

    def watched(*arguments: Any) -> None:
        anneal(*arguments)
        seen.append(arguments)

    monkeypatch.setattr(annealing, "anneal", watched)
    monkeypatch.setattr(annealing, "_MOVES", 200)
    cycles = annealing._Cycles(first, time.monotonic() + 60)
    cycles.cooled(first, 1e-3)

    *_, evened, over, _, _, loads, chosen, ranks, _, _, state = seen[-1]
    placement = cycles._placement(chosen, ranks)
    assert loads == pytest.approx(placement.loads, rel=1e-9, abs=1e-3)
    assert state[0] == placement.copied
    assert state[1] == pytest.approx(plain_energy(placement, evened, over), rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_a_start_without_room_gets_it(seed: int) -> None:
    account = account_of(seed, 4)
    at_rank_0 = DealtTables(
        account,
        [type(one)(one.option, tuple(range(len(one.ranks)))) for one in begun(account).chosen],
    )
    found = annealed(at_rank_0, time.monotonic() + 60)

    assert found.fits
    assert found.value_ns <= at_rank_0.value_ns or not at_rank_0.fits


def test_the_same_placement_is_found_again() -> None:
    account = account_of(1, 4)
    first = begun(account)

    one, again = (annealed(first, time.monotonic() + 60).places() for _ in range(2))

    assert one == again


def test_the_shortest_cycle_is_made_when_no_time_is_left() -> None:
    account = account_of(2, 4)

    found = annealed(begun(account), time.monotonic() - 1)

    assert found.fits
