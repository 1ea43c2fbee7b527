"""Ranks whose times are measured work one at a time."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

pytest.importorskip("torch")

from foretrace.capture.world.mail import RankTurn


def test_one_rank_works_at_a_time_but_while_it_waits_for_another(tmp_path: Path) -> None:
    at_work, most, waits = [0], [0], Event()

    def work() -> None:
        at_work[0] += 1
        most[0] = max(most[0], at_work[0])
        time.sleep(0.01)
        at_work[0] -= 1

    def waiting_rank() -> None:
        turn = RankTurn(tmp_path, is_measured=True)
        with turn.held():
            work()
            with turn.given_up():
                assert waits.wait(30)
            work()

    def other_rank() -> None:
        with RankTurn(tmp_path, is_measured=True).held():
            work()
        waits.set()

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(one) for one in (waiting_rank, other_rank, other_rank, other_rank)]
        assert [one.result(60) for one in done] == [None] * 4

    assert most == [1]
    assert not list(tmp_path.iterdir())


def test_ranks_without_times_wait_for_nobody(tmp_path: Path) -> None:
    first, second = (RankTurn(tmp_path, is_measured=False) for _ in range(2))

    with first.held(), second.held(), first.given_up():
        assert not list(tmp_path.iterdir())
