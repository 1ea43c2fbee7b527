from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.cost import AttentionShapes, attention_ns
from foretrace.cost.attention import CONSTANTS
from foretrace.machine import load_chip

CHIP = load_chip("h100-sxm")
STARTS = {one.name: one.start for one in CONSTANTS}
LONG = (8, 32, 32, 128, 8192, 8192, 0)


def duration_ns(*sizes: int, is_backward: bool = False) -> float:
    shapes = AttentionShapes.of(np.array([sizes]), "bf16", is_backward=is_backward)
    return float(attention_ns(shapes, CHIP, STARTS)[0])


@given(
    st.integers(1, 16),
    st.integers(1, 64),
    st.sampled_from([32, 64, 80, 128, 192, 256]),
    st.integers(1, 16_384),
    st.booleans(),
)
def test_no_attention_beats_the_data_sheet(
    batch: int, heads: int, head_size: int, length: int, is_causal: bool
) -> None:
    sizes = np.array([[batch, heads, heads, head_size, length, length, int(is_causal)]])
    shapes = AttentionShapes.of(sizes, "bf16")
    peak = CHIP.peak_flops_per_ns("bf16")
    assert peak is not None

    found_ns = attention_ns(shapes, CHIP, STARTS)[0]

    assert found_ns >= shapes.num_flops[0] / peak
    assert found_ns >= shapes.num_bytes[0] / CHIP.memory_bytes_per_ns


def test_few_long_heads_above_256_numbers_fill_the_chip_with_blocks_of_32_rows() -> None:
    launch_ns = STARTS["launch_ns"]
    short_ns = duration_ns(1, 1, 1, 256, 4096, 4096, 0) - launch_ns  # 32 blocks of 128 rows
    broad_ns = duration_ns(1, 1, 1, 512, 4096, 4096, 0) - launch_ns  # 128 blocks of 32

    assert broad_ns < short_ns  # twice the work, a quarter of it in each block
    assert broad_ns > short_ns / 4


def test_a_causal_mask_leaves_half_of_long_sequences() -> None:
    full_ns = duration_ns(*LONG)
    causal_ns = duration_ns(*LONG[:-1], 1)

    assert causal_ns / full_ns == pytest.approx(0.5, abs=0.03)


def test_shared_keys_save_traffic_and_no_arithmetic() -> None:
    own = AttentionShapes.of(np.array([LONG]), "bf16")
    shared = AttentionShapes.of(np.array([(8, 32, 4, *LONG[3:])]), "bf16")

    assert shared.num_flops == own.num_flops
    assert shared.num_bytes < own.num_bytes
    assert attention_ns(shared, CHIP, STARTS)[0] < attention_ns(own, CHIP, STARTS)[0]


def test_backward_takes_two_and_a_half_times_as_long_at_the_same_rate() -> None:
    no_softmax = {**STARTS, "softmax_cycles": 1e-9}
    shapes = AttentionShapes.of(np.array([LONG]), "bf16")

    forward_ns = attention_ns(shapes, CHIP, no_softmax)[0]
    backward_ns = attention_ns(replace(shapes, is_backward=True), CHIP, no_softmax)[0]

    assert backward_ns / forward_ns == pytest.approx(2.5, abs=0.05)


def test_a_chunk_sees_all_keys_before_it() -> None:
    whole_ns = duration_ns(1, 32, 32, 128, 8192, 8192, 1)
    first_ns = duration_ns(1, 32, 32, 128, 4096, 4096, 1)
    second_ns = duration_ns(1, 32, 32, 128, 4096, 8192, 1)

    assert second_ns > 2.5 * first_ns
    assert first_ns + second_ns == pytest.approx(whole_ns, rel=0.1)


def test_packed_sequences_share_one_launch() -> None:
    sizes = np.array([(1, 32, 32, 128, length, length, 1) for length in (100, 300, 2000)])
    apart = AttentionShapes.of(sizes, "bf16")
    packed = replace(apart, launch=np.zeros(3, np.int64))

    together_ns = attention_ns(packed, CHIP, STARTS)

    assert len(together_ns) == 1
    assert attention_ns(apart, CHIP, STARTS).max() <= together_ns[0]
    assert together_ns[0] < attention_ns(apart, CHIP, STARTS).sum()
