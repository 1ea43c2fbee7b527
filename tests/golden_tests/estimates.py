"""The estimates that are kept: models, plans and machines, each told by what is special in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Case:
    """What to estimate."""

    model: str
    machine: str
    plan: Mapping[str, object]
    num_ranks: int | None = None
    is_folded: bool = True
    preset: str = ""  # that the plan extends


STATED: Mapping[str, object] = {
    "batch.global_batch": 32,
    "batch.micro_batch": 1,
    "batch.sequence": 4096,
    "sharding.level": "zero1",
    "memory.recompute": "none",
}
SMALL = "llama3.2-1b"


def dense(
    model: str = SMALL, machine: str = "dgx-h100", *, is_folded: bool = True, **keys: object
) -> Case:
    """A stated plan with other keys; a key's `__` stands for its dot."""
    named = {name.replace("__", "."): value for name, value in keys.items()}
    plan = {**STATED, **named}
    if "tp" in named and "parallelism.sequence_parallel" not in named:
        plan["parallelism.sequence_parallel"] = False
    return Case(model, machine, plan, is_folded=is_folded)


def experts(model: str, machine: str, **keys: Any) -> Case:
    """The same of a model with experts."""
    return dense(model, machine, parallelism__etp=1, **keys)


_SEQUENCE: Mapping[str, Any] = {"parallelism__sequence_parallel": True}


