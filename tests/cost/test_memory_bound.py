from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from foretrace.base import MachineError
from foretrace.cost import Access, Movements, movement_ns
from foretrace.cost.convolution import CONSTANTS as CONVOLUTION_CONSTANTS
from foretrace.cost.convolution import ConvolutionShapes, convolution_ns
from foretrace.cost.memory_bound import CONSTANTS
from foretrace.machine import Chip, load_chip

CHIP = load_chip("a100-sxm-80gb")
STARTS = {one.name: one.start for one in CONSTANTS}


def test_a_stream_takes_its_start_and_its_bytes() -> None:
    values = {**STARTS, "launch_ns": 1000, "stream_rate": 0.5, "cache_rate": 1}
    streams = Movements(np.array([0.0, 2039e3]), np.array([Access.STREAM] * 2, np.int8))

    assert movement_ns(streams, CHIP, values).tolist() == pytest.approx([1000, 3000])


def test_each_access_has_its_own_rate() -> None:
    access = np.arange(len(Access), dtype=np.int8)
    rates = {name: 0.1 * (at + 1) for at, name in enumerate(sorted(STARTS)) if "rate" in name}

    chip = replace(CHIP, storage_bytes_per_ns=3.0)
    found = movement_ns(Movements(np.full(len(Access), 1e9), access), chip, {**STARTS, **rates})

    assert len(set(found.tolist())) == len(Access)


def test_copies_to_the_host_go_over_its_link() -> None:
    host = Movements(np.array([1e9]), np.array([Access.HOST], np.int8))

    assert CHIP.host_bytes_per_ns is not None
    assert movement_ns(host, CHIP, STARTS)[0] > 1e9 / CHIP.host_bytes_per_ns
    with pytest.raises(MachineError, match="host_bandwidth"):
        movement_ns(host, replace(CHIP, host_bytes_per_ns=None), STARTS)


def test_rows_on_disks_come_at_the_chips_share_of_them() -> None:
    stored = Movements(np.array([1e9]), np.array([Access.STORAGE], np.int8))

    found = movement_ns(stored, replace(CHIP, storage_bytes_per_ns=3.0), STARTS)

    assert found[0] == pytest.approx(1e9 / 3 + STARTS["launch_ns"])
    with pytest.raises(MachineError, match="storage_bandwidth"):
        movement_ns(stored, CHIP, STARTS)


def test_a_convolution_is_its_product_slower_and_its_images_moved() -> None:
    values = {one.name: one.start for one in CONVOLUTION_CONSTANTS}
    values |= {"start_ns": 100, "gathering": 2, "layout": 1}
    shapes = ConvolutionShapes(np.array([1000.0]), np.array([2.0]), np.array([2039.0 * 50]))

    assert convolution_ns(shapes, CHIP, values).tolist() == pytest.approx([2 * 2100 + 50])


def test_what_the_cache_holds_goes_at_its_rate_in_order_alone() -> None:
    assert CHIP.l2_bytes is not None
    values = {**STARTS, "launch_ns": 0, "cache_rate": 2.0}
    sizes = CHIP.l2_bytes * np.array([0.5, 1.0, 4.0])

    def drawn(access: Access, chip: Chip = CHIP) -> list[float]:
        moved = Movements(sizes, np.full(3, access, np.int8))
        found: list[float] = (movement_ns(moved, chip, values) / sizes).tolist()
        return found

    all_drawn = drawn(Access.STREAM, replace(CHIP, l2_bytes=None))
    assert all_drawn == pytest.approx([all_drawn[0]] * 3)
    # Half of the cache: half of the operand is still there, at twice the rate.
    assert drawn(Access.STREAM) == pytest.approx([0.75 * all_drawn[0], *all_drawn[1:]])
    assert drawn(Access.UNEVEN) == pytest.approx([drawn(Access.UNEVEN)[0]] * 3)
