"""The models that come with foretrace, against what was published about them."""

from __future__ import annotations

import pytest

from foretrace.workload import (
    Convention,
    Diffusion,
    Recommender,
    TotalsOnly,
    Transformer,
    account,
    cache_bytes_per_token,
    flops,
    load_model,
    model_names,
    parameters,
)
from tests.models import transformer

NAMES = model_names()

# Billions, three decimals: computed by hand from the shapes, apart from this code.
TOTALS = {
    "llama2-7b": "6.738",
    "llama2-13b": "13.016",
    "llama2-34b": "33.744",
    "llama2-70b": "68.977",
    "llama3-8b": "8.030",
    "llama3-70b": "70.554",
    "llama3.1-8b": "8.030",
    "llama3.1-70b": "70.554",
    "llama3.1-405b": "405.853",
    "llama3-405b": "405.853",
    "llama3.2-1b": "1.236",
    "llama3.2-3b": "3.213",
    "gpt3-small": "0.125",
    "gpt3-medium": "0.356",
    "gpt3-large": "0.760",
    "gpt3-xl": "1.517",
    "gpt3-2.7b": "2.652",
    "gpt3-6.7b": "6.658",
    "gpt3-13b": "12.936",
    "gpt3-175b": "174.604",
    "llama4-scout": "107.770",
    "llama4-maverick": "400.712",
    "dlrm-mlperf-v1": "26.138",
    "stable-diffusion-1.5": "0.860",
    "stable-diffusion-xl": "2.567",
    "stable-diffusion-3-medium": "2.028",
    "flux.1-dev": "11.901",
}


@pytest.mark.parametrize("name", NAMES)
def test_every_number_has_a_source_with_an_address(name: str) -> None:
    model = load_model(name)

    assert model.title
    assert model.entries
    for entry in model.entries:
        assert entry.source is not None, entry.key
        assert entry.source.title, entry.key
        assert entry.source.url.startswith("https://"), entry.key


@pytest.mark.parametrize("name", NAMES)
def test_a_published_total_agrees_or_says_why_not(name: str) -> None:
    for each in account(load_model(name)).comparisons:
        assert each.agrees != bool(each.why), f"{each.what}: {each.text}, {each.counted:,}"


def test_most_published_totals_agree() -> None:
    found = [each for name in NAMES for each in account(load_model(name)).comparisons]

    agreeing = [each for each in found if each.agrees]

    assert len(found) > 75
    assert len(agreeing) >= 0.75 * len(found)
    # Counts of weights to the last one leave no room.
    assert sum(each.text.isdigit() for each in agreeing) > 25


def test_every_shaped_language_model_has_a_published_total() -> None:
    lacking = [
        name
        for name in NAMES
        if isinstance(model := load_model(name), Transformer) and not model.published.parameters
    ]

    assert lacking == []


@pytest.mark.parametrize(("name", "billions"), TOTALS.items())
def test_totals_are_those_of_the_table(name: str, billions: str) -> None:
    assert f"{parameters(load_model(name)).total / 1e9:.3f}" == billions


@pytest.mark.parametrize(("name", "billions"), [("scout", "17.173"), ("maverick", "17.185")])
def test_active_parameters_of_llama_4(name: str, billions: str) -> None:
    assert f"{parameters(load_model(f'llama4-{name}')).active / 1e9:.3f}" == billions


def test_llama_4_alternates_experts_and_chunks() -> None:
    maverick, scout = transformer("llama4-maverick"), transformer("llama4-scout")

    assert [layer.index for layer in maverick.layers if layer.has_experts] == list(range(1, 48, 2))
    assert all(layer.has_experts for layer in scout.layers)
    for model in (maverick, scout):
        full = [layer.index for layer in model.layers if layer.reach is None]
        assert full == list(range(3, 48, 4))


def test_heads_need_not_fill_the_hidden_size() -> None:
    widths = {
        name: transformer(name).attention.num_heads * transformer(name).attention.head_size
        for name in ("gpt3-xl", "lumos-44b", "lumos-v3", "qwen3-32b")
    }

    assert widths == {"gpt3-xl": 3072, "lumos-44b": 6144, "lumos-v3": 6144, "qwen3-32b": 8192}


def test_the_prediction_module_of_deepseek_v3_has_a_layer_and_a_projection() -> None:
    without, with_module = transformer("deepseek-v3"), transformer("deepseek-v3-mtp")
    attention = (
        7168 * 1536 + 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 + 512 * 128 * 256 + 128**2 * 7168
    )
    layer = attention + 257 * 3 * 7168 * 2048 + 7168 * 256 + 256 + 2 * 7168

    module = parameters(with_module).total - parameters(without).total

    assert module == layer + 2 * 7168**2 + 3 * 7168


def test_latent_attention_keeps_one_short_vector() -> None:
    # 512 + 64 numbers of two bytes in 61 layers; 70 KB in section 2.1 of arXiv 2412.19437.
    assert cache_bytes_per_token(transformer("deepseek-v3")) == 61 * 576 * 2


def test_grouped_attention_keeps_fewer_heads() -> None:
    assert cache_bytes_per_token(transformer("llama3.1-405b")) == 2 * 126 * 8 * 128 * 2


def test_the_recommender_of_mlperf_has_the_published_tables() -> None:
    model = load_model("dlrm-mlperf-v2")
    assert isinstance(model, Recommender)

    assert sum(model.rows) == 204_184_588
    assert model.num_lookups == 214
    assert f"{4 * sum(model.rows) * model.size / 2**30:.1f}" == "97.4"
    assert model.num_lookups * model.size == 214 * 128


def test_the_unet_sees_a_quarter_of_the_positions_at_each_level() -> None:
    model = load_model("stable-diffusion-1.5")
    assert isinstance(model, Diffusion)

    assert model.sequence_lengths == (4096, 1024, 256, 64)
    assert parameters(model).total == 859_520_964


def test_attention_over_time_costs_frames_over_positions_of_that_within() -> None:
    model = load_model("modelscope-video")
    assert isinstance(model, Diffusion)
    part = {each.part: each.forward for each in flops(model).parts}

    # The level with 1024 positions dominates; two attentions over time stand for one within.
    ratio = part["attention over time"] / part["attention within frames"]

    assert 2 * 16 / 1024 < ratio < 2 * 16 / 16


def test_a_model_of_totals_has_no_layers_to_count() -> None:
    model = load_model("llama4-behemoth")
    assert isinstance(model, TotalsOnly)

    assert parameters(model).active == 288_000_000_000
    assert flops(model, convention=Convention.PARAMETERS).training == 6 * 288e9
