"""`Plan`: how a model's work is laid over ranks and time, all of it stated."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from foretrace.base import WorkloadError, known_format
from foretrace.workload.models.recompute import Recompute, RecomputeModule
from foretrace.workload.sharding.tables import TableSharding

# Of gradients that DistributedDataParallel reduces at once (torch/nn/parallel/distributed.py,
# bucket_cap_mb), where plain PyTorch is what runs.
DDP_BUCKET_BYTES = 25 * 2**20


class Axis(StrEnum):
    """One dimension of the grid of ranks; their sizes multiply to the number of ranks."""

    TENSOR = "tp"
    CONTEXT = "cp"
    DATA = "dp"
    PIPELINE = "pp"


class Group(StrEnum):
    """Ranks that communicate with each other."""

    TENSOR = "tp"
    CONTEXT = "cp"
    PIPELINE = "pp"  # all stages of one pipeline; a transfer names two of them
    DATA = "dp"  # all ranks that hold the same dense parameters: data times context
    SHARD = "shard"  # of DATA, those over which parameters or states are divided
    REPLICA = "replica"  # of DATA, those that hold the same shard
    EXPERT = "ep"  # ranks that divide the experts
    EXPERT_TENSOR = "etp"  # ranks that divide each expert
    EXPERT_DATA = "edp"  # ranks that hold the same parameters of experts
    EMBEDDING = "embedding"  # first and last stage, where both hold the tied table
    MIRROR = "mirror"  # stages that hold the same chunks: DualPipe's s and `pipeline - 1 - s`
    ALL = "all"


class Sharding(StrEnum):
    """What the ranks of SHARD divide among them; each includes the ones before.

    Source:
        Rajbhandari et al., "ZeRO", arXiv:1910.02054; Zhao et al., "PyTorch FSDP",
        arXiv:2304.11277.
    """

    NONE = "none"  # gradients are all-reduced
    ZERO1 = "zero1"  # states of the optimizer
    # Gradients too: reduced and scattered in every backward pass, in a pipeline after each run of
    # a chunk's microbatches.
    ZERO2 = "zero2"
    ZERO3 = "zero3"  # parameters too: gathered before use


class ContextExchange(StrEnum):
    """How attention sees keys and values of other ranks of CONTEXT."""

    ALL_GATHER = "all-gather"  # once a layer, before attention: Llama 3
    RING = "ring"  # round by round, beside attention: Ring Attention, arXiv:2310.01889
    # Heads for tokens before attention, and back after it: Ulysses, arXiv:2309.14509.
    ALL_TO_ALL = "all-to-all"


class Scales(StrEnum):
    """What one scale of an operand of eight bits is for, where its format has no blocks."""

    TENSOR = "tensor"  # all of its numbers: the same copy does for every product, turned
    # Numbers that are summed up together: a row of the left operand, a column of the right one.
    # Products of the backward pass sum along the other side and quantise anew.
    ROW = "row"  # torchao's "rowwise"


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Number formats, called as in `foretrace.machine`."""

    products: str = "bf16"  # inputs of products: bf16, fp16, fp8, mxfp8, nvfp4, fp32, tf32
    scales: Scales = Scales.TENSOR
    # Weights' gradients are products of operands that were not quantised: torchao's
    # "rowwise_with_gw_hp".
    wide_weight_gradients: bool = False
    activations: str = "bf16"  # what is kept and sent between operators
    # What gated activations read, as it is kept for the backward pass; `None`: as activations.
    gate_inputs: str | None = None
    attention: str | None = None  # inputs of attention's own products; `None`: as they are made
    parameters: str = "bf16"  # what products read and what is gathered
    gradients: str = "fp32"  # as they are accumulated
    reduced: str = "fp32"  # as they are sent to be reduced
    # Bytes per parameter that the optimizer keeps: fp32 copy 4, two moments 8.
    optimizer_bytes: float = 12.0

    @property
    def is_quantised(self) -> bool:
        """Whether products take eight bits or fewer."""
        return known_format(self.products).is_narrow

    @property
    def wide_products(self) -> str:
        """Of products that stay in 16 bit or more: routers, the output projection, attention."""
        return self.activations if self.is_quantised else self.products

    @property
    def made(self) -> str:
        """Of what products give, and of messages with it."""
        found = "fp32" if self.wide_products == "tf32" else self.wide_products
        return min(found, self.activations, key=lambda dtype: known_format(dtype).num_bytes)

    @property
    def sent_operands(self) -> str:
        """Of tokens that are gathered to be multiplied: quantised first, then sent.

        Not where scales are of rows: other products need the tokens' other side.

        Source:
            NVIDIA/TransformerEngine, transformer_engine/pytorch/module/linear.py;
            pytorch/torchtitan, torchtitan/components/quantization/float8.md.
        """
        return self.products if self.is_quantised and not self.scales_rows else self.made

    @property
    def scales_rows(self) -> bool:
        """Whether operands are quantised along each of their sides, with a scale for each row."""
        is_whole = self.is_quantised and not known_format(self.products).scale_bytes
        return is_whole and self.scales is Scales.ROW

    @property
    def weight_gradient_products(self) -> str:
        """Of operands of products that give weights' gradients."""
        return self.made if self.wide_weight_gradients else self.products


