"""What a published run's software does with a model, where its table does not say: with sources.

A table of runs names sizes and parallelism; which operators are one kernel, what overlaps and how
gradients are kept is the software's. Each entry says where that was read.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foretrace.validate.runs.table import PublishedRun
from foretrace.workload import ContextExchange, Implementation, Overlap, Recompute, Sharding

_NOTHING_OVERLAPS = Overlap(
    tensor=False,
    tensor_backward=False,
    context=False,
    expert=False,
    pipeline=False,
    gradients=False,
    parameters=False,
)


@dataclass(frozen=True, kw_only=True)
class Software:
    """How software lays a model out."""

    name: str
    implementation: Implementation
    overlap: Overlap = field(default_factory=Overlap)
    reduced: str = "fp32"  # number format of gradients as they are sent
    context_exchange: ContextExchange = ContextExchange.ALL_GATHER
    recompute: Recompute = Recompute.NONE  # where a table leaves it open
    sharding: Sharding = Sharding.NONE  # likewise
    sequence_parallel: bool = False  # likewise, with tensor parallelism
    # Attention kernels from before FlashAttention 2 take so many times as long.
    attention_factor: float = 1.0


# llmfoundry/models/layers and scripts/train/yamls/pretrain/mpt-*.yaml of mosaicml/llm-foundry:
# linear layers with bias, LayerNorm in low precision, exact GELU, a fused cross entropy,
# activation_checkpointing_reentrant false; composer's PURE and DEFAULT both gather and reduce in
# the autocast format (FSDP: reduce_dtype left out is param_dtype).
_LLM_FOUNDRY = Software(
    name="llm-foundry",
    implementation=Implementation(
        fuses_norms=False,
        fuses_residuals=False,
        fuses_gradients=False,
        copies_shards=True,
        stops_recompute_early=True,
    ),
    reduced="bf16",
    # Triton or FlashAttention 1 (its setup wants flash-attn 1.0): FlashAttention 2 is 1.3 to 2.5
    # times as fast as the former (Dao, arXiv:2307.08691, section 4.1); the geometric middle.
    attention_factor=1.8,
)
# torchtitan/models/llama3/model.py: separate projections, keys repeated for every head, SwiGLU and
# rotary in several kernels; "op" selective recompute; FSDP2 with fp32 reduction; torch.compile
# joins neighbours layer by layer.
_TORCHTITAN_EAGER = Software(
    name="torchtitan eager",
    implementation=Implementation(
        fuses_norms=False,
        fuses_activations=False,
        fuses_rotary=False,
        fuses_loss=False,
        fuses_residuals=False,
        fuses_projections=False,
        repeats_keys=True,
        fuses_gradients=False,
        copies_shards=True,
        selective="operators",
        stops_recompute_early=True,
    ),
)
_TORCHTITAN_COMPILED = Software(
    name="torchtitan compiled",
    implementation=Implementation(
        fuses_residuals=True,
        fuses_loss=False,  # its loss has been compiled since 2025; the runs on H100 are of 2024
        fuses_projections=False,
        repeats_keys=True,
        fuses_gradients=False,
        copies_shards=True,
        selective="operators",
        stops_recompute_early=True,
        launch="compiled",
    ),
)
_TORCHTITAN_2025 = replace(
    _TORCHTITAN_COMPILED,
    name="torchtitan compiled, of 2025",
    implementation=replace(_TORCHTITAN_COMPILED.implementation, fuses_loss=True),
)
# Megatron-LM and Transformer Engine as NeMo and Megatron-Bridge configure them: fused norms,
# rotary, SwiGLU and cross entropy, weight gradients added within products, tensor parallelism
# overlapped, distributed optimizer with both overlaps, key and value exchange as a ring.
_NEMO = Software(
    name="NeMo",
    implementation=Implementation(fuses_residuals=True, launch="graph"),
    overlap=Overlap(tensor=True, expert=False),
    reduced="bf16",
    context_exchange=ContextExchange.RING,
    sharding=Sharding.ZERO1,
    sequence_parallel=True,
)
_MEGATRON_BRIDGE = Software(
    name="Megatron-Bridge",
    implementation=Implementation(fuses_residuals=True),
    overlap=Overlap(tensor=True, expert=False),
    reduced="bf16",
    context_exchange=ContextExchange.RING,
    sharding=Sharding.ZERO1,
    sequence_parallel=True,
)
# MooreThreads/SimuMax docs/b200: Megatron-LM with every overlap switched off.
_SIMUMAX = Software(
    name="Megatron, nothing overlapped",
    implementation=Implementation(fuses_residuals=True),
    overlap=_NOTHING_OVERLAPS,
    sharding=Sharding.ZERO1,
    sequence_parallel=True,
)
# VIA-Research/vTrain src/model and src/config.py: baddbmm, one kernel for scale, mask and softmax,
# dropout, gradients reduced after the last backward pass, `use_checkpoint` true unless set.
_VTRAIN = Software(
    name="Megatron-DeepSpeed",
    implementation=Implementation(attention="plain", fuses_residuals=True),
    overlap=_NOTHING_OVERLAPS,
    reduced="fp16",
    recompute=Recompute.FULL,
)
# Narayanan et al., arXiv:2104.04473, section 4.2 and appendix: full recompute, nothing
# overlapped. MT-NLG, BLOOM and OPT run its kernels.
_MEGATRON_2021 = Software(
    name="Megatron-LM 2021",
    implementation=Implementation(attention="plain", fuses_residuals=True),
    overlap=_NOTHING_OVERLAPS,
    reduced="fp16",
    recompute=Recompute.FULL,
)
# The baseline of the MegaScale paper, Megatron-LM of January 2023: Korthikanti et al.,
# arXiv:2205.05198, sequence parallelism and selective recompute.
_MEGATRON_2023 = Software(
    name="Megatron-LM 2023",
    implementation=Implementation(attention="plain", fuses_residuals=True),
    overlap=_NOTHING_OVERLAPS,
    reduced="fp16",
    recompute=Recompute.SELECTIVE,
    sequence_parallel=True,
)
# Jiang et al., "MegaScale", arXiv:2402.15627: FlashAttention 2, sequence parallelism, all of
# it overlapped.
_MEGASCALE = Software(
    name="MegaScale",
    implementation=Implementation(fuses_residuals=True),
    overlap=Overlap(tensor=True),
    reduced="bf16",
    recompute=Recompute.SELECTIVE,
    sharding=Sharding.ZERO2,
    sequence_parallel=True,
)
# Grattafiori et al., "The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.2.
_LLAMA3 = Software(
    name="Llama 3",
    implementation=Implementation(fuses_residuals=True),
    sequence_parallel=True,
    sharding=Sharding.ZERO2,
)
# DeepSeek-AI, "DeepSeek-V3", arXiv:2412.19437, section 3.2: DualPipe hides the experts' exchange.
_DEEPSEEK = Software(
    name="DeepSeek",
    implementation=Implementation(fuses_residuals=True),
    overlap=Overlap(expert=True),
    reduced="bf16",
    sharding=Sharding.ZERO1,
)
_HUGGING_FACE = Software(
    name="Hugging Face",
    implementation=Implementation(
        attention="plain",
        fuses_residuals=False,
        fuses_loss=False,
        fuses_activations=False,
        fuses_gradients=False,
        fuses_optimizer=False,
    ),
)


def software_of(run: PublishedRun) -> Software:
    """What ran the model; Megatron-LM of 2021 for papers that say nothing else."""
    name = run.software.lower()
    for begin, software in (
        ("llm-foundry", _LLM_FOUNDRY),
        ("torchtitan-eager", _TORCHTITAN_EAGER),
        ("torchtitan", _TORCHTITAN_2025 if run.gpu == "H200" else _TORCHTITAN_COMPILED),
        ("mlperf", _NEMO),
        ("nemo", _MEGATRON_BRIDGE),
        ("megatron-simumax", _SIMUMAX),
        ("megatron-deepspeed", _VTRAIN),
    ):
        if name.startswith(begin):
            return software
    for begin, software in (
        ("neusight", _HUGGING_FACE),
        ("megascale", _MEGASCALE if run.id.endswith("-megascale") else _MEGATRON_2023),
        ("llama3", _LLAMA3),
        ("deepseek", _DEEPSEEK),
    ):
        if run.id.lower().startswith(begin):
            return software
    return _MEGATRON_2021
