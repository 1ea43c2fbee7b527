"""torchtitan's configurations: TOML as of 2024 and 2025, and Python functions since.

Source:
    pytorch/torchtitan, torchtitan/config/job_config.py and configs.py: names and defaults.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from typing import Any

from foretrace.base import WorkloadError, key_text
from foretrace.workload.configurations.arguments import leaves
from foretrace.workload.configurations.python_source import CALLED, PythonSource
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
    switched,
    unread_notes,
)

_TITLE = "torchtitan's configuration"
_SCHEDULES = {"1F1B": "1f1b", "Interleaved1F1B": "interleaved", "GPipe": "gpipe"}
_PARALLEL = "parallelism."
# Older places of settings.
_MOVED = {
    "training.batch_size": "training.local_batch_size",
    "training.data_parallel_degree": "parallelism.data_parallel_shard_degree",
    "training.compile": "compile.enable",
    "compile.enable_async_tensor_parallel": "parallelism.enable_async_tensor_parallel",
    "experimental.pipeline_parallel_microbatches": "parallelism.num_pp_microbatches",
    "training.enable_float8_linear": "float8.enable_float8_linear",
    "training.max_context_length": "training.seq_len",
    "parallelism.pipeline_parallel_microbatches": "parallelism.num_pp_microbatches",
}
_IDLE = re.compile(
    r"(job|profil|metrics|optimizer|lr_scheduler|checkpoint|comm|memory_estimation|valid|fault_tol"
    r"|experimental\.custom|debug|dataloader|loss|hf_assets|dump|tokenizer|lora|ft\.|override"
    r"|training\.(steps|max_norm|dataset|seed|gc_|deterministic|debug|warmup|tokenizer)"
    r"|model\.(tokenizer|hf_assets|name|flavor|norm_type|print)|model_spec"
    r"|activation_checkpoint\.(per_op|early|mem|preserve|debug|determ|visual)"
    r"|compile\.(components|backend)|parallelism\.(spmd|context_parallel_(load|rotate|ptrr))"
    r"|.*(precompute_float8|filter_fqns|fqns|force_recompute|recipe_name|mxfp8_dim1|emulate))"
)
_LACKING = {
    "training.enable_cpu_offload": "parameters and states in host memory",
    "parallelism.module_fqns_per_model_part": "modules of each stage by name",
    "parallelism.pipeline_parallel_layers_per_stage": "layers of each stage",
    "parallelism.pipeline_parallel_first_stage_less_layers": "fewer layers on the first stage",
    "parallelism.pipeline_parallel_last_stage_less_layers": "fewer layers on the last stage",
    "parallelism.pipeline_parallel_schedule_csv": "an order of units: name its file as schedule",
    "parallelism.pipeline_parallel_split_points": "modules of each stage by name",
    "parallelism.enable_compiled_autograd": "a compiled backward pass",
    "parallelism.enable_fsdp_symm_mem": "collectives from registered memory",
    "parallelism.disable_loss_parallel": "a loss that tensor ranks do not divide",
    "training.dtype": "parameters kept in another format than 32 bits",
}
_NEW_CONFIG = re.compile(r"\bTrainer\.Config\b|\bJobConfig\b")
_OLD_CONFIG = re.compile(
    r"^\s*(?:flavor|local_batch_size|seq_len|tensor_parallel_degree|data_parallel_\w*degree) *=",
    re.MULTILINE,
)

# Whose are those of products of eight bits, newest first; `_FLOAT8` is how they are written.
_FLOAT8 = "quantize.linear.float8"
_FLOAT8_PLACES = (_FLOAT8, "quantize.dense.float8", "float8")
_GATHERED = "enable_fsdp_float8_all_gather"
_RECIPE = "recipe_name"
# Converters are arguments of a model since April 2026, when "rowwise" became the default.
_OF_MODEL = ("model_spec.(with).converters", "model_spec.(with).quantization")
_OF_TRAINER = ("model.converters", "model_converters.converters")
_RECIPES: dict[str, Fields] = {
    "tensorwise": {"precision.scales": "tensor", "precision.wide_weight_gradients": False},
    "rowwise": {"precision.scales": "row", "precision.wide_weight_gradients": False},
    "rowwise_with_gw_hp": {"precision.scales": "row", "precision.wide_weight_gradients": True},
}


def _read_data(given: Settings) -> Fields:
    shard = given.values.get(_PARALLEL + "data_parallel_shard_degree", -1)
    copies = given.count(_PARALLEL + "data_parallel_replicate_degree", 1)
    context = given.count(_PARALLEL + "context_parallel_degree", 1)
    if not isinstance(shard, int) or isinstance(shard, bool) or shard in {-1, 0}:
        return {"sharding": "zero3"}
    if shard == 1:
        return {"sharding": "zero3" if context > 1 else "none", "data": copies}
    found: dict[str, object] = {"sharding": "zero3", "data": shard * copies}
    return {**found, "shard_ranks": shard * context} if copies > 1 else found


def _write_data(fields: Fields) -> Values:
    degree, copies = (
        _PARALLEL + "data_parallel_shard_degree",
        _PARALLEL + "data_parallel_replicate_degree",
    )
    data, ranks = fields["data"], fields.get("shard_ranks")
    if fields["sharding"] != "zero3":
        return {degree: 1, copies: data}
    if ranks is None or ranks >= data * fields["context"]:
        return {degree: data}
    shard = max(ranks // fields["context"], 1)
    return {degree: shard, copies: data // shard}


def _read_batch(given: Settings) -> Fields:
    local, micro = _local(given), _micro(given)
    tokens = given.count("training.seq_len", 2048)
    found = {"micro_batch": micro or local, "sequence": tokens}
    total = given.values.get("training.global_batch_size", -1)
    if isinstance(total, int) and total > 0:
        return {**found, "global_batch": total}
    total = given.values.get("training.num_tokens_per_train_step", -1)
    return (
        {**found, "global_batch": total // tokens}
        if isinstance(total, int) and total > 0
        else found
    )


def _local(given: Settings) -> int:
    """Sequences of one rank between two steps."""
    tokens = given.count("training.num_tokens_per_microbatch_per_dp_rank", 0)
    if tokens:
        return max(tokens // given.count("training.seq_len", 2048), 1)
    return given.count("training.local_batch_size", 8)


def _micro(given: Settings) -> int:
    """Sequences of a pipeline's microbatch; 0 without a pipeline."""
    if given.count(_PARALLEL + "pipeline_parallel_degree", 1) == 1:
        return 0
    if given.has("training.num_tokens_per_microbatch_per_dp_rank"):
        return _local(given)
    parts = given.count(_PARALLEL + "num_pp_microbatches", 0)
    if parts:
        return max(_local(given) // parts, 1)
    return given.count(_PARALLEL + "pipeline_parallel_microbatch_size", 1)


def _passes(given: Settings) -> int:
    """Microbatches of one rank in a step, where no batch of the job is stated."""
    if given.has("training.num_tokens_per_microbatch_per_dp_rank"):
        stages = given.count(_PARALLEL + "pipeline_parallel_degree", 1)
        return given.count(_PARALLEL + "num_pp_microbatches", 1) if stages > 1 else 1
    return max(_local(given) // (_micro(given) or _local(given)), 1)


def _write_batch(fields: Fields) -> Values:
    has_stages = fields["pipeline"] > 1
    own = fields["global_batch"] // fields["data"] if has_stages else fields["micro_batch"]
    found = {
        "training.local_batch_size": own,
        "training.global_batch_size": fields["global_batch"],
        "training.seq_len": fields["sequence"],
    }
    if has_stages and fields["micro_batch"] > 1:
        found[_PARALLEL + "pipeline_parallel_microbatch_size"] = fields["micro_batch"]
    return found


def _read_schedule(given: Settings) -> Fields:
    if given.count(_PARALLEL + "pipeline_parallel_degree", 1) == 1:
        return {}
    name = given.word(_PARALLEL + "pipeline_parallel_schedule", "1F1B")
    words = {word.lower(): ours for word, ours in _SCHEDULES.items()}
    if name.lower() not in words:
        return {}  # told by a note
    ours = words[name.lower()]
    return {"schedule": ours, "num_chunks": 2 if ours == "interleaved" else 1}


def _write_schedule(fields: Fields) -> Values:
    if fields["pipeline"] == 1:
        return {}
    name = next((word for word, ours in _SCHEDULES.items() if ours == fields["schedule"]), "1F1B")
    return {_PARALLEL + "pipeline_parallel_schedule": name}


def _read_reshard(given: Settings) -> Fields:
    policy = given.word(_PARALLEL + "fsdp_reshard_after_forward", "default")
    stages = given.count(_PARALLEL + "pipeline_parallel_degree", 1)
    return {"reshard_after_forward": policy == "always" or (policy == "default" and stages == 1)}


def _write_reshard(fields: Fields) -> Values:
    wanted = fields["reshard_after_forward"]
    if wanted == (fields["pipeline"] == 1) or fields["sharding"] != "zero3":
        return {}
    return {_PARALLEL + "fsdp_reshard_after_forward": "always" if wanted else "never"}


def _read_recompute(given: Settings) -> Fields:
    made = given.word(f"activation_checkpoint.{CALLED}")
    mode = given.word("activation_checkpoint.mode", "none" if given.word(CALLED) else "selective")
    if made:
        mode = "full" if "Full" in made else "selective" if "Selective" in made else "none"
    return {"recompute": mode}


def _write_recompute(fields: Fields) -> Values:
    return {"activation_checkpoint.mode": str(fields["recompute"])}


def _converters(given: Settings) -> list[Any]:
    """What replaces products: names, or records of what makes it."""
    written = next(
        (given.values[key] for key in (*_OF_TRAINER, *_OF_MODEL) if key in given.values), ()
    )
    return list(written) if isinstance(written, list | tuple) else []


def _float8(given: Settings) -> tuple[str, bool]:
    """The recipe of products of eight bits, and whether weights are gathered in eight."""
    told = [
        (given.word(f"{place}.{_RECIPE}"), given.flag(f"{place}.{_GATHERED}"))
        for place in _FLOAT8_PLACES
    ]
    told += [
        (str(one.get(_RECIPE) or ""), one.get(_GATHERED) is True)
        for one in _converters(given)
        if isinstance(one, dict) and "float8linear" in str(one.get(CALLED, "")).lower()
    ]
    usual = "rowwise" if any(key in given.values for key in _OF_MODEL) else "tensorwise"
    recipe = next((word for word, _ in told if word), usual)
    if recipe not in _RECIPES:
        raise WorkloadError(
            f"'{_RECIPE}' of float8 in {given.where} is {recipe!r}, which has no counterpart: "
            f"expected is one of {', '.join(_RECIPES)}; set it to one of these, or leave it out"
        )
    return recipe, any(flag for _, flag in told)


def _read_precision(given: Settings) -> Fields:
    made = [one.get(CALLED, "") if isinstance(one, dict) else one for one in _converters(given)]
    names = " ".join(map(str, made)).lower()
    half = "fp32" if given.word("training.mixed_precision_param") == "float32" else "bf16"
    products = half
    for word, found in (("nvfp4", "nvfp4"), ("mx", "mxfp8"), ("float8", "fp8")):
        if word in names:
            products = found
            break
    if given.flag("float8.enable_float8_linear"):
        products = "fp8"
    recipe, gathered = _float8(given) if products == "fp8" else ("tensorwise", False)
    return {
        **_RECIPES[recipe],
        "precision.products": products,
        "precision.activations": half,
        "precision.parameters": "fp8" if gathered else half,
        "precision.gradients": "fp32",
        "precision.reduced": _reduced(given),
        "implementation.measures_scales": products == "fp8" and recipe == "tensorwise",
    }


def _reduced(given: Settings) -> str:
    word = given.word("training.mixed_precision_reduce", "float32")
    return "bf16" if word == "bfloat16" else "fp32"


def _write_precision(fields: Fields) -> Values:
    found: dict[str, object] = {}
    kinds = {"fp8": "float8", "mxfp8": "mx", "nvfp4": "nvfp4"}
    if fields["precision.products"] in kinds:
        found["model.converters"] = [kinds[fields["precision.products"]]]
    if fields["precision.parameters"] == "fp8":
        found[f"{_FLOAT8}.{_GATHERED}"] = True
    if fields["precision.scales"] == "row":
        is_wide = fields["precision.wide_weight_gradients"]
        found[f"{_FLOAT8}.{_RECIPE}"] = "rowwise_with_gw_hp" if is_wide else "rowwise"
    if fields["precision.activations"] == "fp32":
        found["training.mixed_precision_param"] = "float32"
    if fields["precision.reduced"] == "bf16":
        found["training.mixed_precision_reduce"] = "bfloat16"
    return found


def _read_launch(given: Settings) -> Fields:
    parts = given.values.get("compile.components")
    is_compiled = given.flag("compile.enable") and (not isinstance(parts, list) or "model" in parts)
    return {"implementation.launch": "compiled" if is_compiled else "eager"}


def _write_launch(fields: Fields) -> Values:
    return {"compile.enable": True} if fields["implementation.launch"] == "compiled" else {}


ROWS = (
    sized(_PARALLEL + "tensor_parallel_degree", "tensor", 1),
    sized(_PARALLEL + "pipeline_parallel_degree", "pipeline", 1),
    sized(_PARALLEL + "context_parallel_degree", "context", 1),
    sized(_PARALLEL + "expert_parallel_degree", "expert", 1),
    sized(_PARALLEL + "expert_tensor_parallel_degree", "expert_tensor", 1),
    switched(_PARALLEL + "enable_sequence_parallel", "sequence_parallel", default=True),
    switched(_PARALLEL + "enable_async_tensor_parallel", "overlap.tensor"),
    SettingRow(
        (
            _PARALLEL + "data_parallel_shard_degree",
            _PARALLEL + "data_parallel_replicate_degree",
        ),
        _read_data,
        _write_data,
    ),
    SettingRow((_PARALLEL + "fsdp_reshard_after_forward",), _read_reshard, _write_reshard),
    SettingRow(
        (
            "training.local_batch_size",
            "training.global_batch_size",
            "training.seq_len",
            "training.num_tokens_per_microbatch_per_dp_rank",
            "training.num_tokens_per_train_step",
            _PARALLEL + "pipeline_parallel_microbatch_size",
            _PARALLEL + "num_pp_microbatches",
        ),
        _read_batch,
        _write_batch,
    ),
    SettingRow((_PARALLEL + "pipeline_parallel_schedule",), _read_schedule, _write_schedule),
    SettingRow(
        ("activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"),
        _read_recompute,
        _write_recompute,
    ),
    row(
        "model.converters training.mixed_precision_param training.mixed_precision_reduce "
        "float8.enable_float8_linear "
        + " ".join(f"{place}.{name}" for place in _FLOAT8_PLACES for name in (_GATHERED, _RECIPE)),
        _read_precision,
        _write_precision,
    ),
    SettingRow(("compile.enable",), _read_launch, _write_launch),
)


def _recognises(text: str) -> bool:
    return bool(_NEW_CONFIG.search(text) or _OLD_CONFIG.search(text)) and 'kind = "' not in text


def _read(source: ConfigurationText) -> JobConfiguration:
    given = Settings(_settings(source), source.where)
    return JobConfiguration(
        software="torchtitan",
        fields=read_rows(ROWS, given),
        model_name=_model_name(given),
        no_model="it names no model of a known shape: name the model",
        passes=_passes(given),
        replicas=given.count(_PARALLEL + "data_parallel_replicate_degree", 1),
        preset="torchtitan",
        notes=(
            *unread_notes(given, ROWS, lacking=_LACKING, idle=_is_idle, title=_TITLE),
            *_notes(given),
        ),
    )


def _is_idle(name: str) -> bool:
    return CALLED in name or "(with)" in name or _IDLE.match(name) is not None


def _settings(source: ConfigurationText) -> dict[str, Any]:
    table: Mapping[str, Any]
    if _NEW_CONFIG.search(source.text):
        found = PythonSource(source.text, source.path, source.where).returned(source.part)
        table = found if isinstance(found, dict) else {}
    else:
        try:
            table = tomllib.loads(source.text)
        except (ValueError, RecursionError) as err:
            raise WorkloadError(f"{source.where} is not a TOML file: {err}") from err
    settings: dict[str, Any] = {}
    for path, value in leaves(table).items():
        section, _, leaf = path.partition(".")
        is_older = section in {"training", "experimental"} and "parallel_" in leaf
        moved = _MOVED.get(path, _PARALLEL + leaf if is_older else path)
        settings[moved] = value
    return settings


def _model_name(given: Settings) -> str:
    names = [
        given.word(f"model.{one}") or given.word(f"model_spec.{one}") for one in ("name", "flavor")
    ]
    return " ".join(names) if all(names) else ""


def _notes(given: Settings) -> Iterator[str]:
    """What is understood in part."""
    option = given.values.get("activation_checkpoint.selective_ac_option", "op")
    if _read_recompute(given)["recompute"] == "selective" and option != "op":
        yield (
            f"activation_checkpoint.selective_ac_option {option} has no counterpart in a plan: "
            "taken for selective recompute of operators in every layer"
        )
    stages = given.count(_PARALLEL + "pipeline_parallel_degree", 1)
    name = given.word(_PARALLEL + "pipeline_parallel_schedule", "1F1B")
    if stages > 1 and name.lower() not in {word.lower() for word in _SCHEDULES}:
        yield f"pipeline_parallel_schedule {name} has no counterpart in a plan: it is left open"


def _text(values: Values, sizes: JobConfiguration) -> str:
    sections: dict[str, list[str]] = {}
    for path, value in values.items():
        section, _, leaf = path.rpartition(".")
        shown = f'"{value}"' if isinstance(value, str) else key_text(value)
        if isinstance(value, list):
            shown = "[" + ", ".join(f'"{one}"' for one in value) + "]"
        sections.setdefault(section, []).append(f"{leaf} = {shown}")
    lines = [f"# {sizes.num_ranks} GPUs"] if sizes.num_ranks else []
    for section, entries in sections.items():
        lines += ["", f"[{section}]", *entries]
    return "\n".join([*lines, ""]).lstrip("\n")


TORCHTITAN = ConfigurationFormat(
    name="torchtitan",
    title=_TITLE,
    recognises=_recognises,
    read=_read,
    rows=ROWS,
    text=_text,
)
