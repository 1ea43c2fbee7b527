"""`times_of_profiles`: layer profiles become the tables of steps; what they lack comes from models.

Profiles are of one GPU without its peers: collectives come from `cost` and the machine. Nothing is
added for the host: with asynchronous scheduling it is done with a step before the GPU begins it.
What a graph saves, 2 us a kernel, lies between kernels: profiles of kernels have it not in them.
"""

from __future__ import annotations

import itertools

import numpy as np

from foretrace.base import CollectiveKind, Float64s, Int64s, WorkloadError
from foretrace.machine import Machine
from foretrace.serve.engine import Engine
from foretrace.serve.exchanges import exchange_ns, sums_ns
from foretrace.serve.expert_layers import experts_ns, halved_ns, ranks_in_step, sent_ns
from foretrace.serve.profiles import LayerProfiles
from foretrace.serve.step_times import (
    EngineStepTimes,
    PipelineStages,
    along,
    beyond,
    launched_ns,
    padded_tokens,
)
from foretrace.workload import Transformer, layers_of_stages

# Calls in a step of layers that profiles list once: of every layer, or of the model.
_OF_MODEL = frozenset({"embedding", "final_layernorm"})
# Kernels of attention (what is kept is written first), and of experts (rows put in order, two
# products, the activation, the sum).
_OF_ATTENTION, _OF_EXPERTS = 2, 5
_BYTES = 2  # of an activation
# How far steps of two deployments lay from their layers' sum: most between 3 % below and 6 % above.
_LOW, _HIGH = 0.97, 1.06
# Collectives that another chip's constants answer for lie within this (docs/cost/collectives.md).
_EXCHANGES_OFF = 0.4
# Between cards on PCIe they may be as much faster as other hosts' links are: 21 to 64 GB/s
# (machine/presets/hosts/rtx-pro-pair.toml).
_LESS_ON_PCIE = 0.67


def times_of_profiles(
    profiles: LayerProfiles, model: Transformer, engine: Engine, *, machine: Machine | None = None
) -> EngineStepTimes:
    """Durations of an engine's steps from profiles of its layers.

    Args:
        profiles: of the model at the engine's degree of tensor parallelism.
        model: that serves.
        engine: its settings.
        machine: that collectives run on; needed where several GPUs serve one model.

    Raises:
        WorkloadError: if it is needed and not given.
    """
    most = engine.max_num_batched_tokens
    padded = padded_tokens(engine, most)
    layers = model.num_layers
    token_ns = np.zeros(most + 1)
    branches = sum(layer.num_branches for layer in model.layers)
    norms = branches * model.norm_place.num_norms
    launches = len(profiles.per_sequence) + _OF_ATTENTION * layers
    launches += _OF_EXPERTS * sum(layer.has_experts for layer in model.layers)
    for name, (tokens, ns) in profiles.dense.items():
        calls = 1 if name in _OF_MODEL else norms if name == "layernorm" else layers
        launches += calls
        token_ns += calls * along(tokens, ns, padded)
    exchanges_ns = tensor_exchanges_ns(model, engine, machine)
    token_ns += exchanges_ns
    sequences = np.arange(engine.max_num_seqs + 1)
    sequence_ns = np.zeros(len(sequences))
    guesses = engine.num_speculative_tokens
    for tokens, ns in profiles.per_sequence.values():
        sequence_ns += along(tokens, ns, sequences * (1 + guesses))
        if engine.has_drafts:
            sequence_ns += guesses * along(tokens, ns, sequences)
    sequence_ns += logits_ns(model, engine, machine, sequences * (1 + guesses))
    if engine.has_drafts:
        sequence_ns += guesses * token_ns[np.minimum(sequences, most)] / layers
    copies = ranks_in_step(model, engine)
    token_ns = halved_ns(token_ns, engine.halves_from if copies > 1 else None)
    shared_ns = experts_ns(profiles, model, engine, machine, beside_ns=token_ns)
    sent = sent_ns(model, engine, machine)
    usual = min(engine.max_num_seqs, most)
    taken_ns = [float(exchanges_ns[usual]), 0.0 if sent is None else float(sent[usual])]
    share = sum(taken_ns) / float(token_ns[usual] + shared_ns[copies * usual] + taken_ns[1])
    decode, prefill, mixed = (
        one.scaled(layers) for one in (profiles.decode, profiles.prefill, profiles.mixed)
    )
    return EngineStepTimes(
        token_ns=token_ns,
        sequence_ns=sequence_ns,
        shared_ns=shared_ns,
        decode=decode,
        prefill=prefill,
        mixed=mixed,
        num_ranks=copies,
        sent_ns=sent,
        padded=np.where(np.arange(most + 1) <= max(engine.captured(), default=0), padded, 0),
        host_ns=launched_ns(engine, launches, most),
        pipeline=pipeline_stages(profiles, model, engine, machine=machine),
        low=_LOW - _exchanges_less(machine) * share,
        high=_HIGH + _EXCHANGES_OFF * share,
        assumed=None
        if profiles.assumed is None
        else (layers * profiles.assumed[0], layers * profiles.assumed[1]),
        source=f"layer profiles of {profiles.gpu} at tp{profiles.tensor}",
        notes=beyond(
            [
                ("tokens", most, max(float(one[0][-1]) for one in profiles.dense.values())),
                (
                    "sequences",
                    engine.max_num_seqs,
                    max(float(one[0][-1]) for one in profiles.per_sequence.values()),
                ),
                ("tokens of prefills", most, float(profiles.prefill.axes[0][-1])),
            ]
        ),
    )