@dataclass(frozen=True, kw_only=True)
class Implementation:
    """What software makes of the model: which operators are one kernel, how they are launched."""

    attention: str = "flash"  # or "plain": scores are written to memory
    fuses_norms: bool = True
    fuses_activations: bool = True  # SwiGLU, GELU with its bias
    fuses_clamps: bool = False  # limits of clamped gates too, where kernels are launched one by one
    fuses_rotary: bool = True
    fuses_scaled_rotary: bool = True  # also where what is turned is longer by a factor
    # Where they are no one kernel, rotary positions turn halves of real numbers: Hugging Face's
    # models. Else complex numbers: Llama's own code, torchtitan.
    rotates_halves: bool = False
    fuses_loss: bool = True  # cross entropy in one pass, in parallel over tensor ranks
    fuses_residuals: bool = False  # bias, dropout and residual sum in one kernel
    fuses_optimizer: bool = True
    # Queries, keys and values are one product; so are gate and up. Megatron, llm-foundry.
    fuses_projections: bool = True
    # Keys and values of grouped attention are copied for every head before it: torchtitan.
    repeats_keys: bool = False
    # Products add weights' gradients to what microbatches before left: Megatron. Else a kernel
    # of its own does, where gradients are not scattered after each microbatch.
    fuses_gradients: bool = True
    # ZeRO-3: gathered parameters, and gradients before they are reduced, are copied: FSDP2.
    copies_shards: bool = False
    # What selective recompute computes again: "scores" (Megatron), or "operators": all but
    # attention and every second product (torchtitan's "op").
    selective: str = "scores"
    # Recompute ends with the last result that the backward pass needs, so that a layer's last
    # product is not done again: torch.utils.checkpoint without reentrance.
    stops_recompute_early: bool = False
    # Operands of eight bits are first read for their largest value: torchao's dynamic scaling,
    # Transformer Engine's current scaling. Else their scale is known, or of small blocks.
    measures_scales: bool = False
    # Host time per operation: "eager", "compiled" or "graph" (CUDA graphs); see `layout.launch`.
    launch: str = "eager"
    launch_times: float | None = None  # times as long as usual, by the host; `None`: not known


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Which communication runs beside computation; what does not is waited for at once."""

    tensor: bool = False  # within products, piece by piece
    # In the backward pass beside the products for weights: Megatron, Transformer Engine.
    tensor_backward: bool = True
    context: bool = True  # of a ring; an all-gather is always waited for
    expert: bool = False
    pipeline: bool = True  # sends; a receive is waited for where its data is needed
    gradients: bool = True  # reduced bucket by bucket during the last backward pass
    parameters: bool = True  # gathered beside the forward pass


@dataclass(frozen=True, kw_only=True)
class Channels:
    """How many channels NCCL divides collectives over; `None`: as many as it takes by itself.

    Each is a ring, or a tree, of its own and keeps one processor of every chip (an SM) to itself
    while it runs: `NCCL_MAX_NCHANNELS`, `maxCTAs` of a communicator.
    """

    tensor: int | None = None
    context: int | None = None
    expert: int | None = None  # where no library but NCCL sends tokens
    pipeline: int | None = None
    data: int | None = None  # gradients and parameters

    def of(self, group: Group) -> int | None:
        """Those of a group's collectives; sums of a few numbers state none."""
        by_group = {
            Group.TENSOR: self.tensor,
            Group.CONTEXT: self.context,
            Group.PIPELINE: self.pipeline,
            **dict.fromkeys((Group.EXPERT, Group.EXPERT_TENSOR), self.expert),
            **dict.fromkeys((Group.DATA, Group.SHARD, Group.REPLICA, Group.EXPERT_DATA), self.data),
        }
        return by_group.get(group)


class Copies(StrEnum):
    """How many copies of a token are sent to the experts that it chose."""

    BY_EXPERT = "expert"  # one for each: Megatron's all-to-all dispatcher
    # Once to each rank that holds any of them, by way of one rank of each other scale-up domain.
    BY_RANK = "rank"  # Hybrid-EP
    BY_HOST = "host"  # DeepEP


