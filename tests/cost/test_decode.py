"""Attention of new tokens: limits that any constants keep, and what shapes tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import Int64s, MachineError
from foretrace.cost.decode import OPERATOR_CONSTANTS, Cutting, DecodeShapes, decode_ns
from foretrace.cost.serving_tables import latent_sizes
from foretrace.machine import load_chip

START = {one.name: one.start for one in OPERATOR_CONSTANTS}
A100, H100, B200 = (load_chip(name) for name in ("a100-sxm-80gb", "h100-sxm", "b200-sxm"))


def shapes(
    *rows: tuple[int, ...], cutting: Cutting = Cutting.BEST, dtype: str = "bf16", total: int = 0
) -> DecodeShapes:
    """From rows of batch, heads, key heads, head size, length; `total` keys, if not as many."""
    sizes = [
        (batch, heads, keys, size, size, 2 * size, total or length, length, cutting)
        for batch, heads, keys, size, length in rows
    ]
    return DecodeShapes.of(np.array(sizes, np.int64), dtype)


@given(
    st.integers(1, 256),
    st.integers(1, 8),
    st.sampled_from((1, 2, 4, 8)),
    st.integers(1, 100_000),
)
def test_more_keys_never_take_less_and_nothing_beats_the_cache(
    batch: int, keys: int, group: int, length: int
) -> None:
    one = (batch, keys * group, keys, 128)
    short, long = decode_ns(shapes((*one, length), (*one, 2 * length)), H100, START)

    assert long >= short >= START["launch_ns"]
    fastest = H100.memory_bytes_per_ns * START["memory_rate"] * START["cache_rate"]
    assert short >= shapes((*one, length)).kept_bytes[0] / fastest


def test_long_contexts_are_read_at_the_rate_of_memory() -> None:
    read = shapes((64, 64, 8, 128, 65_536))

    (found,) = decode_ns(read, H100, START)

    ideal = read.kept_bytes[0] / (H100.memory_bytes_per_ns * START["memory_rate"])
    assert found == pytest.approx(ideal, rel=0.1)


def test_a_library_that_always_fills_the_chip_starts_its_pieces_in_vain() -> None:
    one = (16, 64, 8, 64, 128)
    window, total = (
        decode_ns(shapes(one, cutting=Cutting.FILLED, total=total), H100, START)[0]
        for total in (128, 65_536)
    )
    best = decode_ns(shapes(one, total=65_536), H100, START)[0]

    waves = START["most_waves"] - 1  # 128 blocks are one wave of a chip of 132 processors
    starts_ns = (
        waves * (START["block_cycles"] + 64 * START["size_cycles"]) / (H100.cycles_per_ns or 1)
    )
    assert total - window > 0.8 * starts_ns
    assert best < window + 0.2 * starts_ns


def test_eight_bits_are_cut_by_what_a_window_sees() -> None:
    one = (16, 64, 8, 64, 128)
    short, long = (
        decode_ns(shapes(one, cutting=Cutting.FILLED, dtype="fp8", total=total), H100, START)[0]
        for total in (256, 65_536)
    )

    assert short == long


def test_pieces_for_captured_graphs_are_as_many_whatever_the_keys() -> None:
    few, many, beyond = (
        decode_ns(shapes((batch, 8, 1, 512, 8), cutting=Cutting.FIXED), H100, START)[0]
        for batch in (256, 512, 1024)
    )

    assert many > 1.8 * few
    assert few > 3 * beyond


def test_what_kernels_there_are_is_told_by_the_chip() -> None:
    one: Int64s = np.array([8], np.int64)
    latent = DecodeShapes.of(latent_sizes(one, 16 * one, 4096 * one), "bf16")
    heads = shapes((64, 256, 8, 128, 4096), cutting=Cutting.FILLED)
    no_pieces = {**START, "split_ns": 1e9}

    assert decode_ns(latent, A100, no_pieces) == decode_ns(latent, A100, START)
    assert decode_ns(latent, H100, no_pieces) > decode_ns(latent, H100, START)
    # 32 heads of 128 numbers that share keys go one by one on Blackwell.
    alone = {**START, "head_cycles": 3.0}
    assert decode_ns(heads, H100, alone) == decode_ns(heads, H100, START)
    assert decode_ns(heads, B200, alone) > 2 * decode_ns(heads, B200, START)


def test_latent_attention_keeps_one_vector_for_all_heads() -> None:
    one: Int64s = np.ones(1, np.int64)
    latent = DecodeShapes.of(latent_sizes(one, 128 * one, 1000 * one), "bf16")
    whole = shapes((1, 128, 128, 192, 1000))

    assert latent.kept_bytes.tolist() == [1000 * 576 * 2]
    assert latent.num_flops.tolist() == [2 * 128 * 1000 * (576 + 512)]
    assert whole.kept_bytes[0] > 60 * latent.kept_bytes[0]


def test_heads_alone_read_what_they_share_again() -> None:
    (together,) = decode_ns(shapes((32, 64, 1, 256, 8192)), H100, START)
    (alone,) = decode_ns(shapes((32, 64, 1, 256, 8192), cutting=Cutting.FILLED), H100, START)

    assert alone > 2 * together


def test_a_chip_without_processors_has_no_such_cost() -> None:
    with pytest.raises(MachineError, match="num_processors"):
        decode_ns(shapes((1, 1, 1, 64, 8)), replace(H100, num_processors=None), START)
