"""`attention_grids`: what attention of a layer takes by what it attends to, from kernel models.

Which kernels an engine calls is its own choice, by the chip: see `_has_flash2`. Layers whose
attention ends after some tokens see no more keys than those; where layers differ it is the mean.

What is kept of tokens in fewer bits is attended to as it is by FlashAttention 3 and TensorRT-LLM's
kernels, which take queries in as many; others widen it, each part alone.

Latent attention runs in two forms: new tokens of replies are taken into the latents' space (one
product for each head before and one behind attention), whose attention reads what is kept once for
all heads; prompts take keys and values out of latents, those of what came before among them, and
attend as others do. In a step of both each part runs alone.

Source:
    vllm-project/vllm 0.19, vllm/v1/attention/backends: FlashAttention 2 but on Hopper (3), on
    Blackwell of data centres and where the cache is in fp8 (FlashInfer); mla/common.py for latents.
    Dao-AILab/flash-attention 2.8, csrc/flash_attn/flash_api.cpp: one query of each sequence lets
    heads that share keys be worked on together, and keys be split; a prefill in the same launch
    forbids both, and the grid has as many blocks for each sequence as for the longest prefill.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

import numpy as np

from foretrace.base import Float64s, Int64s, MachineError
from foretrace.cost import (
    Access,
    AttentionShapes,
    Movements,
    chosen_fit,
    constants_for,
    model_ns,
    operand_formats,
    shapes_of,
    without_quantising,
)
from foretrace.machine import Chip
from foretrace.serve.formats import SIXTEEN, ServedFormats
from foretrace.serve.profiles import ProfileGrid
from foretrace.workload import ATTENTION, Latent, Reach, ReachKind, Transformer

_KEYS = np.concatenate([[0], 2 ** np.arange(4, 17)])
_MOST_KEYS = int(_KEYS[-1] + 2**13)
# Tokens of prefills, keys before them, sequences, keys of each.
AttentionAxes: TypeAlias = tuple[Int64s, Int64s, Int64s, Int64s]
AXES: AttentionAxes = (2 ** np.arange(4, 14), _KEYS, 2 ** np.arange(11), _KEYS[1:])
BYTES = 2  # of an activation
# Kinds of kernels that vLLM calls.
_FLASH2, _FLASH, _LATENT, _LATENT_OF_FP8 = "flash2", "flash", "latent", "latent of fp8"
_BLOCK_QUERIES = 64  # of FlashAttention 2 with causal masks
# What a block without queries takes of a processor, in cycles: an RTX 4090's profile of prefills of
# 16 to 2,048 tokens beside 128 decodes says 600 to 700 (casys-kaist/LLMServingSim 5daddb21).
_EMPTY_CYCLES = 650.0
_PAGED_BLOCK_BYTES = 80 << 10  # of FlashAttention 2: 64 queries, 128 keys and values at once
_ROUNDS = 60  # till a share that is found again is the same twice
# What a product that unpacks weights takes beyond its traffic and arithmetic: Qwen2.5 of 0.5, 1.5
# and 3 billion parameters, GPTQ in 4 and 8 bits and AWQ against 16 bit by vLLM 0.6.3 on an A100,
# one sequence (QwenLM/Qwen2.5 010c37c, docs/source/benchmark/speed_benchmark.rst). Of 7 to 72
# billion there it leaves 6 % in the mean, and 16 % without.
_UNPACKING_NS = 8_000.0
# Marlin takes 64 rows at most at once and unpacks every weight again for the next ones: cycles of a
# processor for a weight, and for each row with it. With 32 and 64 rows 110.8 and 139.7 TFLOP/s on
# an A100, no more with up to 4,000 (vllm-project/vllm#2497, bench.py). The same cycles say 58.4 on
# a T4, where 4,096 rows had 58.6 (vllm-project/vllm#29901).
_UNPACKED_ROWS = 64
_UNPACKING_CYCLES, _UNPACKED_ROW_CYCLES = 0.0364, 0.00161


def attention_grids(
    chip: Chip,
    model: Transformer,
    tensor: int,
    *,
    formats: ServedFormats,
    axes: AttentionAxes = AXES,
) -> tuple[ProfileGrid, ProfileGrid, ProfileGrid]:
    """Decodes alone, prefills alone, and both, in the mean of all layers.

    Args:
        chip: that it runs on.
        model: that serves.
        tensor: degree of tensor parallelism.
        formats: of what is kept of tokens, and of products around latents.
        axes: sizes of the grids, rising.

    Raises:
        MachineError: if the chip's description lacks what the kernel models need.
    """
    indexer = model.attention.indexer
    picked = None if indexer is None else indexer.reach
    reaches = [picked or layer.reach for layer in model.layers if layer.has_attention]
    sizes = tuple(map(len, axes))
    parts = [[np.zeros(sizes[2:]), np.zeros(sizes[:2]), np.zeros(sizes)]]  # of states alone
    for reach in dict.fromkeys(reaches):
        share = reaches.count(reach) / model.num_layers
        heads = _Heads(chip, model, tensor, _most_keys(reach), formats=formats, axes=axes)
        parts.append([share * each for each in heads.all()])
    decode, prefill, mixed = (np.sum(each, axis=0) for each in zip(*parts, strict=True))
    chunks, before, counts, keys = (axis.astype(np.float64) for axis in axes)
    return (
        ProfileGrid((counts, keys), decode),
        ProfileGrid((chunks, before), prefill),
        ProfileGrid((chunks, before, counts, keys), mixed),
    )


def _most_keys(reach: Reach | None) -> int:
    """Keys that a query sees at most; in chunks half of one, in the mean."""
    if reach is None:
        return _MOST_KEYS
    return max(1, reach.num_tokens // (2 if reach.kind is ReachKind.CHUNK else 1))


class _Heads:
    """Attention of one kind of layer on one GPU."""

    def __init__(
        self,
        chip: Chip,
        model: Transformer,
        tensor: int,
        most: int,
        *,
        formats: ServedFormats,
        axes: AttentionAxes,
    ) -> None:
        attention = model.attention
        self.chip, self.most = chip, most
        self.formats, self.axes = formats, axes
        self.is_wide = formats.has_cache_of_16_bit
        self.has_flash2 = self.is_wide and _has_flash2(chip)
        self.heads = max(1, attention.num_heads // tensor)
        self.shared = max(1, attention.num_kv_heads // tensor)
        self.size, self.score_size = attention.head_size, attention.score_size
        self.value_size, self.latent = attention.value_size, attention.latent
        self.is_picked = attention.indexer is not None

    def all(self) -> tuple[Float64s, Float64s, Float64s]:
        """Decodes alone, prefills alone, and both, on the corners of their grids."""
        if self.latent is not None:
            prefill, decode = (
                self._latent_prefill_ns(self.latent),
                self._latent_decode_ns(self.latent),
            )
            if self.is_picked:
                prefill = self._picked_prefill_ns(self.latent)
        else:
            prefill, decode = self._prefill_ns(), self._decode_ns()
            if self.has_flash2:
                return decode, prefill, self._in_one_launch_ns()
        return decode, prefill, prefill[:, :, None, None] + decode[None, None]

    def _prompts(self, chunks: Int64s, before: Int64s) -> tuple[Int64s, Int64s, Int64s]:
        """Pieces, queries of each, and keys: what lies beyond a window is never looked at."""
        queries = np.minimum(chunks, self.most)
        kept = np.minimum(before, self.most - queries // 2)
        kept = np.where(chunks > self.most, self.most - queries // 2, kept)
        return -(-chunks // queries), queries, queries + kept

    def _prefill_ns(self) -> Float64s:
        kind = attention_kind(self.chip)
        is_narrow = not self.is_wide and not _has_flash2(self.chip)
        dtype = self.formats.cache if is_narrow else SIXTEEN
        return self._prompts_ns(kind, self.shared, self.size, dtype=dtype)

    def _prompts_ns(self, kind: str, shared: int, size: int, *, dtype: str) -> Float64s:
        chunks, before = (one.ravel() for one in np.meshgrid(*self.axes[:2], indexing="ij"))
        pieces, queries, keys = self._prompts(chunks, before)
        one = np.ones_like(chunks)
        alike = (self.heads * one, shared * one, size * one)
        sizes = np.stack([pieces, *alike, queries, keys, one], axis=1)
        found = fitted_ns(self.chip, "attention", kind, sizes, dtype=dtype)
        return found.reshape(len(self.axes[0]), len(self.axes[1]))

    def _decode_ns(self) -> Float64s:
        return self._tokens_ns(_FLASH, self.shared, (self.size, self.size, 2 * self.size))

    def _tokens_ns(self, kind: str, shared: int, numbers: tuple[int, int, int]) -> Float64s:
        counts, keys = (one.ravel() for one in np.meshgrid(*self.axes[2:], indexing="ij"))
        one = np.ones_like(counts)
        columns = [self.heads * one, shared * one, *(each * one for each in numbers), keys]
        sizes = np.stack([counts, *columns, np.minimum(keys, self.most), 0 * one], axis=1)
        # Between two of its reads lie all weights: a layer's keys come from memory, however few.
        chip = replace(self.chip, l2_bytes=1)
        found = fitted_ns(chip, "decode", kind, sizes, dtype=self.formats.cache)
        return found.reshape(len(self.axes[2]), len(self.axes[3]))

    def _in_one_launch_ns(self) -> Float64s:
        """A prefill beside decodes, each of which is a prompt of one token to the kernel."""
        corners = np.meshgrid(*self.axes, indexing="ij")
        chunks, before, counts, keys = (one.ravel() for one in corners)
        shape = tuple(map(len, self.axes))
        one = np.ones_like(chunks)
        alike = (self.heads * one, self.shared * one, self.size * one)
        pieces, queries, seen = self._prompts(chunks, before)
        kept = np.minimum(keys, self.most)
        sizes = np.stack(
            [
                np.stack([pieces, *alike, queries, seen, one], axis=1),
                np.stack([counts, *alike, one, kept, one], axis=1),
            ]
        )
        launch = np.tile(np.arange(len(chunks)), 2)
        shapes = replace(AttentionShapes.of(sizes.reshape(-1, 7), SIXTEEN), launch=launch)
        values = values_of(self.chip, "attention", _FLASH2)
        found = model_ns("attention", shapes, self.chip, values=values)
        empty = counts * self.heads * (-(-chunks // _BLOCK_QUERIES) - 1)
        cycles = _EMPTY_CYCLES * empty / (self.chip.num_processors or 1)
        wholly = found + cycles / (self.chip.cycles_per_ns or 1.0)
        found = np.maximum(wholly, self._read_again_ns(counts, kept))
        return found.reshape(shape)

    def _read_again_ns(self, counts: Int64s, keys: Int64s) -> Float64s:
        """Reading what decodes keep, for every head of queries by itself, in ns.

        Blocks come head by head, all sequences of each. The next head of a group reads the same
        keys: at the same time where its block runs beside the first's, else when all other
        sequences' have been read, of which the level 2 cache holds some. Of a cycle through r times
        a cache that drops lines at random a share h is found again, h = exp(-(1 - h) r).

        Source:
            Dao-AILab/flash-attention 2.8, csrc/flash_attn/src/flash_fwd_launch_template.h: the grid
            is blocks of queries, sequences, heads.
        """
        of_head = counts * keys * (2.0 * self.size * BYTES)
        ratio = of_head / (self.chip.l2_bytes or 1)
        found = np.zeros(len(ratio))
        for _ in range(_ROUNDS):
            found = np.exp(-(1 - found) * ratio)
        places = max(1, (self.chip.shared_bytes or 0) // _PAGED_BLOCK_BYTES)
        places *= self.chip.num_processors or 1
        apart = np.minimum(1, counts / places) * (1 - found)
        read = of_head * (self.shared + (self.heads - self.shared) * apart)
        return moved_ns(self.chip, np.where(ratio > 1, read, 0.0))

    def _latent_decode_ns(self, latent: Latent) -> Float64s:
        """Products of each head with its latents' weights, and attention over what is kept."""
        kept = latent.rank + latent.rotary_size
        attended = self._tokens_ns(_LATENT, 1, (kept, latent.rank, kept))
        found: Float64s = attended + self._into_latents_ns(latent, self.axes[2])[:, None]
        return found

    def _into_latents_ns(self, latent: Latent, tokens: Int64s) -> Float64s:
        """Queries into the latents' space and results out of it, head by head."""
        sides = [(latent.rank, self.size), (self.value_size, latent.rank)]
        taken = [product_ns(self.chip, tokens, *each, batch=self.heads) for each in sides]
        found: Float64s = np.sum(taken, axis=0)
        return found

    def _picked_prefill_ns(self, latent: Latent) -> Float64s:
        """Prompts in the latents' space: as many latents as are picked, which all heads share."""
        size = (2 * latent.rank + latent.rotary_size) // 2
        attended = self._prompts_ns(_LATENT, 1, size, dtype=SIXTEEN)
        found: Float64s = attended + self._into_latents_ns(latent, self.axes[0])[:, None]
        return found

    def _latent_prefill_ns(self, latent: Latent) -> Float64s:
        """Keys and values out of latents, of what came before too, and attention as of others."""
        # One size stands for keys and values: what products and traffic see of both.
        size = (self.score_size + self.value_size) // 2
        kind = _LATENT if self.is_wide else _LATENT_OF_FP8
        attended = self._prompts_ns(kind, self.heads, size, dtype=SIXTEEN)
        rows = self.heads * (self.size + self.value_size)
        of_all = (self.axes[0][:, None] + self.axes[1][None, :]).ravel()
        made = served_product_ns(self.chip, of_all, (rows, latent.rank), ATTENTION, self.formats)
        found: Float64s = attended + made.reshape(attended.shape)
        return found


