"""Memory of a GPU that serves: weights, what is kept of tokens, and the rest.

Source:
    vllm-project/vllm 0.19, vllm/v1/worker/gpu_worker.py, `determine_available_memory`: of the
    memory times its utilisation, what weights, the largest batch and the context take is not left
    for the cache; blocks fill the rest.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from foretrace.answer import Plain
from foretrace.base import FORMAT_BY_NAME
from foretrace.workload.models.account import cache_bytes_per_token, state_bytes
from foretrace.workload.models.parameters import parameters
from foretrace.workload.models.parts import (
    EMBEDDING,
    EXPERTS,
    OUTPUT,
)
from foretrace.workload.models.transformer import Transformer

# CUDA's context and kernels as PyTorch 2.10 loads them, before any tensor: 0.4 to 0.5 GiB on
# GeForce and workstation cards, as nvidia-smi shows for an idle process.
_CONTEXT_BYTES = 450 << 20
# NCCL's buffers of a rank that has others: 16 channels of 8 MiB, NCCL's defaults.
_NCCL_BYTES = 128 << 20
# What sampling takes for a number of the vocabulary and a sequence: logits in bf16 and fp32, sorted
# values, their places in int64, and running sums (vllm/v1/sample/ops/topk_topp_sampler.py).
_SAMPLING_BYTES = 2 + 4 + 4 + 8 + 4


@dataclass(frozen=True)
class ServingMemory(Plain):
    """Memory of one GPU of an engine, in bytes."""

    weights: int
    activations: int  # of the largest step
    context: int
    cache: int  # left for what is kept of tokens
    bytes_per_token: float  # kept, of one token on this GPU
    bytes_per_sequence: float = 0.0  # states, whatever its length


def serving_memory(
    model: Transformer,
    *,
    capacity: int,
    utilisation: float = 0.9,
    tensor: int = 1,
    expert_ranks: int = 1,
    pipeline: int = 1,
    max_tokens: int = 2048,
    max_sequences: int = 256,
    cache_format: str = "bf16",
) -> ServingMemory:
    """What a GPU holds of a model that serves, and what it has left.

    Args:
        model: that serves.
        capacity: of the GPU, in bytes.
        utilisation: share of it that the engine may take.
        tensor: degree of tensor parallelism.
        expert_ranks: GPUs that share the experts out; as many as `tensor`, or more.
        pipeline: stages that layers lie over; told of the one that keeps fewest tokens.
        max_tokens: of a step.
        max_sequences: of a step.
        cache_format: of what is kept of tokens.
    """
    kept = weight_bytes_by_part(model)
    experts = kept[EXPERTS]
    weights = (sum(kept.values()) - experts) / tensor + experts / max(tensor, expert_ranks)
    width = 3 * model.feed_forward.width
    if model.experts is not None:
        width = max(width, 3 * model.experts.width * model.experts.num_active)
    step = max_tokens * (4 * model.hidden + width / tensor) * 2
    sampling = max_sequences * model.vocabulary * _SAMPLING_BYTES
    shared = min(tensor, model.attention.num_kv_heads) if model.attention.latent is None else 1
    per_token = cache_bytes_per_token(model, cache_format) / max(shared, 1)
    states = state_bytes(model, cache_format) / tensor
    has_others = max(tensor, expert_ranks, pipeline) > 1
    context = _CONTEXT_BYTES + (_NCCL_BYTES if has_others else 0)
    ends = [kept[EMBEDDING] / tensor, kept[OUTPUT] / tensor]
    if model.ties_embeddings:
        ends[1] = ends[0]
    found: list[ServingMemory] = []
    for stage, layers in enumerate(layers_of_stages(model.num_layers, pipeline)):
        is_last = stage == pipeline - 1
        share = layers / model.num_layers
        held = weights
        if pipeline > 1:
            of_layers = weights - ends[0] - (0 if model.ties_embeddings else ends[1])
            held = of_layers * share + ends[0] * (stage == 0) + ends[1] * is_last
        activations = int(max(step, sampling if is_last else 0))
        cache = int(capacity * utilisation) - int(held) - activations - context
        found.append(
            ServingMemory(
                int(held), activations, context, max(cache, 0), per_token * share, states * share
            )
        )
    return min(
        found, key=lambda one: one.cache / max(one.bytes_per_token or one.bytes_per_sequence, 1.0)
    )


def weight_bytes_by_part(model: Transformer) -> defaultdict[str, float]:
    """Bytes of a model's weights by part, as its checkpoint keeps them.

    Biases count with the weights of their part.
    """
    whole = FORMAT_BY_NAME["bf16"].num_bytes
    found = defaultdict(float, {part.name: part.total * whole for part in parameters(model).parts})
    how = model.quantisation
    if how is not None and how.weights:
        for part in found:
            found[part] *= 1 - how.share(part) * (1 - how.bytes_per_weight / whole)
    return found


def layers_of_stages(num_layers: int, stages: int) -> tuple[int, ...]:
    """Layers of each stage as vLLM deals them: those left over to the later ones but the last."""
    found = [num_layers // stages] * stages
    for at in range(2, num_layers % stages + 2):
        found[-at] += 1
    return tuple(found)
