"""A plan in Megatron-LM's arguments.

Source:
    NVIDIA/Megatron-LM, megatron/training/arguments.py, megatron/core/model_parallel_config.py and
    megatron/core/distributed: names and defaults.
"""

from __future__ import annotations

import re
from itertools import groupby

from foretrace.base import WorkloadError, known_format
from foretrace.workload.configurations.table import (
    Fields,
    SettingRow,
    Settings,
    Values,
    row,
    sized,
    switched,
    worded,
)
from foretrace.workload.models.recompute import RecomputeModule
from foretrace.workload.plan.plan import Axis

_ADAM_BYTES = {"fp32": 4, "fp16": 2, "bf16": 2, "fp8": 1}
_NARROW_GATES = "activation-func-fp8-input-store"
_NARROW_ATTENTION = "fp8-dot-product-attention"
_STRATEGIES = {
    "no_shard": "none",
    "optim": "zero1",
    "optim_grads": "zero2",
    "optim_grads_params": "zero3",
}
_OUTSIDE_IN = (Axis.TENSOR, Axis.CONTEXT, Axis.PIPELINE, Axis.DATA)  # use-tp-pp-dp-mapping
_INSIDE_OUT = (Axis.TENSOR, Axis.CONTEXT, Axis.DATA, Axis.PIPELINE)


def _read_precision(given: Settings) -> Fields:
    half = next((name for name in ("bf16", "fp16") if given.flag(name)), "fp32")
    recipe = given.word("fp8-recipe", "delayed")
    products = half
    if given.has("fp4-format"):
        products = "nvfp4"
    elif given.has("fp8-format"):
        products = "mxfp8" if recipe == "mxfp8" else "fp8"
    is_wide = given.flag("accumulate-allreduce-grads-in-fp32") or (
        half == "bf16" and not given.flag("grad-reduce-in-bf16")
    )
    gradients = "fp32" if is_wide else half
    return {
        "precision.products": products,
        "precision.activations": half,
        "precision.parameters": "fp8" if given.flag("fp8-param-gather") else half,
        "precision.gradients": gradients,
        "precision.reduced": gradients,
        "precision.optimizer_bytes": _optimizer_bytes(given, half),
        "implementation.measures_scales": given.has("fp8-format") and recipe == "tensorwise",
        **({"precision.gate_inputs": "fp8"} if given.flag(_NARROW_GATES) else {}),
        **({"precision.attention": "fp8"} if given.flag(_NARROW_ATTENTION) else {}),
    }


def _optimizer_bytes(given: Settings, half: str) -> float:
    copy = 0 if half == "fp32" else _ADAM_BYTES[given.word("main-params-dtype", "fp32")]
    if given.word("optimizer", "adam") == "sgd":
        return float(copy + 4)
    moments = (given.word(name, "fp32") for name in ("exp-avg-dtype", "exp-avg-sq-dtype"))
    return float(copy + sum(_ADAM_BYTES[one] for one in moments))


def _write_precision(fields: Fields) -> Values:
    half, products = fields["precision.activations"], fields["precision.products"]
    found: dict[str, object] = {} if half == "fp32" else {half: True}
    if products == "nvfp4":
        found["fp4-format"] = "e2m1"
    elif known_format(products).is_narrow:
        measured = fields["implementation.measures_scales"]
        recipe = "mxfp8" if products == "mxfp8" else "tensorwise" if measured else "delayed"
        found |= {"fp8-format": "hybrid", "fp8-recipe": recipe}
    if fields["precision.parameters"] == "fp8":
        found["fp8-param-gather"] = True
    if half == "bf16" and fields["precision.reduced"] == "bf16":
        found["grad-reduce-in-bf16"] = True
    elif half == "fp16" and fields["precision.reduced"] == "fp32":
        found["accumulate-allreduce-grads-in-fp32"] = True
    if fields.get("precision.gate_inputs") == "fp8":
        found[_NARROW_GATES] = True
    if fields.get("precision.attention") == "fp8":
        found[_NARROW_ATTENTION] = True
    moments = {8.0: "bf16", 6.0: "fp8"}.get(fields["precision.optimizer_bytes"])
    if moments is not None and half != "fp32":
        found |= {
            "use-precision-aware-optimizer": True,
            "exp-avg-dtype": moments,
            "exp-avg-sq-dtype": moments,
        }
    return found


