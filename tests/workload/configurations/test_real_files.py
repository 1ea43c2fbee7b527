"""Files of the projects themselves, where their repositories lie: see `tests.repositories`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.workload import (
    Transformer,
    check_plan,
    complete,
    draft_of_configuration,
    load_model,
    model_of_configuration,
    read_configuration,
)
from tests.repositories import repository, shown

MEGATRON, TITAN = "NVIDIA+Megatron-LM", "pytorch+torchtitan"
BRIDGE, DEEPSPEED = "NVIDIA-NeMo+Megatron-Bridge", "microsoft+Megatron-DeepSpeed"
ACCELERATE = "huggingface+accelerate"
OLD_TITAN = "9810191bbb0385d8ac91cd31abbc7f4156a0d462^"  # the last commit with TOML files
CASES = "tests/functional_tests/test_cases"
RECIPES = "src/megatron/bridge/perf_recipes"

DEEPSEEK = "src/megatron/bridge/recipes/deepseek/h100/deepseek_v3.py"
# Repository, path, ranks to take, what the plan has then; a model's name where the file has none.
FILES: tuple[tuple[str, str, int, dict[str, object], str], ...] = (
    (
        MEGATRON,
        "examples/gpt3/train_gpt3_175b_distributed.sh",
        1024,
        {"tensor": 8, "pipeline": 16, "data": 8, "global_batch": 1536},
        "",
    ),
    (
        MEGATRON,
        "examples/llama/train_llama3_8b_h100_fp8.sh",
        8,
        {"data": 8, "sequence": 8192, "global_batch": 128},
        "",
    ),
    (
        MEGATRON,
        "examples/mixtral/train_mixtral_8x7b_distributed.sh",
        64,
        {"pipeline": 4, "expert": 8, "data": 16},
        "",
    ),
    (
        MEGATRON,
        "examples/megatron_fsdp/sbatch_mfsdp_deepseek_v3.sh",
        256,
        {"expert": 8, "micro_batch": 4, "global_batch": 2048, "data": 256},
        "deepseek-v3",
    ),
    (MEGATRON, "examples/gptoss/02_train.sh", 8, {"pipeline": 8, "global_batch": 128}, ""),
    (
        MEGATRON,
        "examples/rl/model_configs/qwen3_30b_a3b_moe.sh",
        8,
        {"tensor": 4, "expert": 2, "data": 2},
        "",
    ),
    (
        MEGATRON,
        f"{CASES}/gpt/gpt3_7b_tp1_pp4_memory_speed/model_config.yaml",
        8,
        {"pipeline": 4, "num_chunks": 8, "data": 2},
        "",
    ),
    (
        MEGATRON,
        f"{CASES}/gpt/gpt3_15b_8t_release/model_config.yaml",
        64,
        {"tensor": 8, "micro_batch": 4, "global_batch": 1152},
        "llama3-70b",
    ),
    (
        DEEPSPEED,
        "examples/pretrain_gpt3_175B.sh",
        1024,
        {"tensor": 8, "pipeline": 16, "global_batch": 1536},
        "",
    ),
    (DEEPSPEED, "examples_deepspeed/azure/run-175b.sh", 8, {"micro_batch": 4, "data": 8}, ""),
    (
        DEEPSPEED,
        "examples_deepspeed/curriculum_learning/ds_zero_stage_1_config_baseline.json",
        8,
        {"global_batch": 512, "data": 8},
        "gpt2-large",
    ),
    (
        TITAN,
        f"{OLD_TITAN}:torchtitan/models/llama3/train_configs/llama3_405b.toml",
        128,
        {"tensor": 8, "data": 16, "micro_batch": 2, "global_batch": 32},
        "",
    ),
    (
        TITAN,
        f"{OLD_TITAN}:torchtitan/models/llama3/train_configs/llama3_70b.toml",
        64,
        {"tensor": 8, "data": 8, "micro_batch": 8},
        "",
    ),
    (
        TITAN,
        f"{OLD_TITAN}:torchtitan/models/llama3/train_configs/llama3_8b.toml",
        8,
        {"data": 8, "micro_batch": 1},
        "",
    ),
    (
        TITAN,
        f"{OLD_TITAN}:torchtitan/models/deepseek_v3/train_configs/deepseek_v3_671b.toml",
        256,
        {"data": 256, "micro_batch": 4, "sequence": 4096},
        "",
    ),
    (
        TITAN,
        f"{OLD_TITAN}:torchtitan/models/qwen3/train_configs/qwen3_32b.toml",
        8,
        {"data": 8, "micro_batch": 2},
        "",
    ),
    (
        ACCELERATE,
        "examples/torch_native_parallelism/configs/tp_hsdp.yaml",
        8,
        {"tensor": 2, "data": 4, "shard_ranks": 2},
        "llama3-8b",
    ),
    (
        ACCELERATE,
        "examples/torch_native_parallelism/configs/cp.yaml",
        8,
        {"context": 8, "data": 1},
        "llama3-8b",
    ),
    (ACCELERATE, "examples/config_yaml_templates/fsdp.yaml", 2, {"data": 2}, "llama3-8b"),
    (ACCELERATE, "tests/test_configs/0_34_0_fp8.yaml", 2, {"data": 2}, "gpt2"),
)
# Repository, folder to have beside it, file and function, what the plan has; the model's name.
FUNCTIONS: tuple[tuple[str, str, str, int | None, dict[str, object], str], ...] = (
    (
        TITAN,
        "torchtitan",
        "torchtitan/models/llama3/config_registry.py:llama3_405b",
        128,
        {"tensor": 8, "data": 16, "micro_batch": 2},
        "llama3-405b",
    ),
    (
        TITAN,
        "torchtitan",
        "torchtitan/models/llama3/config_registry.py:llama3_8b",
        8,
        {"data": 8, "micro_batch": 1, "sequence": 8192},
        "llama3-8b",
    ),
    (
        BRIDGE,
        "src/megatron/bridge",
        f"{RECIPES}/llama/h100/llama3.py:llama3_70b_pretrain_64gpu_h100_bf16_config",
        None,
        {"tensor": 4, "pipeline": 4, "context": 2, "num_chunks": 5, "data": 2},
        "llama3-70b",
    ),
    (
        BRIDGE,
        "src/megatron/bridge",
        f"{RECIPES}/llama/h100/llama3.py:llama3_70b_pretrain_64gpu_h100_fp8cs_config",
        None,
        {"tensor": 4, "pipeline": 8, "num_chunks": 5, "data": 2},
        "llama3-70b",
    ),
    (
        BRIDGE,
        "src/megatron/bridge",
        f"{DEEPSEEK}:deepseek_v3_pretrain_1024gpu_h100_bf16_config",
        None,
        {"tensor": 2, "pipeline": 16, "expert": 64, "data": 32, "expert_tensor": 1},
        "deepseek-v3",
    ),
)


@pytest.mark.parametrize("case", FILES, ids=lambda case: case[1].rpartition(":")[2])
def test_a_file_is_read_right(case: tuple[str, str, int, dict[str, object], str]) -> None:
    name, path, ranks, expected, model_name = case
    found = read_configuration("\n" + shown(name, path))
    model = load_model(model_name) if model_name else model_of_configuration(found)
    draft = draft_of_configuration(found)
    if not draft.states("global_batch") and draft.sizes.passes is None:
        draft = draft.with_keys({"global_batch": 256})
    plan = complete(draft, model, ranks)

    assert isinstance(model, Transformer)
    check_plan(plan, model, ranks)
    assert {key: getattr(plan, key) for key in expected} == expected
    strange = [note for note in found.notes if "not understood" in note]
    assert sum(note.count(",") + 1 for note in strange) <= 4  # named, and few


@pytest.mark.parametrize("case", FUNCTIONS, ids=lambda case: case[2].rpartition(":")[2])
def test_a_function_is_read_right(
    case: tuple[str, str, str, int | None, dict[str, object], str], tmp_path: Path
) -> None:
    name, folder, path, ranks, expected, model_name = case
    packed = tmp_path / "it.tar"
    command = ["git", "-C", str(repository(name)), "archive", "-o", str(packed), "HEAD", folder]
    subprocess.run(command, check=True)
    shutil.unpack_archive(packed, tmp_path)
    found = read_configuration(tmp_path / path)
    model = model_of_configuration(found)
    plan = complete(draft_of_configuration(found), model, ranks)

    assert model.name == model_name
    assert {key: getattr(plan, key) for key in expected} == expected


def test_templates_and_mistakes_are_refused_in_a_sentence() -> None:
    for path in ("ds_config_gpt_TEMPLATE.json", "ds_config_gpt_Zero2_TEMPLATE.json"):
        with pytest.raises(WorkloadError, match="fill in a template's placeholders first"):
            read_configuration("\n" + shown(DEEPSPEED, f"examples_deepspeed/MoE/{path}"))
    found = read_configuration("\n" + shown(ACCELERATE, "tests/test_configs/invalid_keys.yaml"))
    assert any("invalid_key, another_invalid_key" in note for note in found.notes)


def test_every_training_script_of_megatron_is_read_or_refused_in_a_sentence() -> None:
    name = MEGATRON
    command = ["git", "-C", str(repository(name)), "ls-tree", "-r", "--name-only", "HEAD"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    wanted = [one for one in listed if one.startswith((f"{CASES}/gpt/", f"{CASES}/moe/"))]
    paths = [one for one in wanted if one.endswith("model_config.yaml")][::12]
    read = 0
    for path in paths:
        try:
            found = read_configuration("\n" + shown(name, path))
        except WorkloadError:
            continue
        read += "tensor" in found.fields

    assert len(paths) > 15
    assert read == len(paths)
