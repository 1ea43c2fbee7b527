"""Attention of new tokens: limits that any constants keep, and what shapes tell."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import Int64s, MachineError
from foretrace.cost.decode import CONSTANTS, DecodeShapes, decode_ns
from foretrace.cost.serving_tables import latent_sizes
from foretrace.machine import load_chip

START = {one.name: one.start for one in CONSTANTS}
H100 = load_chip("h100-sxm")


def shapes(*rows: tuple[int, ...], by_head: int = 0, dtype: str = "bf16") -> DecodeShapes:
    """From rows of batch, heads, key heads, head size, length."""
    sizes = [
        (batch, heads, keys, size, size, 2 * size, length, by_head)
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


def test_latent_attention_keeps_one_vector_for_all_heads() -> None:
    one: Int64s = np.ones(1, np.int64)
    latent = DecodeShapes.of(latent_sizes(one, 128 * one, 1000 * one), "bf16")
    whole = shapes((1, 128, 128, 192, 1000))

    assert latent.kept_bytes.tolist() == [1000 * 576 * 2]
    assert latent.num_flops.tolist() == [2 * 128 * 1000 * (576 + 512)]
    assert whole.kept_bytes[0] > 60 * latent.kept_bytes[0]


def test_heads_alone_read_what_they_share_again() -> None:
    (together,) = decode_ns(shapes((32, 64, 1, 256, 8192)), H100, START)
    (alone,) = decode_ns(shapes((32, 64, 1, 256, 8192), by_head=1), H100, START)

    assert alone > 2 * together


def test_a_chip_without_processors_has_no_such_cost() -> None:
    with pytest.raises(MachineError, match="num_processors"):
        decode_ns(shapes((1, 1, 1, 64, 8)), replace(H100, num_processors=None), START)
