"""Settings of engines as vLLM writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.serve import engine_named, engine_of, read_engine


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


def test_limits_that_are_left_out_are_those_of_the_gpu() -> None:
    plain = engine_of({"model": "llama3.1-8b", "max_model_len": 16384})

    large, a100, small = (
        plain.on(size << 30, name)
        for size, name in ((80, "H100 SXM"), (80, "A100-SXM4-80GB"), (24, "L4"))
    )
    whole = engine_of({"max_model_len": 16384, "enable_chunked_prefill": False})
    stated = engine_of({"max_num_seqs": 16, "max_model_len": 100}).on(80 << 30, "H100 SXM")

    assert (large.max_num_seqs, large.max_num_batched_tokens) == (1024, 8192)
    assert (a100.max_num_seqs, a100.max_num_batched_tokens) == (256, 2048)
    assert (small.max_num_seqs, small.max_num_batched_tokens) == (256, 2048)
    assert whole.on(24 << 30, "L4").max_num_batched_tokens == 16384
    assert (stated.max_num_seqs, stated.max_num_batched_tokens) == (16, 1600)


def test_keywords_are_read_as_a_command_line_has_them() -> None:
    engine = engine_of(
        {
            "--max-num-seqs": 64,
            "tp": 2,
            "speculative-config": '{"method": "ngram", "num_speculative_tokens": 3, '
            '"acceptance_rate": 0.5}',
            "compilation_config": {"cudagraph_capture_sizes": [4, 1, 2]},
        }
    )

    assert (engine.max_num_seqs, engine.tensor_parallel_size) == (64, 2)
    assert engine.num_speculative_tokens == 3
    assert engine.captured() == (1, 2, 4)
    assert engine.unused == ()


def test_who_carries_tokens_counts_where_copies_share_experts() -> None:
    assert engine_of({"all2all_backend": "mori", "data_parallel_size": 2}).expert_gpus == 2


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
        ({"gpu_memory_utilization": 90}, "a share of the memory, above 0 and at most 1"),
        ({"max_num_seqs": 2**21}, "at most 1,048,576 is expected"),
        ({"dtype": "float32"}, "models are served in 16 bit here"),
        ({"cpu_offload_gb": 10}, "weights that wait in the host's memory"),
        ({"runner": "pooling"}, "only models that make tokens"),
        ({"speculative_model": "[ngram]"}, "state speculative_config"),
        ({"decode-context-parallel-size": 2}, "keys of a sequence over several GPUs"),
        (
            {
                "all2all_backend": "mori",
                "enable_expert_parallel": True,
                "data_parallel_size": 2,
            },
            "where one of allgather_reducescatter, naive, deepep",
        ),
        ({"cudagraph_capture_sizes": 8}, "expected a list of tokens"),
        ({"speculative_config": "{"}, "cannot read speculative_config of engine"),
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


@pytest.mark.parametrize(
    "text",
    [
        "--tensor-parallel-size 4 --no-enable-prefix-caching --max-num-seqs=64 --enforce-eager",
        "-tp 4 --no_enable_prefix_caching --max_num_seqs 64 --enforce-eager",
        '{"tp": 4, "enable_prefix_caching": false, "max_num_seqs": 64, "enforce_eager": true}',
    ],
)
def test_a_command_line_says_what_a_file_does(text: str) -> None:
    engine = engine_named(text)

    assert engine.tensor_parallel_size == 4
    assert not engine.enable_prefix_caching
    assert engine.max_num_seqs == 64
    assert engine.enforce_eager
    assert engine.unused == ()


def test_a_whole_line_names_its_model_and_has_mappings() -> None:
    engine = engine_named(
        "vllm serve meta-llama/Llama-3.1-8B -tp 2 "
        "--compilation-config '{\"cudagraph_capture_sizes\": [1, 2, 8]}' --swap-space 4"
    )

    assert engine.model == "meta-llama/Llama-3.1-8B"
    assert engine.tensor_parallel_size == 2
    assert engine.capture_sizes == (1, 2, 8)
    assert engine.unused == ("swap_space",)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("--tensor-parallel-size '4", "as an engine's command line: No closing quotation"),
        ("--compilation-config {nothing}", "cannot read --compilation-config as JSON"),
        ("--tensor-parallel-size many", "tensor_parallel_size"),
        ("--tensor-paralel-size 2", "did you mean 'tensor_parallel_size'"),
        ("{", "cannot read the engine's settings as JSON"),
        ("nowhere.json", "cannot read nowhere.json as an engine's settings: No such file"),
    ],
)
def test_a_command_line_that_cannot_be_read_is_one_sentence(text: str, why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        engine_named(text)
