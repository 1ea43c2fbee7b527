"""Settings of engines as vLLM writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.serve import engine_of, read_engine


def test_what_was_resolved_and_what_was_asked_for() -> None:
    engine = engine_of(
        {
            "vllm_version": "0.19.0",
            "engine_kwargs": {
                "model": "meta-llama/Llama-3.1-8B",
                "tensor_parallel_size": 2,
                "max_num_seqs": 64,
                "max_model_len": None,
                "seed": 42,
                "speculative_config": {
                    "method": "eagle",
                    "num_speculative_tokens": 3,
                    "acceptance_rate": 0.7,
                },
                "swap_space": 4,
            },
            "kv_cache": {"num_gpu_blocks": 2588, "block_size": 32, "enable_prefix_caching": False},
            "hardware": {"device_name": "NVIDIA L4", "device_total_memory_bytes": 24 << 30},
            "resolved_config": {
                "scheduler_config": {"async_scheduling": False, "max_num_batched_tokens": 512},
                "compilation_config": {"cudagraph_capture_sizes": [1, 2, 4]},
            },
        }
    )

    assert engine.model == "meta-llama/Llama-3.1-8B"
    assert (engine.tensor_parallel_size, engine.num_gpus) == (2, 2)
    assert (engine.max_num_seqs, engine.max_num_batched_tokens) == (64, 512)
    assert (engine.num_gpu_blocks, engine.block_size) == (2588, 32)
    assert not engine.enable_prefix_caching
    assert not engine.async_scheduling
    assert engine.captured() == (1, 2, 4)
    assert engine.unused == ("swap_space",)
    assert (engine.num_speculative_tokens, engine.acceptance_rate) == (3, 0.7)
    assert engine.has_drafts


def test_defaults_follow_the_memory() -> None:
    small, large = (
        engine_of({"engine_kwargs": {}, "hardware": {"device_total_memory_bytes": size << 30}})
        for size in (24, 80)
    )

    assert (small.max_num_seqs, small.max_num_batched_tokens) == (256, 2048)
    assert (large.max_num_seqs, large.max_num_batched_tokens) == (1024, 8192)


def test_graphs_are_made_for_twice_the_sequences_at_most() -> None:
    captured = engine_of({"max_num_seqs": 128}).captured()

    assert captured[:5] == (1, 2, 4, 8, 16)
    assert captured[-2:] == (248, 256)
    assert engine_of({"max_num_seqs": 256}).captured()[-2:] == (496, 512)
    assert engine_of({"enforce_eager": True}).captured() == ()


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"max_num_seqs": 0}, "'max_num_seqs' of engine is 0"),
        ({"enable_chunked_prefill": "yes"}, "'enable_chunked_prefill' of engine is 'yes'"),
        ({"pipeline_parallel_size": 0}, "'pipeline_parallel_size' of engine is 0"),
        (
            {
                "pipeline_parallel_size": 2,
                "speculative_config": {
                    "method": "ngram",
                    "acceptance_rate": 0.5,
                    "num_speculative_tokens": 2,
                },
            },
            "speculative_config beside pipeline_parallel_size",
        ),
        ({"engine_kwargs": [1]}, "no mapping"),
        ({"speculative_config": {"method": "ngram"}}, "state acceptance_rate from 0 to 1"),
        ({"speculative_config": {"method": "oracle"}}, "has method 'oracle': expected ngram"),
        (
            {"speculative_config": {"method": "mtp", "acceptance_rate": 1}},
            "'num_speculative_tokens' of speculative_config of engine",
        ),
    ],
)
def test_settings_that_are_none(stated: dict[str, object], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        engine_of(stated)


@pytest.mark.parametrize("text", ["{", "[]", json.dumps([1, 2])])
def test_a_file_that_is_none(text: str, tmp_path: Path) -> None:
    path = tmp_path / "meta.json"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(WorkloadError, match="as an engine's settings"):
        read_engine(path)


def test_batching_is_stated_and_what_has_no_effect_is_named() -> None:
    flat = engine_of({"model": "llama3.1-8b", "batching": "static", "swap_space": 4})

    assert flat.is_static
    assert flat.unused == ("swap_space",)
    assert not engine_of({"batching": "continuous"}).is_static
    with pytest.raises(WorkloadError, match="batching of engine is 'dynamic': expected"):
        engine_of({"batching": "dynamic"})
