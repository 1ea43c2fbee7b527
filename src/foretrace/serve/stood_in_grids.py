"""`stood_in_grids`: what states and indexers take of an engine's step, from other kernels' models.

Prompts are scanned chunk by chunk, by the kernels that training has forward; a new token of a reply
reads and writes its sequence's states once, which memory bounds. An indexer's scores are attention
with half its head size, whose keys have eight bits; their sums are written, and read twice to
choose among them. None of these kernels was measured.

Source:
    vllm-project/vllm 0.19, vllm/model_executor/layers/fla/ops/fused_recurrent.py (one launch for
    all sequences); vllm/model_executor/models/deepseek_v2.py, `Indexer`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from foretrace.base import Float64s
from foretrace.cost import FittedKernels, operation_of
from foretrace.machine import Chip
from foretrace.serve.attention_grids import AXES, attention_kind, fitted_ns, moved_ns
from foretrace.serve.formats import ServedFormats
from foretrace.workload import (
    Indexer,
    Operator,
    Plan,
    Setting,
    StateSpace,
    Transformer,
    scan_step,
    state_bytes,
)

_SUM_BYTES = 4  # of an indexer's sums
_CHOICE_PASSES = 3  # over them: written, read to find the least that is chosen, read to choose


def states_of_rank(states: StateSpace, tensor: int) -> StateSpace:
    """The share of states that one GPU of a copy has."""
    return replace(
        states,
        num_heads=max(1, states.num_heads // tensor),
        num_groups=max(1, states.num_groups // tensor),
    )


def stood_in_grids(
    chip: Chip, model: Transformer, tensor: int, *, formats: ServedFormats
) -> tuple[Float64s, Float64s]:
    """Of new tokens by sequences and keys, of prompts by tokens and keys before; ns of one layer.

    Args:
        chip: that they run on.
        model: that serves.
        tensor: degree of tensor parallelism.
        formats: of what is kept.
    """
    chunks, before, counts, keys = AXES
    decode = np.zeros((len(counts), len(keys)))
    prefill = np.zeros((len(chunks), len(before)))
    if model.states is not None:
        share = sum(layer.has_states for layer in model.layers) / model.num_layers
        moved = 2 * state_bytes(model, formats.cache) / tensor / model.num_layers / share
        decode += share * moved_ns(chip, counts.astype(np.float64) * moved)[:, None]
        scanned = [_scanned_ns(chip, model, tensor, tokens) for tokens in chunks.tolist()]
        prefill += share * np.array(scanned)[:, None]
    if (indexer := model.attention.indexer) is not None:
        share = sum(layer.has_attention for layer in model.layers) / model.num_layers
        decode += share * _indexed_decode_ns(chip, indexer)
        prefill += share * _indexed_prefill_ns(chip, indexer)
    return decode, prefill


def _scanned_ns(chip: Chip, model: Transformer, tensor: int, tokens: int) -> float:
    if model.states is None:
        return 0.0
    own = states_of_rank(model.states, tensor)
    step = scan_step(Setting(model, Plan(sequence=tokens)), own)
    operations = [
        operation_of(one.name, one.signature) for one in step.forward if isinstance(one, Operator)
    ]
    return float(FittedKernels(chip).operation_costs(operations).duration_ns.sum())


def _indexed_decode_ns(chip: Chip, indexer: Indexer) -> Float64s:
    counts, keys = np.meshgrid(*AXES[2:], indexing="ij")
    pairs, one = counts * keys, np.ones(counts.size, np.int64)
    half = max(1, indexer.head_size // 2)  # as many bytes as its keys have, in 16 bit
    alike = (one * indexer.num_heads, one, one * half, one * half, one * half)
    sizes = np.stack([counts.ravel(), *alike, keys.ravel(), keys.ravel(), 0 * one], axis=1)
    # Between two of its reads lie all weights: a layer's keys come from memory, however few.
    scored = fitted_ns(replace(chip, l2_bytes=1), "decode", "flash", sizes)
    found: Float64s = (scored + _chosen_ns(chip, pairs)).reshape(pairs.shape)
    return found


def _indexed_prefill_ns(chip: Chip, indexer: Indexer) -> Float64s:
    chunks, before = np.meshgrid(*AXES[:2], indexing="ij")
    one = np.ones(chunks.size, np.int64)
    alike = (one, one * indexer.num_heads, one, one * max(1, indexer.head_size // 2))
    seen = (chunks + before).ravel()
    sizes = np.stack([*alike, chunks.ravel(), seen, one], axis=1)
    scored = fitted_ns(chip, "attention", attention_kind(chip), sizes)
    sums = _chosen_ns(chip, chunks * (before + chunks / 2))
    found: Float64s = (scored + sums).reshape(chunks.shape)
    return found


def _chosen_ns(chip: Chip, pairs: Float64s) -> Float64s:
    return moved_ns(chip, pairs.ravel() * float(_CHOICE_PASSES * _SUM_BYTES))
