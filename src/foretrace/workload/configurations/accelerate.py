"""Accelerate's YAML: DistributedDataParallel, FSDP, or DeepSpeed, with the sizes of its mesh.

Source:
    huggingface/accelerate, src/accelerate/utils/dataclasses.py and commands/config.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from foretrace.base import WorkloadError, key_text
from foretrace.workload.configurations.arguments import leaves, parsed_yaml
from foretrace.workload.configurations.deepspeed import ZERO_LEVELS, zero_stage
from foretrace.workload.configurations.table import (
    ConfigurationFormat,
    ConfigurationText,
    Fields,
    JobConfiguration,
    SettingRow,
    Settings,
    Values,
    read_rows,
    row,
    sized,
    unread_notes,
)
from foretrace.workload.plan.plan import DDP_BUCKET_BYTES

_TITLE = "Accelerate's configuration"
_FSDP, _MESH, _DEEPSPEED = (
    "fsdp_config.fsdp_",
    "parallelism_config.parallelism_config_",
    "deepspeed_config.",
)
_STRATEGIES = {
    "FULL_SHARD": "zero3",
    "SHARD_GRAD_OP": "zero2",
    "NO_SHARD": "none",
    "HYBRID_SHARD": "zero3",
    "HYBRID_SHARD_ZERO2": "zero2",
}
_NUMBERED = dict(enumerate(_STRATEGIES, start=1))  # as older files state them
_IDLE = re.compile(
    r"(compute_env|debug|downcast|enable_cpu|machine_rank|main_|num_machines|num_processes|rdzv|same_net"
    r"|tpu_|use_cpu|gpu_ids|dynamo_config|fp8_config|mpirun|ipex|aws|sagemaker|profile|region|ec2|iam"
    r"|py_version|pytorch_version|image_uri|transformers_version|base_job|command_file|commands"
    r"|use_mps|gradient_clipping|parallelism_config\.\w*(backend|handler)|ipex_config"
    r"|fsdp_config\.fsdp_(auto_wrap|state_dict|sync_module|use_orig|cpu_ram|transformer_layer|version"
    r"|min_num|ignored|backward_prefetch)|deepspeed_config\.(zero3_init|gradient_clip|zero3_save"
    r"|deepspeed_multi|deepspeed_hostfile|deepspeed_(inc|exc)lusion)"
    r"|mixed_precision|fp16$|distributed_type|additional|name|job)"
)
_LACKING = {
    "fsdp_config.fsdp_offload_params": "parameters in host memory",
    "deepspeed_config.offload_optimizer_device": "states of the optimizer in host memory",
    "deepspeed_config.offload_param_device": "parameters in host memory",
    "deepspeed_config.deepspeed_config_file": "a file of DeepSpeed: state it as well",
    "distributed_type": "how ranks work together",
}


def _kind(given: Settings) -> str:
    return given.word("distributed_type", "NO").rpartition(".")[2].upper()


def _read_sharding(given: Settings) -> Fields:
    kind = _kind(given)
    if kind == "FSDP":
        return _read_fsdp(given)
    if kind == "DEEPSPEED" and given.has(f"{_DEEPSPEED}zero_stage"):
        return {"sharding": ZERO_LEVELS[zero_stage(given, f"{_DEEPSPEED}zero_stage")]}
    return {} if kind == "DEEPSPEED" else {"sharding": "none", "bucket_bytes": DDP_BUCKET_BYTES}


def _read_fsdp(given: Settings) -> Fields:
    written = given.values.get(f"{_FSDP}sharding_strategy", "FULL_SHARD")
    again = given.values.get(f"{_FSDP}reshard_after_forward")
    if isinstance(again, str) and again.upper() in _STRATEGIES:
        written, again = again, None
    name = _NUMBERED.get(written) if isinstance(written, int) else str(written).upper()
    if name not in _STRATEGIES:
        raise WorkloadError(
            f"'fsdp_sharding_strategy' of {given.where} is {written!r}: expected is one of "
            f"{', '.join(_STRATEGIES)}"
        )
    return {
        "sharding": _STRATEGIES[name],
        "reshard_after_forward": again is None or bool(again),
        "prefetch": 1,
    }


def _write_sharding(fields: Fields) -> Values:
    level = fields["sharding"]
    if level in {"none", "zero1"}:
        return {"distributed_type": "MULTI_GPU"}
    again = fields["reshard_after_forward"]
    found = {"distributed_type": "FSDP", f"{_FSDP}version": 2}
    if level == "zero2":
        return {"distributed_type": "FSDP", f"{_FSDP}sharding_strategy": "SHARD_GRAD_OP"}
    return {**found, f"{_FSDP}reshard_after_forward": again}


def _read_mesh(given: Settings) -> Fields:
    if not any(name.startswith(_MESH) for name in given.values):
        return {}
    copies, shard = (given.count(f"{_MESH}dp_{one}_size", 1) for one in ("replicate", "shard"))
    found: dict[str, object] = {"data": copies * shard}
    if copies > 1:
        context = given.count(f"{_MESH}cp_size", 1)
        found["shard_ranks"] = shard * context
    return found


def _write_mesh(fields: Fields) -> Values:
    if all(fields[axis] == 1 for axis in ("tensor", "context")) and not fields.get("shard_ranks"):
        return {}
    shard = max(
        (fields.get("shard_ranks") or fields["data"] * fields["context"]) // fields["context"], 1
    )
    if fields["sharding"] in {"none", "zero1"}:
        shard = 1
    return {f"{_MESH}dp_shard_size": shard, f"{_MESH}dp_replicate_size": fields["data"] // shard}


def _read_precision(given: Settings) -> Fields:
    word = given.word("mixed_precision", "no")
    if given.values.get("mixed_precision") is False:
        word = "no"  # YAML reads a bare no so
    if word not in {"no", "fp16", "bf16", "fp8"}:
        raise WorkloadError(
            f"'mixed_precision' of {given.where} is {word!r}: expected is no, fp16, bf16 or fp8"
        )
    half = {"no": "fp32", "fp8": "bf16"}.get(word, word)
    is_sharded = _kind(given) in {"FSDP", "DEEPSPEED"} and half != "fp32"
    return {
        "precision.products": "fp8" if word == "fp8" else half,
        "precision.activations": half,
        # Without sharding parameters stay in 32 bits and are converted where they are read.
        "precision.parameters": half if is_sharded else "fp32",
        "precision.gradients": "fp32",
        "precision.reduced": half if is_sharded else "fp32",
        "precision.optimizer_bytes": 12.0 if is_sharded else 8.0,
    }


def _write_precision(fields: Fields) -> Values:
    half, products = fields["precision.activations"], fields["precision.products"]
    return {"mixed_precision": products if products == "fp8" else "no" if half == "fp32" else half}


def _read_recompute(given: Settings) -> Fields:
    return {"recompute": "full" if given.flag(f"{_FSDP}activation_checkpointing") else "none"}


def _write_recompute(fields: Fields) -> Values:
    return {f"{_FSDP}activation_checkpointing": True} if fields["recompute"] == "full" else {}


ROWS = (
    row(
        f"{_FSDP}sharding_strategy {_FSDP}reshard_after_forward {_FSDP}forward_prefetch "
        f"{_DEEPSPEED}zero_stage",
        _read_sharding,
        _write_sharding,
    ),
    sized(f"{_MESH}tp_size", "tensor", 1),
    sized(f"{_MESH}cp_size", "context", 1),
    SettingRow((f"{_MESH}dp_replicate_size", f"{_MESH}dp_shard_size"), _read_mesh, _write_mesh),
    SettingRow(("mixed_precision",), _read_precision, _write_precision),
    SettingRow((f"{_FSDP}activation_checkpointing",), _read_recompute, _write_recompute),
)


def _recognises(text: str) -> bool:
    return (
        re.search(r"^(distributed_type|compute_environment|fsdp_config):", text, re.MULTILINE)
        is not None
    )


def _read(source: ConfigurationText) -> JobConfiguration:
    given = Settings(leaves(parsed_yaml(source.text, source.where)), source.where)
    passes = given.count(f"{_DEEPSPEED}gradient_accumulation_steps", 0)
    passes = passes or given.count("gradient_accumulation_steps", 0)
    return JobConfiguration(
        software="accelerate",
        fields=read_rows(ROWS, given),
        no_model="Accelerate's configurations state none: name the model",
        num_ranks=given.count("num_processes", 0) or None,
        passes=passes or None,
        notes=(
            *unread_notes(given, ROWS, lacking=_LACKING, idle=_IDLE.match, title=_TITLE),
            *_notes(given),
        ),
    )


def _notes(given: Settings) -> Iterator[str]:
    if _kind(given) == "MEGATRON_LM":
        yield "megatron_lm_config has no counterpart here: state Megatron-LM's arguments instead"
    strategy = str(given.values.get(f"{_FSDP}sharding_strategy", ""))
    if strategy.upper().startswith("HYBRID"):
        yield "HYBRID_SHARD divides within a host of unknown size: set ranks of [sharding]"


def _text(values: Values, sizes: JobConfiguration) -> str:
    lines = [f"num_processes: {sizes.num_ranks}"] if sizes.num_ranks else []
    sections: dict[str, list[str]] = {}
    for path, value in values.items():
        section, _, leaf = path.rpartition(".")
        shown = "'no'" if value == "no" else key_text(value)
        sections.setdefault(section, []).append(f"{leaf}: {shown}")
    lines += sections.pop("", [])
    for section, entries in sections.items():
        lines += [f"{section}:", *(f"  {entry}" for entry in entries)]
    return "\n".join([*lines, ""])


ACCELERATE = ConfigurationFormat(
    name="accelerate",
    title=_TITLE,
    recognises=_recognises,
    read=_read,
    rows=ROWS,
    text=_text,
)