@dataclass(frozen=True, kw_only=True)
class Dispatch:
    """How tokens get to the ranks of their experts, and back.

    Source:
        deepseek-ai/DeepEP, README; NVIDIA/Megatron-LM, megatron/core/transformer/moe.
    """

    copies: Copies = Copies.BY_EXPERT
    host_ranks: int = 8  # most ranks of EXPERT that DeepEP takes for one host
    most_hosts: int = 0  # that the router sends a token to; 0: as many as it chooses
    most_ranks: int = 0  # so too; few where benchmarks choose experts in turn
    quantised: bool = False  # tokens go there in the products' format, where that is narrow
    # The exchange puts tokens in order of their experts as it writes them, and sums them as it
    # reads them back: Hybrid-EP's `dispatch_with_permute`.
    orders_tokens: bool = False
    # One kernel puts rows in order, one sums what experts gave by their weights. Else rows are
    # weighed by a kernel of its own first.
    fuses_permutation: bool = True


class AdaptedModule(StrEnum):
    """Products of a layer that an adapter stands beside, as Megatron-LM calls them."""

    QKV = "linear_qkv"
    OUTPUT = "linear_proj"
    UP = "linear_fc1"  # the gate's too
    DOWN = "linear_fc2"


@dataclass(frozen=True, kw_only=True)
class Adapters:
    """Low-rank adapters, which alone are trained: all other weights are frozen.

    A product's output gets B A x beside W x, where A has `rank` rows and B as many columns.
    Ranks of TENSOR that divide a product's outputs divide those of B and repeat A; those that
    divide its inputs divide A's and repeat B, and what B gives is summed up with the product.

    Source:
        Hu et al., "LoRA", arXiv:2106.09685; Hugging Face PEFT's division over ranks. Default rank
        and modules are those of NVIDIA-NeMo/Megatron-Bridge, `LoRA`.
    """

    rank: int = 32
    modules: tuple[AdaptedModule, ...] = tuple(AdaptedModule)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A complete plan: nothing is left open.

    `tensor * context * data * pipeline` ranks; rank numbers count along `order`, the innermost
    axis first, and rank r stands at place r of the machine.
    """

    tensor: int = 1
    context: int = 1
    data: int = 1
    pipeline: int = 1
    expert: int = 1  # ranks that divide the experts, among those of tensor, context and data
    expert_tensor: int | None = None  # ranks that divide one expert; `None`: as `tensor`
    order: tuple[Axis, ...] = (Axis.TENSOR, Axis.CONTEXT, Axis.DATA, Axis.PIPELINE)
    # Parts of `data` that stand outside of all axes, as copies of a sharded model in several
    # buildings do; `None`: all of it stands where `order` says.
    outer_data: int | None = None
    # Ranks with the same experts that stand between two of EXPERT; `None`: 1, they are neighbours.
    expert_stride: int | None = None

    micro_batch: int = 1  # sequences
    global_batch: int = 1  # sequences of one step, over all ranks of DATA
    sequence: int = 2048  # tokens

    schedule: str = "1f1b"  # one of `foretrace.workload.SCHEDULES`, or a file
    num_chunks: int = 1  # parts of the model that each stage holds (virtual stages)
    contiguous: int | None = None  # microbatches of one chunk in a row; `None`: `pipeline`
    # Layers of each chunk, first to last; `None`: as even as can be.
    layers_of_chunk: tuple[int, ...] | None = None

    sequence_parallel: bool = False
    context_exchange: ContextExchange = ContextExchange.ALL_GATHER
    sharding: Sharding = Sharding.NONE
    shard_ranks: int | None = None  # of DATA ranks (data times context); `None`: all of them
    reshard_after_forward: bool = True  # ZeRO-3: gather again for the backward pass
    prefetch: int = 1  # ZeRO-3: layers that are gathered ahead
    # Of gradients that are reduced at once; `None`: Megatron's rule, the larger of 40 million
    # numbers and a million for each rank of DATA (distributed_data_parallel.py).
    bucket_bytes: int | None = None
    # Steps that copies of the model do by themselves before they sum what changed, a part of it in
    # each step, as streaming DiLoCo does; another algorithm. `None`: gradients in every step.
    # Source: Douillard et al., "Streaming DiLoCo", arXiv:2501.18512.
    local_steps: int | None = None
    # Whose transfers go before all others on links that are shared; `None`: nobody's.
    first: Group | None = None
    recompute: Recompute = Recompute.NONE
    # What selective recompute does again; `None`: what `implementation.selective` says.
    recompute_modules: tuple[RecomputeModule, ...] | None = None
    # Of every layer in the place of both: a `Recompute`, or its modules as in "layernorm+mlp".
    recompute_of_layer: tuple[str, ...] | None = None
    # Share of tokens of each expert, summing to 1; `None`: balanced.
    token_shares: tuple[float, ...] | None = None
    tables: TableSharding | None = None  # of recommenders; `None`: whole, dealt to ranks by cost
    adapters: Adapters | None = None  # `None`: all weights are trained

    overlap: Overlap = field(default_factory=Overlap)
    channels: Channels = field(default_factory=Channels)
    precision: Precision = field(default_factory=Precision)
    dispatch: Dispatch = field(default_factory=Dispatch)
    implementation: Implementation = field(default_factory=Implementation)
    name: str = ""
    path: Path | None = None  # `None`: it was not read from a file

    @property
    def num_ranks(self) -> int:
        """Ranks of the whole job."""
        return self.tensor * self.context * self.data * self.pipeline

    @property
    def ranks_of_replica(self) -> int:
        """Ranks that together hold the model once."""
        return self.tensor * self.context * self.pipeline

    @property
    def ranks_of_stage(self) -> int:
        """Ranks that hold the same layers, or parts of them."""
        return self.tensor * self.context * self.data

    @property
    def places(self) -> tuple[object, ...]:
        """All that says which ranks are in which group."""
        return (
            *(self.tensor, self.context, self.data, self.pipeline, self.order, self.outer_data),
            *(self.expert, self.expert_tensor, self.expert_stride, self.shard_ranks),
        )

    @property
    def last_chunk(self) -> int:
        """The model's last chunk; the first is 0."""
        return self.pipeline * self.num_chunks - 1

    @property
    def num_microbatches(self) -> int:
        """Microbatches of one step that each rank sees."""
        return self.global_batch // (self.micro_batch * self.data)


