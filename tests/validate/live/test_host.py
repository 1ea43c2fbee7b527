"""The machine's description: what it says of cores, and that it is kept whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import ModelError
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


def test_a_description_comes_back_as_it_was_written(tmp_path: Path) -> None:
    described = host(row("all_reduce", 2, MIB, 1e6))

    write_host(described, tmp_path / "host.json")

    assert read_host(tmp_path / "host.json") == described


def test_a_missing_description_says_how_to_get_one(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="validate live --out"):
        read_host(tmp_path / "host.json")
