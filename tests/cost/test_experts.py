"""Fused experts: loads add up, limits hold, and more work never takes less."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.cost.experts import (
    CONSTANTS,
    SERVED_CONSTANTS,
    ExpertShapes,
    experts_ns,
    rows_of_bins,
)
from foretrace.machine import load_chip

START = {one.name: one.start for one in CONSTANTS}
H100 = load_chip("h100-sxm")


def shapes(*, tokens: int, ranks: int = 1, skew: int = 0, gated: int = 1) -> ExpertShapes:
    sizes = np.array([(tokens, 8, 128, ranks, 4096, 1536, gated, skew)], np.int64)
    return ExpertShapes.of(sizes, "bf16")


@given(st.integers(1, 20_000), st.integers(1, 8), st.sampled_from((8, 64, 256)))
def test_even_loads_are_all_tokens_over_the_ranks(tokens: int, chosen: int, experts: int) -> None:
    for ranks in (1, 2, 8):
        bins = rows_of_bins(tokens, chosen, experts, (ranks, 0))

        total = sum(count * rows for count, rows in bins)
        assert sum(count for count, _ in bins) <= experts // ranks
        if tokens * chosen >= experts:
            assert total == pytest.approx(tokens * chosen / ranks)


@given(st.integers(100, 20_000), st.sampled_from((101, 120)), st.sampled_from((1, 4, 16)))
def test_uneven_loads_fall_on_one_rank_most(tokens: int, skew: int, ranks: int) -> None:
    bins = rows_of_bins(tokens, 8, 128, (ranks, skew))

    rows = [mean for _, mean in bins]
    total = sum(count * mean for count, mean in bins)
    assert rows == sorted(rows, reverse=True)
    assert max(rows) <= tokens
    assert 8 * tokens / ranks * 0.8 <= total <= 8 * tokens * 1.0001


def test_nothing_beats_the_peak_and_the_weights_traffic() -> None:
    many, one = shapes(tokens=65_536), shapes(tokens=1)

    (long,) = experts_ns(many, H100, START)
    (short,) = experts_ns(one, H100, START)

    peak = H100.peak_flops_per_ns("bf16")
    assert peak is not None
    assert long > many.num_flops[0] / peak
    assert short > one.num_bytes[0] / H100.memory_bytes_per_ns
    assert one.num_bytes[0] == 8 * 3 * 4096 * 1536 * 2 + 2 * 2 * 8 * 4096


def test_uneven_loads_take_longer_and_gates_cost_a_half_more() -> None:
    (even,) = experts_ns(shapes(tokens=8192, ranks=8), H100, START)
    (uneven,) = experts_ns(shapes(tokens=8192, ranks=8, skew=120), H100, START)
    (ungated,) = experts_ns(shapes(tokens=8192, ranks=8, gated=0), H100, START)

    assert uneven > 1.5 * even
    assert ungated < even
    flops = shapes(tokens=8192).num_flops / shapes(tokens=8192, gated=0).num_flops
    assert flops.tolist() == [1.5]


def test_widths_that_sixteen_does_not_divide_take_longer_where_sizes_are_specialised() -> None:
    served = {one.name: one.start for one in SERVED_CONSTANTS} | {"uneven": 1.0}
    sizes = np.array([(4096, 8, 128, 1, 4096, width, 1, 0) for width in (1528, 1536)], np.int64)
    both = ExpertShapes.of(sizes, "bf16")

    uneven_ns, even_ns = experts_ns(both, H100, served)
    plain_ns, _ = experts_ns(both, H100, START)

    assert uneven_ns > 1.5 * even_ns
    assert plain_ns <= even_ns
