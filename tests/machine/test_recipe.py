"""The recipe of CONTRIBUTING.md for a GPU: a chip's file, and a host's for the box it comes in."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import MachineError
from foretrace.machine import (
    Severity,
    check,
    chip_named,
    chip_names,
    load_chip,
    load_machine,
)

CHIP = """
kind = "chip"
title = "Example X1 96 GB"
vendor = "Example"
architecture = "Hopper"
device_names = ["Example X1-96GB"]

[sources]
sheet = { title = "Example X1 data sheet", url = "https://example.com/x1" }

[figures]
memory = { value = "96 GiB", source = "sheet" }
memory_bandwidth = { value = "4 TB/s", source = "sheet" }
num_processors = { value = 144, source = "sheet" }
boost_clock = { value = "2 GHz", source = "sheet" }
link_bandwidth = { value = "450 GB/s", source = "sheet" }

[peak]
fp32 = { value = "73.7 TFLOP/s", source = "sheet" }
bf16 = { value = "1180 TFLOP/s", source = "sheet" }
"""
HOST = """
kind = "host"
extends = "dgx-h100"
title = "Example box with 8 X1"
chip = "x1"
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """What the recipe's files make of a folder of the user's, or of `machine/presets`."""
    for place, name, text in (("chips", "x1", CHIP), ("hosts", "x1-box", HOST)):
        (tmp_path / place).mkdir()
        (tmp_path / place / f"{name}.toml").write_text(text)
    return tmp_path


def test_a_new_gpu_is_found_by_its_names_and_has_no_implausible_number(folder: Path) -> None:
    chip = load_chip("x1", [folder])
    remarks = [each for each in check(chip, [folder]).remarks if each.severity != Severity.MISSING]

    assert "x1" in chip_names([folder])
    assert chip_named("Example X1-96GB", folders=[folder]) == chip
    assert remarks == []
    assert all(figure.source is not None for figure in chip.figures)


def test_a_machine_of_the_new_gpu_computes_as_its_data_sheet_says(folder: Path) -> None:
    machine = load_machine("x1-box", [folder])

    assert machine.chip.peak_flops_per_ns("bf16") == pytest.approx(1_180_000)
    assert machine.chip.memory_bytes == 96 * 2**30


def test_a_slip_in_the_new_file_is_named(folder: Path) -> None:
    path = folder / "chips" / "x1.toml"
    path.write_text(CHIP.replace("memory_bandwidth =", "memory_bandwith ="))

    with pytest.raises(MachineError, match="did you mean 'memory_bandwidth'"):
        load_chip("x1", [folder])