def _exchanges_less(machine: Machine | None) -> float:
    """By what share of themselves exchanges may be shorter."""
    on_pcie = machine is not None and machine.chip.link_bytes_per_ns is None
    return _LESS_ON_PCIE if on_pcie else _EXCHANGES_OFF


def pipeline_stages(
    profiles: LayerProfiles, model: Transformer, engine: Engine, *, machine: Machine | None
) -> PipelineStages | None:
    """Layers over stages, as vLLM deals them; each sends on what it has of a token twice.

    Once as it stands between layers, once what is added to it (vllm-project/vllm 0.19,
    vllm/distributed/utils.py, `get_pp_indices`; models/llama.py, `IntermediateTensors`).

    Raises:
        WorkloadError: if there are more stages than layers, or the machine is too small.
    """
    count = engine.pipeline_parallel_size
    if count == 1:
        return None
    if count > model.num_layers:
        raise WorkloadError(
            f"pipeline_parallel_size is {count}, and {model.name} has {model.num_layers} layers: "
            "take no more stages than layers"
        )
    if machine is not None and machine.num_ranks < engine.num_gpus // engine.data_parallel_size:
        raise WorkloadError(
            f"one engine over stages has more GPUs than {machine.name}, which has "
            f"{machine.num_ranks}: take fewer stages, or name a larger machine with --machine"
        )
    padded = padded_tokens(engine, engine.max_num_batched_tokens)
    embedding = profiles.dense.get("embedding")
    edges = np.cumsum([0, *layers_of_stages(model.num_layers, count)])
    has_experts = np.array([layer.has_experts for layer in model.layers], np.float64)
    shares = np.zeros((count, 2))
    for stage, (begin, end) in enumerate(itertools.pairwise(edges.tolist())):
        shares[stage, 0] = (end - begin) / model.num_layers
        shares[stage, 1] = has_experts[begin:end].sum() / max(has_experts.sum(), 1.0)
    sent = 2 * padded * model.hidden * _BYTES // engine.tensor_parallel_size
    return PipelineStages(
        shares=shares,
        embedding_ns=np.zeros(len(padded)) if embedding is None else along(*embedding, padded),
        transfer_ns=exchange_ns(CollectiveKind.SEND_RECV, sent, 2, machine),
    )


def tensor_exchanges_ns(model: Transformer, engine: Engine, machine: Machine | None) -> Float64s:
    """All-reduces of tensor parallelism by tokens: one a branch, one after the embedding."""
    padded = padded_tokens(engine, engine.max_num_batched_tokens)
    ranks = engine.tensor_parallel_size
    if ranks == 1:
        return np.zeros(len(padded))
    once = sums_ns(
        padded * model.hidden * _BYTES,
        ranks,
        machine,
        is_own=not engine.disable_custom_all_reduce,
        in_graph=padded <= max(engine.captured(), default=0),
    )
    return once * (sum(layer.num_branches for layer in model.layers) + 1)


def logits_ns(
    model: Transformer, engine: Engine, machine: Machine | None, sequences: Int64s
) -> Float64s:
    """What GPUs of one copy gather of the last layer, each a part of the vocabulary.

    Source: vllm-project/vllm 0.19, vllm/model_executor/layers/logits_processor.py.
    """
    ranks = engine.tensor_parallel_size
    if ranks == 1:
        return np.zeros(len(sequences))
    size = sequences * model.vocabulary * _BYTES
    return exchange_ns(CollectiveKind.ALL_GATHER, size, ranks, machine)