def plan_of_layer(plan: Plan, layer: int) -> Plan:
    """The plan as one layer has it: with what that layer computes again.

    Raises:
        WorkloadError: if what is stated of layers are no words for it.
    """
    if plan.recompute_of_layer is None:
        return plan
    word = plan.recompute_of_layer[layer]
    alone = replace(plan, recompute_of_layer=None, recompute_modules=None)
    if word in set(Recompute):
        return replace(alone, recompute=Recompute(word))
    names = word.split("+")
    if unknown := [name for name in names if name not in set(RecomputeModule)]:
        raise WorkloadError(
            f"layer {layer} is to compute {unknown[0]!r} again: expected is "
            f"{', '.join(Recompute)}, or {', '.join(RecomputeModule)} joined by +"
        )
    modules = tuple(RecomputeModule(name) for name in names)
    return replace(alone, recompute=Recompute.SELECTIVE, recompute_modules=modules)


def chunk_layers(plan: Plan, num_layers: int) -> tuple[int, ...]:
    """How many layers each chunk holds, in the order of a route: `pipeline * num_chunks` numbers.

    Unless the plan states them, as even as can be. Where that does not come out even, chunks at
    the ends have the layer less, since the first also holds the embedding and the last the output
    projection and the loss: the last chunk first, then the first one, the last but one, and so on.

    Raises:
        WorkloadError: if what the plan states does not fit its chunks or the model.

    Source:
        Llama Team, "The Llama 3 Herd of Models", arXiv:2407.21783, section 3.3.2: one layer less
        on the first and on the last stage.
    """
    num_parts = plan.pipeline * plan.num_chunks
    stated = plan.layers_of_chunk
    if stated is None:
        return _even(num_layers, num_parts)
    if len(stated) != num_parts:
        raise WorkloadError(
            f"layers_of_chunk has {len(stated)} numbers, and pp {plan.pipeline} x "
            f"{plan.num_chunks} chunks a stage = {num_parts} chunks: state one number for each, "
            "first to last along the model"
        )
    if sum(stated) != num_layers or min(stated) < 0:
        raise WorkloadError(
            f"layers_of_chunk sums to {sum(stated)} and its smallest number is {min(stated)}, "
            f"where the model has {num_layers} layers: the numbers have to sum to that, none "
            "below 0"
        )
    return stated


def _even(num_layers: int, num_parts: int) -> tuple[int, ...]:
    most = -(-num_layers // num_parts)
    layers = [most] * num_parts
    for turn in range(most * num_parts - num_layers):
        place = turn // 2
        layers[num_parts - 1 - place if turn % 2 == 0 else place] -= 1
    return tuple(layers)
