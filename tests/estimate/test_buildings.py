"""Two buildings: which groups cross, where that turns, and that fast links make no difference."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

import foretrace as ft
from foretrace.cost import Inflation
from foretrace.machine import load_machine

RANKS, STAGES, COPIES = 128, 2, 8
MICROBATCHES, SEQUENCE, WIDTH = 8, 65_536, 4_096
CARD = 50.0  # GB/s of every rank
ACROSS = {"data": ["tp", "cp", "pp", "dp"], "pipeline": ["tp", "cp", "dp", "pp"]}


@cache
def step_ns(folder: Path, crosses: str, gb_per_s: float) -> int:
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
    found = ft.estimate(
        "llama3-8b", keys, load_machine(path), network="shared", inflation=Inflation(otherwise=1.0)
    )
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
