"""Two buildings: which groups cross, where that turns, and that fast links make no difference."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import foretrace as ft
from foretrace.base import MachineError, WorkloadError
from foretrace.cost import Inflation
from foretrace.machine import Machine, links_of, load_machine

RANKS, STAGES, COPIES = 128, 2, 8
MICROBATCHES, SEQUENCE, WIDTH = 8, 65_536, 4_096
CARD = 50.0  # GB/s of every rank
ACROSS = {"data": ["tp", "cp", "pp", "dp"], "pipeline": ["tp", "cp", "dp", "pp"]}


@cache
def step_ns(folder: Path, crosses: str, gb_per_s: float, local_steps: int | None = None) -> int:
    """A step of two buildings of 64, between which every rank is left so much."""
    path = folder / f"{gb_per_s}.toml"
    path.write_text(
        'kind = "machine"\nhost = "dgx-h100"\n'
        '[[tiers]]\nname = "host"\nkind = "scale-up"\nranks = 8\n'
        '[[tiers]]\nname = "building"\nkind = "building"\nranks = 64\nlatency = "2 us"\n'
        '[[tiers]]\nname = "region"\nkind = "region"\nranks = 128\nlatency = "2 us"\n'
        f'oversubscription = "{CARD / gb_per_s}:1"\n',
        encoding="utf-8",
    )
    keys = {
        "tp": 8, "pp": STAGES, "dp": COPIES, "global_batch": COPIES * MICROBATCHES,
        "micro_batch": 1, "sequence": SEQUENCE, "recompute": "full", "sharding.level": "none",
        "overlap.gradients": False, "parallelism.order": ACROSS[crosses],
    }  # fmt: skip
    if local_steps is not None:
        keys["local_steps"] = local_steps
    found = ft.estimate(
        "llama3-8b", keys, load_machine(path), network="shared", inflation=Inflation(otherwise=1.0)
    )
    assert any("another training algorithm" in note for note in found.notes) == bool(local_steps)
    return found.step_ns


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For machines."""
    return tmp_path_factory.mktemp("machines")


def test_where_buildings_are_joined_as_well_as_hosts_every_placement_is_as_fast(
    folder: Path,
) -> None:
    assert step_ns(folder, "data", CARD) == step_ns(folder, "pipeline", CARD)


def test_pipeline_across_beats_data_across_until_the_link_is_what_the_closed_form_says(
    folder: Path,
) -> None:
    # of every rank: its part of the gradients, in 32 bits, around rings of one stage that all
    # cross at once (the other stage was done before); a microbatch's activations, parted over
    # tensor ranks, in bf16
    gradients = 8_030_261_248 / STAGES / 8 * 4
    rings = RANKS / COPIES / STAGES
    of_data = 2 * (1 - 1 / COPIES) * gradients * rings / 64
    of_pipeline = MICROBATCHES * SEQUENCE * WIDTH * 2 / 8
    for crosses, slope in (("data", of_data), ("pipeline", of_pipeline)):
        slower = step_ns(folder, crosses, 0.5) - step_ns(folder, crosses, 1.0)
        assert slower == pytest.approx(slope, rel=0.02)
    apart = step_ns(folder, "data", 1.0) - step_ns(folder, "pipeline", 1.0)
    turns_at = 1 / (1 + apart / (of_pipeline - of_data))

    below, above = turns_at / 1.02, turns_at * 1.02
    assert step_ns(folder, "data", below) < step_ns(folder, "pipeline", below)
    assert step_ns(folder, "data", above) > step_ns(folder, "pipeline", above)


def test_copies_that_do_two_steps_by_themselves_exchange_half(folder: Path) -> None:
    always, seldom = (
        step_ns(folder, "data", 0.5, steps) - step_ns(folder, "data", 1.0, steps)
        for steps in (None, 2)
    )

    assert seldom == pytest.approx(always / 2, rel=0.02)
    with pytest.raises(WorkloadError, match="no copies of a whole model"):
        ft.estimate(
            "llama3-8b",
            {"dp": 8, "global_batch": 8, "sharding.level": "zero1", "local_steps": 10},
            "dgx-h100",
        )


def uneven(folder: Path, sizes: str) -> Machine:
    """Hosts in buildings of so many chips."""
    path = folder / "uneven.toml"
    path.write_text(
        'kind = "machine"\nhost = "dgx-h100"\n'
        '[[tiers]]\nname = "host"\nkind = "scale-up"\nranks = 8\n'
        '[[tiers]]\nname = "building"\nkind = "building"\nranks = 64\nlatency = "2 us"\n'
        f'[[tiers]]\nname = "region"\nkind = "region"\nranks = 96\nsizes = {sizes}\n'
        'latency = "2 us"\noversubscription = "7:1"\n',
        encoding="utf-8",
    )
    return load_machine(path)


def test_buildings_of_other_sizes_hold_ranks_one_after_the_other(folder: Path) -> None:
    machine = uneven(folder, "[32, 64]")

    assert machine.num_ranks == 96
    assert machine.places(np.arange(96)).tolist() == [*range(32), *range(64, 128)]
    assert [tier.name for tier in machine.tiers_spanned((0, 31))] == ["building"]
    assert [tier.name for tier in machine.tiers_spanned((31, 32))] == ["region"]
    assert [tier.name for tier in machine.tiers_spanned((32, 95))] == ["building"]
    with pytest.raises(ValueError, match="outside"):
        machine.tiers_spanned((0, 96))
    links = links_of(machine)
    out = links.bytes_per_ns[links.first_link[4] : links.first_link[5]]
    assert out == pytest.approx([32 * CARD / 7, 64 * CARD / 7])
    assert links.num_filled(0) == 96


def test_a_ring_over_uneven_buildings_goes_at_the_speed_of_the_smaller_ones_uplink(
    folder: Path,
) -> None:
    keys = {
        "tp": 8, "dp": 12, "global_batch": 12, "sequence": 512, "recompute": "full",
        "sharding.level": "none", "overlap.gradients": False,
    }  # fmt: skip

    def step(sizes: str, network: str, *, folded: bool = True) -> int:
        machine = uneven(folder, sizes)
        found = ft.estimate(
            "llama3-8b", keys, machine, network=network, folded=folded,
            inflation=Inflation(otherwise=1.0),
        )  # fmt: skip
        return found.step_ns

    # of every rank's eighth of the gradients, eight rings at once over the narrowest uplink
    across = [8 * CARD * sizes / 8 / 7 for sizes in (32, 48)]
    moved = 2 * 11 / 12 * 8_030_261_248 / 8 * 4 * 8
    apart = step("[64, 32]", "shared") - step("[48, 48]", "shared")
    assert apart == pytest.approx(moved / across[0] - moved / across[1], rel=0.02)
    assert step("[64, 32]", "shared", folded=False) == pytest.approx(
        step("[64, 32]", "shared"), rel=1e-6
    )


@pytest.mark.parametrize("sizes", ["[64, 30]", "[96]", "[64, 64]", "[]", '["64", 32]'])
def test_sizes_that_are_none_are_refused(folder: Path, sizes: str) -> None:
    with pytest.raises(MachineError, match="sizes"):
        uneven(folder, sizes)
