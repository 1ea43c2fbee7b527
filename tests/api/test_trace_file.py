"""The file for Perfetto holds what the analyses found, to the nanosecond."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.analyze import Stillness, idle, windows
from foretrace.api import write_trace
from tests.exchange.chrome_rules import Event, broken_rules
from tests.exchange.test_perfetto import events_of
from tests.exchange.test_tracks import process_names, slices_of


@pytest.fixture(scope="module")
def job(repository: Path) -> ft.Job:
    return ft.load(repository / "examples" / "planted" / "slow-loader", cache=False)


@pytest.fixture(scope="module")
def events(job: ft.Job, tmp_path_factory: pytest.TempPathFactory) -> list[Event]:
    path = tmp_path_factory.mktemp("trace") / "t.json.gz"
    write_trace(path, job, ft.simulate(job))
    return events_of(path)


def test_it_breaks_no_rule_of_its_format(events: list[Event]) -> None:
    assert broken_rules(events) == []


def test_critical_paths_sum_to_the_steps(job: ft.Job, events: list[Event]) -> None:
    for title, timeline in (("measured", job.measured), ("replayed", ft.simulate(job))):
        pieces = slices_of(events, f"critical path {title}", "critical path")

        total_ns = sum(int(piece["dur"] * 1000) for piece in pieces)

        assert total_ns == windows(timeline).duration_ns.sum()


def test_the_longest_piece_says_what_it_is(events: list[Event]) -> None:
    pieces = slices_of(events, "critical path replayed", "critical path")

    longest = max(pieces, key=lambda piece: piece["dur"])

    assert longest["args"]["operator"].startswith("enumerate(DataLoader)")
    assert longest["args"]["lane"].startswith("rank 2 thread")
    assert longest["args"]["block"] == "data"


def test_every_rank_shows_why_it_was_idle(job: ft.Job, events: list[Event]) -> None:
    still = idle(job.measured)
    waits_ns: defaultdict[str, int] = defaultdict(int)

    for rank in range(4):
        for piece in slices_of(events, f"rank {rank} measured", "idle: cause"):
            waits_ns[f"{rank} {piece['name']}"] += int(piece["dur"] * 1000)

    assert sum(waits_ns.values()) == still.total_ns()
    assert waits_ns["0 waiting for rank 2: data loading"] > 100_000_000
    lost_ns = still.duration_ns[(still.rank == 2) & (still.kind == Stillness.IDLE)].sum()
    assert waits_ns["2 data loading"] <= lost_ns


def test_ranks_and_counters_stand_in_their_processes(events: list[Event]) -> None:
    names = process_names(events)

    counters = {(names[e["pid"]], e["name"]) for e in events if e["ph"] == "C"}

    assert ("rank 3 replayed", "busy") in counters
    assert ("rank 3 measured", "collectives in flight") in counters