def moved_ns(chip: Chip, num_bytes: Int64s | Float64s) -> Float64s:
    """Reading or writing so many bytes in a row, in ns.

    Raises:
        MachineError: if nothing says how fast.
    """
    access = np.full(len(num_bytes), Access.STREAM, np.int8)
    moved = Movements(num_bytes.astype(np.float64), access)
    return model_ns("movement", moved, chip, values=values_of(chip, "movement", "", "any"))


def fitted_ns(
    chip: Chip, family: str, kind: str, sizes: Int64s, *, dtype: str = SIXTEEN
) -> Float64s:
    """What kernels of a kind take, in ns.

    Args:
        chip: that they run on.
        family: of the model.
        kind: of kernel.
        sizes: as the family has them, int64[rows, sizes].
        dtype: number format.

    Raises:
        MachineError: if there are no constants.
    """
    shapes = shapes_of(family, sizes, dtype)
    return model_ns(family, shapes, chip, values=values_of(chip, family, kind, dtype))


def values_of(chip: Chip, family: str, kind: str, dtype: str = SIXTEEN) -> Mapping[str, float]:
    """Constants of a kind of kernel: those of what is multiplied, where weights kept so have none.

    Raises:
        MachineError: if there are none.
    """
    constants = constants_for(chip)
    chosen = chosen_fit((family, kind, dtype), chip, constants)
    if chosen is None:
        chosen = chosen_fit((family, kind, operand_formats(dtype)[0]), chip, constants)
    if chosen is None:
        raise MachineError(f"there are no constants for {family} of kind {kind!r}")
    return chosen.fit.values


