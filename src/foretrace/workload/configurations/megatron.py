"""Megatron-LM's arguments: a command line, the script around it, or YAML."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping

from foretrace.workload.configurations.arguments import arguments_of, leaves, parsed_yaml
from foretrace.workload.configurations.megatron_model import MODEL_ROWS, NoModelError
from foretrace.workload.configurations.megatron_plan import PLAN_ROWS
from foretrace.workload.configurations.model_keys import tables_of
from foretrace.workload.configurations.table import (
    ConfigurationFormat,
    ConfigurationText,
    JobConfiguration,
    Settings,
    Values,
    read_rows,
    unread_notes,
)
from foretrace.workload.models.recompute import RecomputeModule

TITLE = "Megatron-LM's arguments"
ROWS = (*PLAN_ROWS, *MODEL_ROWS)
_YAML = re.compile(r"^\s*(?:MODEL_ARGS:|--[\w-]+:|[a-z][a-z_0-9]*: )", re.MULTILINE)
_FLAG = re.compile(r"--([a-z][\w-]+)")
_KEY = re.compile(r"^\s*(?:--)?([a-z][\w-]+):", re.MULTILINE)
# What changes neither the time nor the memory of a step: training itself, data, logs, checkpoints.
_IDLE = re.compile(
    r"(lr|min-lr|decoupled|weight-decay|adam-|sgd-|clip-grad|init-method|train-|eval|log|save|load"
    r"|tensorboard|wandb|exit|data-(?!parallel)|split|tokenizer-|vocab-|merge-|tiktoken|num-workers"
    r"|mock-data|seed|distributed-(backend|timeout)|ckpt|dist-ckpt|no-(load|save|check|create|mmap"
    r"|one-logger|use-token|data|masked-softmax|persist)|finetune|manual-gc|profile|rotary-(base"
    r"|percent|scaling|seq|inter)|rope-|use-rope-scaling|mscale|beta-|norm-epsilon|layernorm-eps"
    r"|apply-(layernorm-1p|query)|moe-(aux|z-loss|router-(load|score|bias|topk-scaling|pre-softmax"
    r"|dtype|num-groups|group-topk|force)|grouped-gemm|per-layer|token-drop)|start-weight|end-weight"
    r"|loss-scale|initial-loss|min-loss|hysteresis|use-mcore|use-checkpoint|auto-detect|async-save"
    r"|use-persistent|override|attention-softmax|rampup|step-batch|deterministic|log-|timing|mtp-loss"
    r"|fp8-amax|fp8-margin|fp8-interval|transformer-impl|reset-|eod-|legacy|empty-unused|enable-exper"
    r"|te-rng|inference|result|non-persist|enable-ft|calc-|disable-straggler|straggler|check-|rerun"
    r"|pretrained|hf-|use-dist-ckpt|bert-|test-|export-|init-model|glu-linear|activation-func-clamp"
    r"|enable-gpt-oss|dataloader|num-dataset|make-vocab|exp-|num-train|epochs|world-size|rank|local-"
    r"|master|env-vars|metrics|recompute-(method|num-layers)|retro|per-split|valid-|tiktoken"
    r"|distribute-saved|use-cpu-initialization|use-precision|account-for|mmap|spec|group-query"
    r"|query-in-block|perform-init|accumulate-|grpo|langrl|rl-|position-embedding|untie|calculate-"
    r"|cuda-graph-(scope|warm|use|modules)|cross-entropy-fusion-impl|random-seed|skip-getting"
    r"|should-pad|num-layers-at-|use-te-rng|moe-\w+-num-sms|disable-bf16|no-bias-gelu|masked-softmax|persist-layer"
    r"|deepspeed$|no-pipeline-parallel|pipeline-dtype|params-dtype|autocast|pipeline-model-parallel-comm|variable-seq|barrier|ddp-average|average-in)"
)
LACKING: Mapping[str, str] = {
    "attention-dropout": "kernels that drop scores",
    "hidden-dropout": "kernels that drop numbers",
    "moe-shared-expert-overlap": "shared experts beside the dispatch",
    "moe-expert-capacity-factor": "a limit of each expert's tokens",
    "moe-pad-expert-input-to-capacity": "tokens filled up to a limit",
    "cpu-offloading": "activations in host memory",
    "optimizer-cpu-offload": "states of the optimizer in host memory",
    "fine-grained-activation-offloading": "activations in host memory",
    "hierarchical-context-parallel-sizes": "context exchanged at two levels",
    "overlap-param-gather-with-optimizer-step": "gathering beside the optimizer",
    "align-param-gather": "gathering at the same time on all stages",
    "delay-wgrad-compute": "products for weights done later",
    "moe-latent-size": "experts on shorter vectors",
    "fp8-dot-product-attention": "attention in eight bits",
    "first-last-layers-bf16": "layers at the ends in 16 bits",
    "defer-embedding-wgrad-compute": "products for the embedding done later",
    "ddp-num-buckets": "the number of buckets",
    "fsdp-double-buffer": "gathered parameters held in two buffers",
    "use-nccl-ub": "collectives from registered memory",
    "attention-output-gate": "a gate on attention's output",
    "squared-relu": "an activation of its own",
    "heterogeneous-layers-config-path": "layers of different shapes",
    "hybrid-layer-pattern": "layers that carry a state",
    "hybrid-override-pattern": "layers that carry a state",
    "is-hybrid-model": "layers that carry a state",
    "experimental-attention-variant": "attention of another kind",
    "linear-attention-freq": "layers with linear attention",
    "no-rope-freq": "layers without positions",
    "zero-stage": "DeepSpeed's sharding: state it with its configuration",
    "deepspeed-config": "a file of DeepSpeed: state it as well",
    "encoder-num-layers": "an encoder",
    "decoder-num-layers": "a decoder beside an encoder",
}
_STATES = ("hybrid-layer-pattern", "hybrid-override-pattern", "is-hybrid-model")
_UNLIKE = (*_STATES, "encoder-num-layers", "heterogeneous-layers-config-path")


def configuration_of(
    given: Settings,
    *,
    software: str,
    title: str,
    num_ranks: int | None,
    notes: tuple[str, ...] = (),
) -> JobConfiguration:
    """What arguments say, whoever passes them on."""
    fields, no_model = read_rows(PLAN_ROWS, given), ""
    unlike = next((name for name in _UNLIKE if given.has(name) and given.values[name]), "")
    if unlike:
        no_model = f"{unlike} has no counterpart: {LACKING[unlike]}"
    else:
        try:
            fields |= read_rows(MODEL_ROWS, given)
        except NoModelError as err:
            no_model = str(err)
    model = None if no_model else tables_of(fields)
    if model is None and not no_model:
        no_model = "it states no num-layers: name the model"
    found = unread_notes(given, ROWS, lacking=LACKING, idle=_IDLE.match, title=title)
    return JobConfiguration(
        software=software,
        fields={name: value for name, value in fields.items() if "." not in name or _of_plan(name)},
        model=model,
        no_model=no_model,
        num_ranks=num_ranks,
        replicas=given.count("num-distributed-optimizer-instances", 0) or None,
        notes=(*notes, *found, *_notes(given)),
    )


def _of_plan(field: str) -> bool:
    return field.partition(".")[0] in {"overlap", "precision", "dispatch", "implementation"}


def _notes(given: Settings) -> Iterator[str]:
    """What is understood in part."""
    written = given.values.get("recompute-modules") or ()
    named = written if isinstance(written, list | tuple) else str(written).split()
    known = set(RecomputeModule)
    if strange := [str(one) for one in named if str(one) not in known]:
        yield f"recompute-modules {', '.join(strange)} has no counterpart in a plan"
    layers = given.count("recompute-num-layers", 0)
    if layers > 1 and given.word("recompute-granularity") == "full":
        yield (
            f"recompute-num-layers {layers} has no counterpart in a plan: every layer is computed "
            "again by itself"
        )


def _recognises(text: str) -> bool:
    names = {*_FLAG.findall(text), *_KEY.findall(text)}
    known = {name for row in ROWS for name in row.names}
    return len({name.replace("_", "-") for name in names} & known) > 1 or names == {"num-layers"}


def _read(source: ConfigurationText) -> JobConfiguration:
    text, where = source.text, source.where
    if "--" not in re.sub(r"^\s*--[\w-]+:", "", text, flags=re.MULTILINE) and _YAML.search(text):
        table = parsed_yaml(text, where)
        found = leaves(table.get("MODEL_ARGS", table), "")  # type: ignore[arg-type]
        values = {
            path.rpartition(".")[2].lstrip("-").replace("_", "-"): one
            for path, one in found.items()
        }
        return configuration_of(
            Settings(values, where), software="megatron", title=TITLE, num_ranks=None
        )
    found_arguments = arguments_of(text)
    notes = tuple(
        f"of {TITLE}, those behind the condition {condition} were left out: only a run tells it"
        for condition in found_arguments.undecided
    ) + tuple(
        f"what the file {name} sets was not read: put its text in front"
        for name in found_arguments.sourced
    )
    return configuration_of(
        Settings(found_arguments.values, where),
        software="megatron",
        title=TITLE,
        num_ranks=found_arguments.num_ranks,
        notes=notes,
    )


def _text(values: Values, sizes: JobConfiguration) -> str:
    lines = [f"WORLD_SIZE={sizes.num_ranks}"] if sizes.num_ranks else []
    words = [" ".join([f"--{name}", *_words(value)]) for name, value in values.items()]
    return "\n".join([*lines, "ARGS=(", *(f"    {word}" for word in words), ")", ""])


def _words(value: object) -> list[str]:
    """A value as it is typed behind its flag."""
    if value is True:
        return []
    return [shlex.quote(str(one)) for one in (value if isinstance(value, list) else [value])]


MEGATRON = ConfigurationFormat(
    name="megatron",
    title=TITLE,
    recognises=_recognises,
    read=_read,
    rows=ROWS,
    text=_text,
)