CASES: Mapping[str, Case] = {
    # tensor, data, context
    "dense dp": dense(dp=8),
    "dense dp unfolded": dense(dp=4, is_folded=False),
    "dense tp": dense("llama3-8b", tp=4, dp=2),
    "dense tp sequence parallel": dense("llama3-8b", tp=4, dp=2, **_SEQUENCE),
    "dense tp sequence parallel unfolded": dense(
        tp=2, dp=2, is_folded=False, parallelism__sequence_parallel=True
    ),
    "dense tp overlapped": dense("llama3-8b", tp=4, dp=2, overlap__tensor=True, **_SEQUENCE),
    "dense tp not overlapped backward": dense(
        "llama3-8b", tp=4, dp=2, overlap__tensor_backward=False, **_SEQUENCE
    ),
    "dense cp gathers": dense(cp=4, dp=2),
    "dense cp ring": dense(cp=4, dp=2, parallelism__context_exchange="ring"),
    "dense cp ring not overlapped": dense(
        cp=2, dp=2, tp=2, parallelism__context_exchange="ring", overlap__context=False
    ),
    "dense cp all-to-all unfolded": dense(
        cp=4, is_folded=False, parallelism__context_exchange="all-to-all"
    ),
    # sharding
    "sharding none": dense(dp=8, sharding__level="none"),
    "sharding none not overlapped": dense(
        dp=8, sharding__level="none", overlap__gradients=False, overlap__parameters=False
    ),
    "sharding zero1 small buckets": dense(dp=8, sharding__bucket_bytes=50_000_000),
    "sharding zero2": dense(dp=8, sharding__level="zero2"),
    "sharding zero2 of hybrid groups": dense(
        machine="superpod-h100", dp=16, sharding__level="zero2", sharding__ranks=8
    ),
    "sharding zero3": dense("llama3-8b", dp=8, sharding__level="zero3"),
    "sharding zero3 kept after forward": dense(
        dp=8, sharding__level="zero3", sharding__reshard_after_forward=False
    ),
    "sharding zero3 tp prefetch": dense(tp=2, dp=4, sharding__level="zero3", sharding__prefetch=3),
    "sharding zero3 unfolded": dense(dp=2, is_folded=False, sharding__level="zero3"),
    # schedules
    "schedule none": dense(dp=2, pipeline__schedule="none"),
    "schedule gpipe": dense(pp=4, dp=2, pipeline__schedule="gpipe"),
    "schedule 1f1b": dense("llama3-8b", pp=4, tp=2, pipeline__schedule="1f1b", **_SEQUENCE),
    "schedule 1f1b unfolded": dense(pp=2, dp=2, is_folded=False, pipeline__schedule="1f1b"),
    "schedule 1f1b sends not overlapped": dense(
        pp=4, dp=2, pipeline__schedule="1f1b", overlap__pipeline=False
    ),
    "schedule interleaved": dense(
        "llama3-8b", pp=4, dp=2, pipeline__schedule="interleaved", pipeline__chunks=2
    ),
    "schedule interleaved breadth": dense(
        pp=2, dp=2, pipeline__schedule="interleaved", pipeline__chunks=2, pipeline__contiguous=4
    ),
    "schedule zb-h1": dense(pp=4, dp=2, pipeline__schedule="zb-h1"),
    "schedule dualpipe": dense(pp=4, dp=2, pipeline__schedule="dualpipe"),
    "schedule uneven layers": dense(
        pp=4, pipeline__schedule="1f1b", pipeline__layers_of_chunk=[3, 5, 5, 3]
    ),
    # what is computed again, formats, software
    "recompute selective": dense(tp=2, memory__recompute="selective"),
    "recompute full": dense("llama3-8b", tp=4, memory__recompute="full", **_SEQUENCE),
    "fp8": dense("llama3-8b", tp=2, dp=4, precision__products="fp8"),
    "plain attention eager": dense(
        dp=2, implementation__attention="plain", implementation__fuses_norms=False
    ),
    "cuda graphs": dense(dp=2, implementation__launch="graph"),
    # experts, latent attention
    "experts ep": experts("mixtral-8x7b", "dgx-h100", dp=8, ep=8),
    "experts ep tp": experts("qwen3-30b-a3b", "superpod-h100", dp=8, tp=2, ep=8, **_SEQUENCE),
    "experts ep overlapped": experts(
        "gpt-oss-20b", "dgx-h100", dp=4, pp=2, ep=4, overlap__expert=True
    ),
    "experts ep zero3": experts("gpt-oss-20b", "dgx-h100", dp=8, ep=4, sharding__level="zero3"),
    "experts interleaved": experts(
        "mixtral-8x7b",
        "superpod-h100",
        pp=4,
        dp=8,
        ep=8,
        pipeline__schedule="interleaved",
        pipeline__chunks=2,
    ),
    "experts uneven unfolded": experts(
        "gpt-oss-20b", "dgx-h100", dp=2, ep=2, pp=2, is_folded=False
    ),
    "latent attention": experts(
        "deepseek-v3", "deepseek-v3-2k", pp=16, dp=16, ep=16, batch__global_batch=512
    ),
    "latent attention dualpipe": experts(
        "deepseek-v3",
        "deepseek-v3-2k",
        pp=8,
        dp=32,
        ep=32,
        batch__global_batch=512,
        pipeline__schedule="dualpipe",
    ),
    # norms elsewhere, windows, heads of which a part is turned
    "norms behind tp": dense("olmo-2-32b", tp=8, **_SEQUENCE),
    "norms on both sides": dense("gemma-3-27b", tp=4, pp=2, memory__recompute="full", **_SEQUENCE),
    "soft caps plain": dense("gemma-2-27b", tp=8, implementation__attention="plain"),
    # states in place of attention
    "states": dense("mamba2-2.7b", dp=8, batch__sequence=2048),
    "states and attention tp": dense("nemotron-h-8b", tp=4, pp=2, **_SEQUENCE),
    "states and attention cp": dense("nemotron-h-8b", tp=2, cp=2, dp=2, memory__recompute="full"),
    # encoders of pictures
    "patches": dense(
        "siglip-so400m", dp=8, batch__global_batch=2048, batch__sequence=729, batch__micro_batch=32
    ),
    "patches tp": dense(
        "vit-h-14",
        tp=2,
        dp=4,
        batch__global_batch=512,
        batch__sequence=257,
        batch__micro_batch=16,
        memory__recompute="full",
    ),
    # other machines, published plans, open plans
    "a100": dense("gpt3-2.7b", "dgx-a100", tp=2, dp=4, batch__sequence=2048),
    "b200": dense("llama3-8b", "dgx-b200", dp=8),
    "gb200": dense("llama3-70b", "gb200-nvl72", tp=8, pp=2, dp=4, **_SEQUENCE),
    "mi300x": dense("llama3-8b", "mi300x-platform", dp=8, sharding__level="zero3"),
    "tpu": dense("llama3-8b", "tpu-v5p-pod", dp=16, sharding__level="zero3"),
    "v100": dense("gpt2", "dgx-1-v100", dp=8, batch__sequence=1024, precision__products="fp16"),
    "megatron": Case(
        "llama3-8b",
        "dgx-h100",
        {**STATED, "tp": 4, "parallelism.sequence_parallel": True},
        num_ranks=8,
        preset="megatron",
    ),
    "16,384 ranks": Case("llama3-405b", "llama3-24k", {}, preset="llama3-405b-8k-16k-gpus"),
    "open plan": Case(SMALL, "dgx-h100", {"batch.global_batch": 64}, num_ranks=8),
    # no transformers
    "recommender": Case("dlrm-criteo-terabyte", "zionex-128", {"global_batch": 65536, "dp": 16}),
    "recommender row-wise": Case(
        "dlrm-mlperf-v2",
        "zionex-128",
        {"global_batch": 65536, "dp": 16, "tables.scheme": "row-wise"},
    ),
    "recommender column-wise unfolded": Case(
        "dlrm-criteo-kaggle",
        "dgx-a100",
        {"global_batch": 8192, "dp": 4, "tables.scheme": "column-wise"},
        is_folded=False,
    ),
    "diffusion": Case("stable-diffusion-1.5", "dgx-a100", {"global_batch": 64, "dp": 8}),
    "diffusion of a video": Case("modelscope-video", "dgx-h100", {"global_batch": 8, "dp": 8}),
    # refused
    "refused heads": dense(tp=3),
    "refused layers": dense(pp=20, dp=1, machine="superpod-h100"),
    "refused batch": dense(dp=3),
}
