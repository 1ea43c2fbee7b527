"""DeepSpeed's JSON configuration.

Source:
    deepspeedai/DeepSpeed, deepspeed/runtime/config.py and zero/config.py: names and defaults.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from foretrace.base import WorkloadError
from foretrace.workload.configurations.arguments import leaves
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

_TITLE = "DeepSpeed's configuration"
ZERO_LEVELS = ("none", "zero1", "zero2", "zero3")
_KINDS = {"fp32": "fp32", "float32": "fp32", "fp16": "fp16", "float16": "fp16", "bf16": "bf16"}
_KINDS |= {"bfloat16": "bf16"}
_BUCKET = 500_000_000  # numbers
_IDLE = re.compile(
    r"(steps_per_print|gradient_clipping|prescale_|wall_clock|zero_allow|dump_state|scheduler|optimizer"
    r"|fp16\.|bf16\.|tensorboard|wandb|csv_|comet|flops_profiler|monitor|checkpoint|comms_logger|logging"
    r"|data_efficiency|curriculum|data_sampling|seed|elasticity|autotuning|eigenvalue|memory_break"
    r"|aio|zero_force|gradient_predivide|disable_allgather|load_universal|use_data_before|nebula"
    r"|zero_optimization\.(stage3_(gather|max|param|prefetch|module)|contiguous|allgather|sub_group"
    r"|reduce_scatter|load_from|elastic|ignore|round_robin|legacy|use_all|log_trace|offload_\w+\.(pin"
    r"|buffer|fast|pipeline|max_in|ratio))|activation_checkpointing\.(profile|number|synch|contig)"
    r"|gradient_accumulation_steps|compression_training|train_)"
)
_LACKING = {
    "zero_optimization.offload_optimizer.device": "states of the optimizer in host memory",
    "zero_optimization.offload_param.device": "parameters in host memory",
    "zero_optimization.cpu_offload": "states of the optimizer in host memory",
    "zero_optimization.zero_quantized_weights": "parameters gathered in eight bits",
    "zero_optimization.zero_quantized_gradients": "gradients reduced in four bits",
    "activation_checkpointing.partition_activations": "kept activations divided over tensor ranks",
    "activation_checkpointing.cpu_checkpointing": "kept activations in host memory",
    "pipeline.stages": "stages, which the program makes: state pp",
}


def _read_batch(given: Settings) -> Fields:
    found = {}
    if given.has("train_batch_size"):
        found["global_batch"] = given.count("train_batch_size")
    if given.has("train_micro_batch_size_per_gpu"):
        found["micro_batch"] = given.count("train_micro_batch_size_per_gpu")
    return found


def _write_batch(fields: Fields) -> Values:
    return {
        "train_batch_size": fields["global_batch"],
        "train_micro_batch_size_per_gpu": fields["micro_batch"],
    }


def zero_stage(given: Settings, path: str) -> int:
    """The stage of ZeRO under a key, 0 to 3; 0 where none is stated."""
    stage = given.values.get(path, 0)
    if not isinstance(stage, int) or not 0 <= stage < len(ZERO_LEVELS):
        raise WorkloadError(f"{path!r} of {given.where} is {stage!r}: expected is 0, 1, 2 or 3")
    return stage


def _read_stage(given: Settings) -> Fields:
    stage = zero_stage(given, "zero_optimization.stage")
    found: dict[str, object] = {"sharding": ZERO_LEVELS[stage]}
    if given.count("zero_optimization.zero_hpz_partition_size", 1) > 1:
        found["shard_ranks"] = given.count("zero_optimization.zero_hpz_partition_size")
    beside = given.values.get("zero_optimization.overlap_comm")
    found["overlap.gradients"] = stage == 3 if beside is None else bool(beside)  # noqa: PLR2004
    if stage:
        numbers = given.number("zero_optimization.reduce_bucket_size", _BUCKET)
        found["bucket_bytes"] = int(numbers * (4 if _reduced(given) == "fp32" else 2))
    return found


def _write_stage(fields: Fields) -> Values:
    stage = ZERO_LEVELS.index(str(fields["sharding"]))
    found: dict[str, object] = {"zero_optimization.stage": stage}
    if fields["overlap.gradients"] != (stage == 3):  # noqa: PLR2004
        found["zero_optimization.overlap_comm"] = fields["overlap.gradients"]
    if fields.get("shard_ranks") and stage == 3:  # noqa: PLR2004
        found["zero_optimization.zero_hpz_partition_size"] = fields["shard_ranks"]
    if stage and fields.get("bucket_bytes") is not None:
        width = 4 if fields["precision.reduced"] == "fp32" else 2
        found["zero_optimization.reduce_bucket_size"] = fields["bucket_bytes"] // width
    return found


def _half(given: Settings) -> str:
    return next((name for name in ("bf16", "fp16") if given.flag(f"{name}.enabled")), "fp32")


def _reduced(given: Settings) -> str:
    return _KINDS.get(given.word("communication_data_type"), _half(given))


def _read_precision(given: Settings) -> Fields:
    half = _half(given)
    kept = _KINDS.get(given.word("data_types.grad_accum_dtype"), half)
    return {
        "precision.products": half,
        "precision.activations": half,
        "precision.parameters": half,
        "precision.gradients": kept,
        "precision.reduced": _reduced(given),
        "precision.optimizer_bytes": 8.0 if half == "fp32" else 12.0,
    }


def _write_precision(fields: Fields) -> Values:
    half = fields["precision.activations"]
    found: dict[str, object] = {} if half == "fp32" else {f"{half}.enabled": True}
    if fields["precision.gradients"] != half:
        found["data_types.grad_accum_dtype"] = fields["precision.gradients"]
    if fields["precision.reduced"] != half:
        found["communication_data_type"] = fields["precision.reduced"]
    return found


def _read_context(given: Settings) -> Fields:
    size = given.count("sequence_parallel_size", 1)
    return {"context": size, "context_exchange": "all-to-all"} if size > 1 else {"context": 1}


def _write_context(fields: Fields) -> Values:
    return {"sequence_parallel_size": fields["context"]} if fields["context"] > 1 else {}


ROWS = (
    SettingRow(("train_batch_size", "train_micro_batch_size_per_gpu"), _read_batch, _write_batch),
    row(
        "zero_optimization.stage zero_optimization.overlap_comm "
        "zero_optimization.zero_hpz_partition_size zero_optimization.reduce_bucket_size",
        _read_stage,
        _write_stage,
    ),
    sized("tensor_parallel.autotp_size", "tensor", 1),
    SettingRow(("sequence_parallel_size",), _read_context, _write_context),
    row(
        "bf16.enabled fp16.enabled communication_data_type data_types.grad_accum_dtype",
        _read_precision,
        _write_precision,
    ),
)


def _recognises(text: str) -> bool:
    keys = (
        r'"(train_batch_size|train_micro_batch_size_per_gpu|zero_optimization|bf16|fp16'
        r'|gradient_accumulation_steps)"\s*:'
    )
    return text.lstrip().startswith("{") and re.search(keys, text) is not None


def _read(source: ConfigurationText) -> JobConfiguration:
    try:
        table = json.loads(source.text)
    except (ValueError, RecursionError) as err:
        raise WorkloadError(
            f"{source.where} is not a JSON file: {err}; fill in a template's placeholders first"
        ) from err
    if not isinstance(table, Mapping):
        raise WorkloadError(f"{source.where} holds no object, where settings are expected")
    given = Settings({path: _known(one) for path, one in leaves(table).items()}, source.where)
    passes = given.count("gradient_accumulation_steps", 0)
    return JobConfiguration(
        software="deepspeed",
        fields=read_rows(ROWS, given),
        no_model="DeepSpeed's configurations state none: name the model",
        passes=passes or None,
        notes=(
            *unread_notes(given, ROWS, lacking=_LACKING, idle=_IDLE.match, title=_TITLE),
            *_notes(given),
        ),
    )


def _known(value: object) -> object:
    """A value; nothing for one that the integration with transformers fills in."""
    return None if value == "auto" else value


def _notes(given: Settings) -> Iterator[str]:
    half = _half(given)
    if half == "fp32":
        yield f"{_TITLE} turns on neither bf16 nor fp16: numbers are taken to have 32 bits"


def _text(values: Values, sizes: JobConfiguration) -> str:
    del sizes
    table: dict[str, object] = {}
    for path, value in values.items():
        *sections, leaf = path.split(".")
        inner = table
        for section in sections:
            inner = inner.setdefault(section, {})  # type: ignore[assignment]
        inner[leaf] = value
    return json.dumps(table, indent=2) + "\n"


DEEPSPEED = ConfigurationFormat(
    name="deepspeed",
    title=_TITLE,
    recognises=_recognises,
    read=_read,
    rows=ROWS,
    text=_text,
)
