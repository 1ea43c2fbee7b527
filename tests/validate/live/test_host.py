"""The machine's description: what it says of cores, and that it is kept whole."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.base import ModelError
from foretrace.validate.live import host as live_host
from foretrace.validate.live.host import read_host, write_host
from tests.validate.live.made import MIB, host, row


def test_cores_have_the_measured_speeds_and_the_share_that_long_transfers_take() -> None:
    found = host(
        row("all_reduce", 2, 1024, 1e5, cores=0.1),  # too short to say much
        row("all_reduce", 2, MIB, 1e6, cores=0.6),
        row("all_reduce", 2, 4 * MIB, 4e6, cores=0.8),
        row("send_recv", 2, 4 * MIB, 2e6, cores=0.7),
        row("all_reduce", 4, 4 * MIB, 9e6, cores=0.3),  # four share two cores
    ).cores

    assert found.speed == (1.0, 0.95, 0.64, 0.48)
    assert found.transfers == pytest.approx(0.7)


def test_transfers_take_one_core_at_most_and_none_if_nobody_measured() -> None:
    assert host(row("all_reduce", 2, MIB, 1e6, cores=1.7)).cores.transfers == 1.0
    assert host().cores.transfers == 0.0


def test_a_machine_that_is_not_always_as_fast_says_how_far() -> None:
    described = host()
    speed = replace(described.speed, spread=(0.02, 0.04, 0.1, 0.21))

    found = [replace(described, speed=speed).unrest(count) for count in (1, 2, 4, 8)]

    assert found == pytest.approx([0.0099, 0.0196, 0.0953, 0.0953], abs=1e-4)


def test_a_description_comes_back_as_it_was_written(tmp_path: Path) -> None:
    described = host(row("all_reduce", 2, MIB, 1e6))

    write_host(described, tmp_path / "host.json")

    assert read_host(tmp_path / "host.json") == described


def test_a_missing_description_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="validate live --out"):
        read_host(tmp_path / "host.json")


def test_a_busy_machine_is_measured_again_until_it_is_calm(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calm = host().speed
    turns = iter([replace(calm, spread=(each, 0.0, 0.0, 0.0)) for each in (0.4, 0.2, 0.05, 0.01)])
    said: list[str] = []
    monkeypatch.setattr(live_host, "_CALM_SECONDS", 0.0)
    monkeypatch.setattr(live_host, "measured_host", lambda *_, **__: next(turns))
    monkeypatch.setattr(live_host, "measured_collectives", lambda *_, **__: [])

    found = live_host.described_host(
        host().device, [2], seconds=1.0, progress=lambda what, *_: said.append(what)
    )

    assert found.speed.spread[0] == 0.05
    assert not found.is_busy
    assert sum("this machine is busy" in one for one in said) == 2


def test_a_machine_that_stays_busy_is_described_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = host().speed
    turns = iter([replace(calm, spread=(each, 0.0, 0.0, 0.0)) for each in (0.4, 0.2, 0.3)])
    monkeypatch.setattr(live_host, "_CALM_SECONDS", 0.0)
    monkeypatch.setattr(live_host, "measured_host", lambda *_, **__: next(turns))

    found = live_host.described_host(host().device, [], seconds=1.0)

    assert found.speed.spread[0] == 0.2
    assert found.is_busy