def _read_sharding(given: Settings) -> Fields:
    if given.flag("use-megatron-fsdp") or given.flag("use-custom-fsdp"):
        word = given.word("data-parallel-sharding-strategy", "no_shard")
        if word not in _STRATEGIES:
            raise WorkloadError(
                f"'data-parallel-sharding-strategy' of {given.where} is {word!r}: expected is one "
                f"of {', '.join(_STRATEGIES)}"
            )
        return {"sharding": _STRATEGIES[word]}
    if given.flag("use-torch-fsdp2"):
        return {"sharding": "zero3"}
    return {"sharding": "zero1" if given.flag("use-distributed-optimizer") else "none"}


def _write_sharding(fields: Fields) -> Values:
    level = fields["sharding"]
    if level in {"none", "zero1"}:
        return {"use-distributed-optimizer": True} if level == "zero1" else {}
    strategy = next(word for word, meant in _STRATEGIES.items() if meant == level)
    return {
        "use-distributed-optimizer": True,
        "use-megatron-fsdp": True,
        "data-parallel-sharding-strategy": strategy,
    }


def _read_bucket(given: Settings) -> Fields:
    if not given.has("ddp-bucket-size"):
        return {}
    reduced = str(_read_precision(given)["precision.reduced"])
    size = given.count("ddp-bucket-size") * known_format(reduced).num_bytes
    return {"bucket_bytes": int(size)}


