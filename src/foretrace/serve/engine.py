"""`Engine`: the settings of a serving engine, and what its scheduler does with them.

Source:
    vllm-project/vllm 0.19, vllm/engine/arg_utils.py and vllm/config for the defaults (but on an
    A100 cards from 70 GiB take larger batches);
    vllm/v1/core/sched/scheduler.py for the order: running requests first, each its next tokens
    within the budget, the last one preempted where blocks run out; then waiting requests, first
    come first served, those that were preempted before all; vllm/v1/core/block_pool.py for blocks,
    which are freed last one first, so that a preempted request finds its first ones again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

NO_LIMIT = 2**40  # blocks where memory is not known to bind
_MIB_OF_LARGE_CARDS = 70 * 1024  # from here on vLLM takes larger batches
_USUAL_SEQUENCES, _SEQUENCES_OF_LARGE = 256, 1024
_USUAL_TOKENS, _TOKENS_OF_LARGE = 2048, 8192
_MOST_CAPTURED = 512
_FINE, _COARSE = 8, 16  # apart, of captured sizes below 256 and from there on
_COARSE_FROM = 256
# Who carries tokens to the ranks of their experts and back: NCCL, DeepEP (its kernels of high
# throughput and those of low latency), TensorRT-LLM's over NVLink.
NCCL = ("allgather_reducescatter", "naive")
EXCHANGES: Mapping[str, str] = {
    "deepep_high_throughput": "",
    "deepep_low_latency": " direct",
    "flashinfer_all2allv": " switch",
    "flashinfer_nvlink_two_sided": " switch",
    "flashinfer_nvlink_one_sided": " switch",
}


# Tokens of steps that are halved: vLLM's dbo_decode_token_threshold; that of steps with prefills is
# 512, which tables by tokens do not tell apart.
_LEAST_HALVED = 32


@dataclass(frozen=True, kw_only=True)
class Engine:
    """An engine of one model, on as many GPUs as its degrees say."""

    model: str = ""  # as the file names it
    device: str = ""  # as the driver names the GPU; "" if the file does not say
    device_bytes: int | None = None  # of one GPU, as the driver tells
    version: str = ""  # of vLLM
    max_num_seqs: int = _USUAL_SEQUENCES
    max_num_batched_tokens: int = _USUAL_TOKENS
    max_model_len: int | None = None  # the model's own, if left out
    block_size: int = 16
    num_gpu_blocks: int | None = None  # as resolved; from the memory, if left out
    gpu_memory_utilization: float = 0.9
    kv_cache_memory_bytes: int | None = None  # of the cache on one GPU, in place of that share
    kv_cache_dtype: str = "auto"
    quantization: str = ""  # in one word: how weights are kept
    # The same as a checkpoint's config.json states it; it counts before the word.
    quantization_config: Mapping[str, Any] | None = field(default=None, hash=False)
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    enable_eplb: bool = False  # experts are placed, and held several times, so that ranks balance
    all2all_backend: str = NCCL[0]  # of copies that share experts
    disable_custom_all_reduce: bool = False  # NCCL sums over GPUs, not a kernel of the engine
    enable_dbo: bool = False  # two halves of a step in turn: one's exchanges behind the other
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    async_scheduling: bool = True  # a step is put together while the one before runs
    enforce_eager: bool = False  # no CUDA graphs
    scheduler_reserve_full_isl: bool = True  # let in where the whole prompt has room
    num_speculative_tokens: int = 0  # guessed for each sequence in a step
    acceptance_rate: float = 0.0  # of guesses, each by itself
    has_drafts: bool = False  # guesses come from a layer more, each; else from texts
    sequence_blocks: int = 0  # of the cache, that a sequence's states take whatever its length
    is_handed_prompts: bool = False  # others worked on prompts, and what is kept of them came
    is_static: bool = False  # no request joins before all that run are done
    capture_sizes: tuple[int, ...] | None = None  # tokens that graphs are made for
    unused: tuple[str, ...] = field(default=(), compare=False)  # keywords nothing here acts on
    # Limits that the settings leave out, whose default hangs on a GPU that they do not name.
    assumed: tuple[str, ...] = field(default=(), compare=False)

    @property
    def num_gpus(self) -> int:
        """Of one engine."""
        return self.pipeline_parallel_size * self.expert_gpus

    @property
    def expert_gpus(self) -> int:
        """That experts of a layer may lie over."""
        return self.tensor_parallel_size * self.data_parallel_size

    @property
    def finds_blocks(self) -> bool:
        """Whether blocks are found again by what they hold: no states are kept.

        Source:
            vllm-project/vllm 0.19, vllm/model_executor/models/config.py: models with states keep
            no prefixes unless told to.
        """
        return self.enable_prefix_caching and not self.sequence_blocks

    @property
    def is_block_a_sequence(self) -> bool:
        """Whether a block is all that is kept of a sequence, which has states alone."""
        return self.block_size == self.max_model_len and not self.enable_prefix_caching

    @property
    def halves_from(self) -> int | None:
        """Tokens of a copy from which steps go in two halves, as vLLM does with DeepEP."""
        is_deep = self.all2all_backend.startswith("deepep") and self.enable_expert_parallel
        return _LEAST_HALVED if self.enable_dbo and is_deep else None

    def on(self, memory_bytes: int | None, name: str) -> Engine:
        """The same with the defaults of a GPU, for limits that were left out.

        Args:
            memory_bytes: of the GPU.
            name: that it goes by.
        """
        found = dict(by_memory(memory_bytes, name))
        values: dict[str, Any] = {key: found[key] for key in self.assumed}
        if "max_num_batched_tokens" in values:
            budget, context = values["max_num_batched_tokens"], self.max_model_len
            if context is not None:
                budget = budget if self.enable_chunked_prefill else max(budget, context)
                budget = min(budget, values.get("max_num_seqs", self.max_num_seqs) * context)
            values["max_num_batched_tokens"] = budget
        if "max_num_seqs" in values:
            budget = values.get("max_num_batched_tokens", self.max_num_batched_tokens)
            values["max_num_seqs"] = min(values["max_num_seqs"], budget)
        return replace(self, **values, assumed=())

    def captured(self) -> tuple[int, ...]:
        """Numbers of tokens that CUDA graphs are made for: steps are padded to the next."""
        if self.enforce_eager:
            return ()
        if self.capture_sizes is not None:
            return self.capture_sizes
        most = min(2 * self.max_num_seqs, _MOST_CAPTURED, self.max_num_batched_tokens)
        fine = range(_FINE, min(most + 1, _COARSE_FROM), _FINE)
        sizes = (1, 2, 4, *fine, *range(_COARSE_FROM, most + 1, _COARSE))
        return tuple(size for size in sizes if size <= most)


def by_memory(size: int | None, name: str) -> Iterator[tuple[str, int]]:
    """VLLM's defaults for servers: cards from 70 GiB take larger batches, but for A100s."""
    is_large = size is not None and size >= _MIB_OF_LARGE_CARDS << 20
    is_large = is_large and "a100" not in name.casefold()
    yield "max_num_seqs", _SEQUENCES_OF_LARGE if is_large else _USUAL_SEQUENCES
    yield "max_num_batched_tokens", _TOKENS_OF_LARGE if is_large else _USUAL_TOKENS