def product_ns(chip: Chip, tokens: Int64s, rows: int, inner: int, *, batch: int = 1) -> Float64s:
    """A product of so many tokens with a weight of rows x inner, for each of a batch, in ns."""
    one = np.ones_like(tokens)
    sizes = np.stack([batch * one, tokens, rows * one, inner * one], axis=1)
    return fitted_ns(chip, "gemm", "library", sizes)


def served_product_ns(
    chip: Chip, tokens: Int64s, size: tuple[int, int], part: str, formats: ServedFormats
) -> Float64s:
    """A product with a weight of a part, in the mean of its layers, in ns.

    Tables of products in 8 and 4 bits hold what quantises their input, with its own launches; an
    engine compiles that into the norm or the activation before.

    Args:
        chip: that it runs on.
        tokens: int64[rows].
        size: rows and columns of the weight.
        part: of the model.
        formats: in which it is served.
    """
    share = formats.share(part)
    found = np.zeros(len(tokens))
    if share < 1:
        found = (1 - share) * product_ns(chip, tokens, *size)
    if share > 0:
        one = np.ones_like(tokens)
        sizes = np.stack([one, tokens, size[0] * one, size[1] * one], axis=1)
        values = without_quantising(values_of(chip, "gemm", formats.kind("gemm"), formats.products))
        values["launch_ns"] = values_of(chip, "gemm", "library")["launch_ns"]
        if formats.unpacks:
            values["launch_ns"] += _UNPACKING_NS
        shapes = shapes_of("gemm", sizes, formats.products)
        taken = model_ns("gemm", shapes, chip, values=values)
        if formats.unpacks:
            taken = np.maximum(taken, unpacked_ns(chip, tokens, size[0] * size[1]))
        found = found + share * taken
    return found


def unpacked_ns(chip: Chip, rows: Int64s, weights: int) -> Float64s:
    """What Marlin takes at least for products with so many weights, float64[products], in ns.

    On Hopper engines call Machete, whose tiles are as large as others'.

    Args:
        chip: that it runs on.
        rows: int64[products], that each weight is multiplied with.
        weights: of one product.
    """
    if chip.vendor != "NVIDIA" or chip.architecture == "Hopper":
        return np.zeros(len(rows))
    cycles = _UNPACKING_CYCLES * -(-rows // _UNPACKED_ROWS) + _UNPACKED_ROW_CYCLES * rows
    found: Float64s = cycles * weights / ((chip.num_processors or 1) * (chip.cycles_per_ns or 1.0))
    return found


def attention_kind(chip: Chip) -> str:
    """Which kernels attend to prompts."""
    return _FLASH2 if _has_flash2(chip) else _FLASH


def _has_flash2(chip: Chip) -> bool:
    """Whether attention is FlashAttention 2's: workstations' Blackwell has no links."""
    if chip.architecture.startswith("Blackwell"):
        return chip.link_bytes_per_ns is None
    return chip.vendor == "NVIDIA" and chip.architecture != "Hopper"