def _write_bucket(fields: Fields) -> Values:
    if fields.get("bucket_bytes") is None:
        return {}
    width = known_format(str(fields["precision.reduced"])).num_bytes
    return {"ddp-bucket-size": int(fields["bucket_bytes"] // width)}


def _read_recompute(given: Settings) -> Fields:
    granularity = given.word("recompute-granularity")
    if not granularity and given.flag("recompute-activations"):
        granularity = "selective"
    old = given.flag("checkpoint-activations") or given.has("activations-checkpoint-method")
    if not granularity and old:
        granularity = "full"
    found: dict[str, object] = {"recompute": granularity or "none"}
    modules = _modules(given)
    if modules and granularity == "selective":
        found["recompute_modules"] = modules
    return found


def _modules(given: Settings) -> tuple[str, ...]:
    """What is done again by name; the layer of experts has a switch of its own too."""
    written = given.values.get("recompute-modules") or ()
    named = written if isinstance(written, list | tuple) else str(written).split()
    names = [str(one) for one in named if str(one) in set(RecomputeModule)]
    if given.flag("moe-layer-recompute"):
        names = [*(names or ["core_attn"]), "moe"]
    return tuple(dict.fromkeys(names))


def _write_recompute(fields: Fields) -> Values:
    if fields["recompute"] == "full":
        return {
            "recompute-granularity": "full",
            "recompute-method": "uniform",
            "recompute-num-layers": 1,
        }
    if fields["recompute"] != "selective":
        return {}
    modules = fields.get("recompute_modules")
    named = {} if modules is None else {"recompute-modules": list(map(str, modules))}
    return {"recompute-granularity": "selective", **named}


def _read_batch(given: Settings) -> Fields:
    """The batch of most steps: the last one of a schedule."""
    if given.has("global-batch-size"):
        return {"global_batch": given.count("global-batch-size")}
    written = given.values.get("step-batch-size-schedule", "")
    parts = str(written).replace("'", " ").replace(",", " ").strip("[] ").split()
    last = parts[-1].rpartition(":")[2] if parts else ""
    return {"global_batch": int(last)} if last.isdigit() else {}


def _write_batch(fields: Fields) -> Values:
    return {"global-batch-size": fields["global_batch"]}


def _read_stages(given: Settings) -> Fields:
    stages = given.count("pipeline-model-parallel-size", 1)
    layout = given.word("pipeline-model-parallel-layout")
    layers = given.count("num-layers", 0)
    chunks = given.count("num-virtual-stages-per-pipeline-rank", 1)
    if given.has("num-layers-per-virtual-pipeline-stage"):
        if not layers:
            raise WorkloadError(
                f"{given.where} has 'num-layers-per-virtual-pipeline-stage' and no 'num-layers': "
                "add it, or state num-virtual-stages-per-pipeline-rank"
            )
        chunks = layers // stages // given.count("num-layers-per-virtual-pipeline-stage") or 1
    found: dict[str, object] = {}
    if layout:
        divided = _layers_of_layout(layout, given)
        chunks = max(len(divided) // stages, 1)
        found["layers_of_chunk"] = divided
    elif stages > 1 and layers:
        found |= _uneven(given, stages, layers, chunks=chunks)
    found["num_chunks"] = chunks
    return {**found, "schedule": "interleaved" if chunks > 1 else "1f1b"}


def _layers_of_layout(layout: str, given: Settings) -> tuple[int, ...]:
    """Layers of each chunk of a layout such as "Et*3|(tt|)*29,m|L"."""

    def grouped(match: re.Match[str]) -> str:
        return match[1] * int(match[2])

    text = re.sub(r"\(([^()]*)\)\*(\d+)", grouped, layout.strip("'\"").replace(" ", ""))
    text = re.sub(r"([EtmL])\*(\d+)", grouped, text).replace(",", "")
    if not re.fullmatch(r"[EtmL|]+", text):
        raise WorkloadError(
            f"'pipeline-model-parallel-layout' of {given.where} is {layout!r}: expected are E, t, "
            "m and L for embedding, layers, prediction and loss, with | between stages"
        )
    return tuple(part.count("t") for part in text.split("|"))


def _uneven(given: Settings, stages: int, layers: int, *, chunks: int) -> Fields:
    """Layers of each chunk where the first or last stage has others than the rest."""
    ends = {
        place: given.count(f"decoder-{place}-pipeline-num-layers", 0)
        for place in ("first", "last")
        if given.has(f"decoder-{place}-pipeline-num-layers")
    }
    less = {
        "first": given.flag("account-for-embedding-in-pipeline-split"),
        "last": given.flag("account-for-loss-in-pipeline-split"),
    }
    parts = stages * chunks
    if ends and chunks == 1:
        inner = (layers - sum(ends.values())) // max(stages - len(ends), 1)
        row = [inner] * stages
        row[0], row[-1] = ends.get("first", inner), ends.get("last", row[-1])
        return {"layers_of_chunk": tuple(row)}
    if ends:
        inner = (layers - sum(ends.values())) // max(stages - len(ends), 1) // chunks
        row = [inner] * parts
        for place, at in (("first", 0), ("last", stages - 1)):
            for chunk in range(chunks):
                row[chunk * stages + at] = ends.get(place, inner * chunks) // chunks
        return {"layers_of_chunk": tuple(row)}
    if any(less.values()):
        each = (layers + sum(less.values())) // parts
        row = [each] * parts
        row[0] -= less["first"]
        row[-1] -= less["last"]
        return {"layers_of_chunk": tuple(row)}
    return {}


def _write_stages(fields: Fields) -> Values:
    divided, chunks = fields.get("layers_of_chunk"), fields["num_chunks"]
    if divided is None:
        return {"num-virtual-stages-per-pipeline-rank": chunks} if chunks > 1 else {}
    parts = []
    for at, number in enumerate(divided):
        ends = ("E" if at == 0 else "", "L" if at == len(divided) - 1 else "")
        parts.append(ends[0] + (f"t*{number}" if number else "") + ends[1])
    runs = [(part, len(list(group))) for part, group in groupby(parts)]
    written = [part if times == 1 else "|".join([part] * times) for part, times in runs]
    return {"pipeline-model-parallel-layout": "|".join(written)}


def _read_dispatch(given: Settings) -> Fields:
    backend = given.word("moe-flex-dispatcher-backend", "deepep")
    is_flex = given.word("moe-token-dispatcher-type") == "flex"
    has_deepep = given.flag("moe-enable-deepep") or (is_flex and backend == "deepep")
    copies = "host" if has_deepep else "rank" if is_flex else "expert"
    return {"dispatch.copies": copies}


def _write_dispatch(fields: Fields) -> Values:
    copies = fields["dispatch.copies"]
    if copies == "expert":
        return {"moe-token-dispatcher-type": "alltoall"} if fields["expert"] > 1 else {}
    backend = "deepep" if copies == "host" else "hybridep"
    return {"moe-token-dispatcher-type": "flex", "moe-flex-dispatcher-backend": backend}


def _read_order(given: Settings) -> Fields:
    return {"order": _OUTSIDE_IN if given.flag("use-tp-pp-dp-mapping") else _INSIDE_OUT}


def _write_order(fields: Fields) -> Values:
    return {"use-tp-pp-dp-mapping": True} if tuple(fields["order"]) == _OUTSIDE_IN else {}


def _read_attention(given: Settings) -> Fields:
    word = given.word("attention-backend", "auto")
    is_plain = word in {"unfused", "local"} and not given.flag("use-flash-attn")
    return {"implementation.attention": "plain" if is_plain else "flash"}


def _write_attention(fields: Fields) -> Values:
    plain = fields["implementation.attention"] == "plain"
    return {"attention-backend": "unfused" if plain else "flash"}


def _read_launch(given: Settings) -> Fields:
    impl = given.word("cuda-graph-impl", "none")
    is_graph = (
        impl != "none" or given.flag("enable-cuda-graph") or given.flag("external-cuda-graph")
    )
    return {"implementation.launch": "graph" if is_graph else "eager"}


def _write_launch(fields: Fields) -> Values:
    return {"cuda-graph-impl": "local"} if fields["implementation.launch"] == "graph" else {}


def _read_experts_tensor(given: Settings) -> Fields:
    if not given.has("num-experts", "expert-tensor-parallel-size", "expert-model-parallel-size"):
        return {}
    tensor = given.count("tensor-model-parallel-size", 1)
    return {"expert_tensor": given.count("expert-tensor-parallel-size", tensor)}


def _write_experts_tensor(fields: Fields) -> Values:
    size = fields.get("expert_tensor")
    return {} if size in {None, fields["tensor"]} else {"expert-tensor-parallel-size": size}


_FUSED = (
    ("no-bias-swiglu-fusion", "implementation.fuses_activations"),
    ("no-rope-fusion", "implementation.fuses_rotary"),
    ("no-bias-dropout-fusion", "implementation.fuses_residuals"),
    ("no-gradient-accumulation-fusion", "implementation.fuses_gradients"),
)

PLAN_ROWS = (
    sized("tensor-model-parallel-size", "tensor", 1),
    sized("pipeline-model-parallel-size", "pipeline", 1),
    sized("context-parallel-size", "context", 1),
    sized("expert-model-parallel-size", "expert", 1),
    SettingRow(("expert-tensor-parallel-size",), _read_experts_tensor, _write_experts_tensor),
    SettingRow(("use-tp-pp-dp-mapping",), _read_order, _write_order),
    switched("sequence-parallel", "sequence_parallel"),
    worded(
        "cp-comm-type",
        "context_exchange",
        {"p2p": "ring", "all_gather": "all-gather", "a2a": "all-to-all"},
        "p2p",
    ),
    sized("micro-batch-size", "micro_batch"),
    SettingRow(("global-batch-size", "step-batch-size-schedule"), _read_batch, _write_batch),
    sized("seq-length", "sequence"),
    row(
        "num-virtual-stages-per-pipeline-rank num-layers-per-virtual-pipeline-stage "
        "pipeline-model-parallel-layout decoder-first-pipeline-num-layers "
        "decoder-last-pipeline-num-layers account-for-embedding-in-pipeline-split "
        "account-for-loss-in-pipeline-split",
        _read_stages,
        _write_stages,
    ),
    sized("microbatch-group-size-per-virtual-pipeline-stage", "contiguous"),
    row(
        "use-distributed-optimizer use-megatron-fsdp use-custom-fsdp use-torch-fsdp2 "
        "data-parallel-sharding-strategy num-distributed-optimizer-instances",
        _read_sharding,
        _write_sharding,
    ),
    SettingRow(("ddp-bucket-size",), _read_bucket, _write_bucket),
    switched("overlap-grad-reduce", "overlap.gradients"),
    switched("overlap-param-gather", "overlap.parameters"),
    switched("tp-comm-overlap", "overlap.tensor"),
    switched("overlap-moe-expert-parallel-comm", "overlap.expert"),
    switched("no-overlap-p2p-communication", "overlap.pipeline", turns=False),
    row(
        f"bf16 fp16 fp8-format fp8-recipe fp4-format fp8-param-gather {_NARROW_GATES} "
        f"{_NARROW_ATTENTION} accumulate-allreduce-grads-in-fp32 grad-reduce-in-bf16 optimizer "
        "use-precision-aware-optimizer main-params-dtype main-grads-dtype exp-avg-dtype "
        "exp-avg-sq-dtype",
        _read_precision,
        _write_precision,
    ),
    row(
        "recompute-granularity recompute-activations recompute-modules "
        "moe-layer-recompute checkpoint-activations activations-checkpoint-method",
        _read_recompute,
        _write_recompute,
    ),
    row(
        "moe-token-dispatcher-type moe-enable-deepep moe-flex-dispatcher-backend",
        _read_dispatch,
        _write_dispatch,
    ),
    switched("moe-permute-fusion", "dispatch.fuses_permutation"),
    switched("cross-entropy-loss-fusion", "implementation.fuses_loss"),
    *(switched(name, field, turns=False) for name, field in _FUSED),
    SettingRow(("attention-backend", "use-flash-attn"), _read_attention, _write_attention),
    row("cuda-graph-impl enable-cuda-graph external-cuda-graph", _read_launch, _write_launch),
)
