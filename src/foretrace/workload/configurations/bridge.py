"""Recipes of Megatron-Bridge and NeMo: Python functions, and YAML that overrides them.

What they set are Megatron's own settings under other names, so one table of names is all that is
added to Megatron's.

Source:
    NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/config.py and mixed_precision.py.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from foretrace.base import key_text
from foretrace.workload.configurations.arguments import leaves, parsed_yaml
from foretrace.workload.configurations.megatron import ROWS, configuration_of
from foretrace.workload.configurations.python_source import CALLED, GIVEN, PythonSource, Symbol
from foretrace.workload.configurations.table import (
    ConfigurationFormat,
    ConfigurationText,
    JobConfiguration,
    Settings,
    Values,
)

_TITLE = "the recipe"
# Settings that are not called as Megatron's argument is; those behind `not` say the opposite.
_PATHS: Mapping[str, str] = {
    "model.num_moe_experts": "num-experts",
    "model.virtual_pipeline_model_parallel_size": "num-virtual-stages-per-pipeline-rank",
    "model.num_layers_in_first_pipeline_stage": "decoder-first-pipeline-num-layers",
    "model.num_layers_in_last_pipeline_stage": "decoder-last-pipeline-num-layers",
    "model.gated_linear_unit": "swiglu",
    "not model.add_bias_linear": "disable-bias-linear",
    "not model.share_embeddings_and_output_weights": "untie-embeddings-and-output-weights",
    "not model.bias_dropout_fusion": "no-bias-dropout-fusion",
    "not model.bias_activation_fusion": "no-bias-swiglu-fusion",
    "not model.apply_rope_fusion": "no-rope-fusion",
    "not model.gradient_accumulation_fusion": "no-gradient-accumulation-fusion",
    "dataset.seq_length": "seq-length",
    "dataset.sequence_length": "seq-length",
    "train.global_batch_size": "global-batch-size",
    "train.micro_batch_size": "micro-batch-size",
    "ddp.bucket_size": "ddp-bucket-size",
    "ddp.use_distributed_optimizer": "use-distributed-optimizer",
    "ddp.use_megatron_fsdp": "use-megatron-fsdp",
    "ddp.data_parallel_sharding_strategy": "data-parallel-sharding-strategy",
    "ddp.overlap_grad_reduce": "overlap-grad-reduce",
    "ddp.overlap_param_gather": "overlap-param-gather",
    "ddp.num_distributed_optimizer_instances": "num-distributed-optimizer-instances",
    "ddp.grad_reduce_in_fp32": "accumulate-allreduce-grads-in-fp32",
    "comm_overlap.overlap_grad_reduce": "overlap-grad-reduce",
    "comm_overlap.overlap_param_gather": "overlap-param-gather",
    "comm_overlap.tp_comm_overlap": "tp-comm-overlap",
    "comm_overlap.bucket_size": "ddp-bucket-size",
    "not comm_overlap.overlap_p2p_comm": "no-overlap-p2p-communication",
    "comm_overlap.overlap_moe_expert_parallel_comm": "overlap-moe-expert-parallel-comm",
    "mixed_precision.fp8": "fp8-format",
    "mixed_precision.fp4": "fp4-format",
    "mixed_precision.fp8_recipe": "fp8-recipe",
    "mixed_precision.fp8_param_gather": "fp8-param-gather",
    "mixed_precision.grad_reduce_in_fp32": "accumulate-allreduce-grads-in-fp32",
    "mixed_precision.bf16": "bf16",
    "mixed_precision.fp16": "fp16",
    "not mixed_precision.grad_reduce_in_fp32 of bf16": "grad-reduce-in-bf16",
    "optimizer.optimizer": "optimizer",
    "optimizer.use_precision_aware_optimizer": "use-precision-aware-optimizer",
    "optimizer.main_params_dtype": "main-params-dtype",
    "optimizer.exp_avg_dtype": "exp-avg-dtype",
    "optimizer.exp_avg_sq_dtype": "exp-avg-sq-dtype",
}
_DTYPES = {
    "float32": "fp32",
    "bfloat16": "bf16",
    "float16": "fp16",
    "float8": "fp8",
    "uint8": "fp8",
}
_SCALINGS: Mapping[str, Values] = {
    "fp8_delayed_scaling": {"fp8": "hybrid", "fp8_recipe": "delayed", "fp8_param_gather": True},
    "fp8_current_scaling": {"fp8": "hybrid", "fp8_recipe": "tensorwise", "fp8_param_gather": True},
    "fp8_subchannel_scaling": {"fp8": "hybrid", "fp8_recipe": "blockwise"},
    "mxfp8": {"fp8": "e4m3", "fp8_recipe": "mxfp8", "fp8_param_gather": True},
    "nvfp4": {"fp4": "e2m1"},
}
# What every recipe begins with (recipes/common.py), for files that only override one.
_COMMON: Values = {
    "use-distributed-optimizer": True,
    "overlap-grad-reduce": True,
    "overlap-param-gather": True,
}
# Parts that say nothing of a step's time or memory.
_IDLE = (
    *("scheduler", "logger", "checkpoint", "tokenizer", "rng", "validation", "profiling", "rerun"),
    *("straggler", "nvrx", "inprocess", "ft", "dist", "env_vars", "peft", "tensor_inspect"),
)
_MIXED = "mixed_precision"
_ASIDE = (CALLED, GIVEN, "#", "tp_comm_overlap_cfg")  # of a path, that it is no setting
_RECIPE = re.compile(r"\b(?:cfg|recipe|config)\.(?:model|trainer\.strategy)\.\w+ *=")
_OVERRIDE = re.compile(r"^(?:model|ddp|comm_overlap|mixed_precision):\s*(?:#.*)?$", re.MULTILINE)
_NUM_GPUS = re.compile(r"_(\d+)gpus?(?:_|$)")
_RESHAPED = {
    "mtp-num-layers": "prediction_modules",
    "num-layers": "layers",
    "hidden-size": "hidden",
    "vocab-size": "vocabulary",
}


def _recognises(text: str) -> bool:
    return bool(_RECIPE.search(text) or (_OVERRIDE.search(text) and "distributed_type" not in text))


def _read(source: ConfigurationText) -> JobConfiguration:
    num_ranks = None
    if _RECIPE.search(source.text):
        python = PythonSource(source.text, source.path, source.where)
        found = python.returned(source.part)
        part = source.part or next(iter(python.candidates()), "")
        gpus = _NUM_GPUS.search(part)
        num_ranks = int(gpus[1]) if gpus else None
        table = dict(found) if isinstance(found, dict) else {}
    else:
        table = dict(parsed_yaml(source.text, source.where))
    pretrained = _pretrained(table.get("model"))
    given = Settings(_flags(table), source.where)
    made = configuration_of(given, software="bridge", title=_TITLE, num_ranks=num_ranks)
    if not pretrained:
        return made
    # The model is known by its name, and some of its sizes may be others.
    shape = {key: given.values[name] for name, key in _RESHAPED.items() if given.has(name)}
    return replace(made, model_name=pretrained, model={"shape": shape} if shape else None)


def _pretrained(model: object) -> str:
    """The name that a model's shape is fetched by."""
    return str(model.get("#0", "")) if isinstance(model, dict) else ""


