"""Conventions of FLOPs, and how far attention reaches."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import WorkloadError
from foretrace.workload import (
    Convention,
    Reach,
    ReachKind,
    Recompute,
    Transformer,
    cache_bytes,
    flops,
    load_model,
    parameters,
    weight_bytes,
)
from foretrace.workload.models.flops import mean_keys
from tests.models import transformer
from tests.workload.models.strategies import reaches, transformers


def pairs_seen(sequence: int, reach: Reach | None) -> int:
    """Pairs of a token and one not after it that attention looks at, one by one."""

    def sees(query: int, key: int) -> bool:
        if reach is None:
            return True
        if reach.kind is ReachKind.CHUNK:
            return query // reach.num_tokens == key // reach.num_tokens
        return query - key < reach.num_tokens

    return sum(sees(query, key) for query in range(sequence) for key in range(query + 1))


@given(sequence=st.integers(1, 40), reach=st.none() | reaches)
def test_the_causal_half_is_what_is_seen_less_half_the_diagonal(
    sequence: int, reach: Reach | None
) -> None:
    found = mean_keys(sequence, reach, Convention.CAUSAL) * sequence

    if reach is None or reach.kind is ReachKind.CHUNK or reach.num_tokens >= sequence:
        assert found == pytest.approx(pairs_seen(sequence, reach) - sequence / 2)
    else:
        # A window has a second edge, along which the convention takes off half as well.
        assert found == pytest.approx(pairs_seen(sequence, reach) - reach.num_tokens / 2)


@given(sequence=st.integers(1, 40), reach=st.none() | reaches)
def test_all_is_never_less_than_the_causal_half(sequence: int, reach: Reach | None) -> None:
    causal = mean_keys(sequence, reach, Convention.CAUSAL)

    whole = mean_keys(sequence, reach, Convention.FULL)

    assert causal <= whole <= 2 * causal + 1e-9


def test_chunks_change_nothing_within_one_chunk() -> None:
    model = transformer("llama4-scout")
    endless = replace(model, reach=None)

    for sequence in (1024, 8192):
        assert flops(model, sequence) == flops(endless, sequence)


def test_a_chunked_layer_costs_chunk_over_sequence_of_a_full_one() -> None:
    reach = transformer("llama4-scout").reach
    sequence = 2**20

    for convention in (Convention.CAUSAL, Convention.FULL):
        ratio = mean_keys(sequence, reach, convention) / mean_keys(sequence, None, convention)
        assert ratio == 8192 / sequence


def test_chunked_layers_keep_no_more_than_a_chunk() -> None:
    model = transformer("llama4-scout")
    per_token = 2 * 8 * 128 * 2

    assert cache_bytes(model, 2**20) == per_token * (12 * 2**20 + 36 * 8192)
    assert cache_bytes(model, 4096) == per_token * 48 * 4096


def test_conventions_of_a_dense_model_are_the_textbook_ones() -> None:
    model = transformer("llama2-7b")
    layers, hidden, sequence = 32, 4096, 2048
    matrices = layers * (4 * hidden**2 + 3 * hidden * 11008) + 32000 * hidden
    scores = layers * hidden * sequence

    assert flops(model, sequence).training == 6 * matrices + 6 * scores
    full = flops(model, sequence, convention=Convention.FULL)
    assert full.training == 6 * matrices + 12 * scores
    assert flops(model, sequence, has_output=False).forward == (
        2 * (matrices - 32000 * hidden) + 2 * scores
    )
    whole = flops(model, convention=Convention.PARAMETERS)
    assert whole.training == 6 * parameters(model).total
    inner = flops(model, convention=Convention.PARAMETERS_WITHOUT_EMBEDDINGS)
    assert inner.training == 6 * (parameters(model).total - 2 * 32000 * hidden)


def test_a_tied_table_is_left_out_once() -> None:
    model = transformer("llama3.2-1b")

    inner = flops(model, convention=Convention.PARAMETERS_WITHOUT_EMBEDDINGS)

    assert inner.forward == 2 * (parameters(model).total - 128256 * 2048)


def test_recomputation_repeats_the_scores_or_the_layers() -> None:
    model = transformer("llama3.1-70b")
    found = {each: flops(model, 8192, recompute=each) for each in Recompute}
    scores = next(part for part in found[Recompute.NONE].parts if part.part == "attention scores")

    assert found[Recompute.NONE].recompute == 0
    assert found[Recompute.SELECTIVE].recompute == scores.forward == 2 * 80 * 8192 * 8192
    layers = flops(model, 8192, has_output=False).forward
    assert found[Recompute.FULL].recompute == layers
    assert len({each.training for each in found.values()}) == 1


@given(model=transformers(), sequence=st.integers(1, 30))
def test_parts_sum_to_the_whole(model: Transformer, sequence: int) -> None:
    found = flops(model, sequence, recompute=Recompute.FULL)

    assert sum(part.forward for part in found.parts) == pytest.approx(found.forward)
    if model.attention.indexer is None or not any(one.has_attention for one in model.layers):
        assert found.training == pytest.approx(3 * found.forward)
    assert found.as_json()["training"] == found.training


def test_scores_need_a_sequence() -> None:
    with pytest.raises(
        WorkloadError, match=r"'llama3-8b' .* length of the sequence.*give a number"
    ):
        flops(transformer("llama3-8b"))


def test_totals_have_no_scores() -> None:
    with pytest.raises(WorkloadError, match=r"only totals are published .* 'parameters'"):
        flops(load_model("llama4-behemoth"), 4096)


def test_flops_of_a_sample_are_those_published_where_nothing_else_is() -> None:
    found = flops(load_model("zionex-793b"))

    assert (found.unit, found.forward) == ("sample", 638e6)


@pytest.mark.parametrize(
    ("number_format", "expected"), [("fp32", 4), ("torch.bfloat16", 2), ("fp8", 1), ("fp4", 0.5)]
)
def test_weights_take_the_bytes_of_their_format(number_format: str, expected: float) -> None:
    model = transformer("llama3-8b")

    assert weight_bytes(model, number_format) == expected * 8_030_261_248


def test_an_unknown_number_format_names_the_nearest() -> None:
    with pytest.raises(WorkloadError, match=r"'bf15' is unknown.*did you mean 'bf16'"):
        weight_bytes(transformer("llama3-8b"), "bf15")