def _flags(table: Mapping[str, Any]) -> dict[str, object]:
    """Settings under the names of Megatron's arguments."""
    precision = table.get(_MIXED, "bf16_mixed")
    table = {**table, _MIXED: _mixed(precision) if isinstance(precision, str) else precision}
    found: dict[str, object] = {} if "ddp" in table else dict(_COMMON)
    # A mixed precision overrides what other parts say of number formats.
    table = {**{key: one for key, one in table.items() if key != _MIXED}, _MIXED: table[_MIXED]}
    for path, written in leaves(table).items():
        head, _, leaf = path.rpartition(".")
        section = path.partition(".")[0]
        if section in _IDLE or leaf[:1] == "_" or any(word in path for word in _ASIDE):
            continue
        value = _plain(written, leaf)
        if f"not {path}" in _PATHS:
            if isinstance(value, bool):
                found[_PATHS[f"not {path}"]] = not value
        elif path in _PATHS:
            found[_PATHS[path]] = value
        elif head in {
            "model",
            "optimizer",
            "dataset",
            "train",
            "comm_overlap",
            "mixed_precision",
            "ddp",
        }:
            found.setdefault(leaf.replace("_", "-"), value)
        elif value is not None:
            found[path] = value
    if found.get("accumulate-allreduce-grads-in-fp32") is False and found.get("bf16"):
        found["grad-reduce-in-bf16"] = True
    if found.get("num-query-groups"):
        found["group-query-attention"] = True
    return found


def _mixed(name: str) -> Values:
    """What the name of a mixed precision stands for."""
    half = "fp16" if name.startswith("fp16") else "bf16"
    scaling = next((made for word, made in _SCALINGS.items() if word in name), {})
    return {half: True, "grad_reduce_in_fp32": half == "bf16", **scaling}


def _plain(written: object, leaf: str) -> object:
    """A value as Megatron's argument has it."""
    if leaf == "pipeline_model_parallel_layout" and isinstance(written, list):
        letters = {"embedding": "E", "decoder": "t", "mtp": "m", "loss": "L"}
        return "|".join("".join(letters.get(str(one), "") for one in part) for part in written)
    if isinstance(written, Symbol):
        last = written.rpartition(".")[2]
        return _DTYPES.get(last, last if written.startswith("AttnBackend") else f"${written}")
    return written


def _text(values: Values, sizes: JobConfiguration) -> str:
    paths = {flag: path for path, flag in reversed(tuple(_PATHS.items()))}
    sections: dict[str, list[str]] = {}
    # What a recipe turns on unless told otherwise is told otherwise.
    unless: Values = dict.fromkeys((*_COMMON, "bf16"), False)
    for flag, value in {**unless, **values}.items():
        if flag == "group-query-attention":
            continue  # follows from the number of groups
        path = paths.get(flag, f"model.{flag.replace('-', '_')}")
        said = (not value) if path.startswith("not ") else value
        section, _, leaf = path.removeprefix("not ").removesuffix(" of bf16").partition(".")
        shown = f'"{said}"' if isinstance(said, str) else key_text(said)
        sections.setdefault(section, []).append(f"  {leaf}: {shown}")
    lines = [f"# {sizes.num_ranks} GPUs"] if sizes.num_ranks else []
    for section, entries in sections.items():
        lines += [f"{section}:", *entries]
    return "\n".join([*lines, ""])


BRIDGE = ConfigurationFormat(
    name="bridge",
    title="a recipe of Megatron-Bridge or NeMo",
    recognises=_recognises,
    read=_read,
    rows=ROWS,
    text=_text,
)
