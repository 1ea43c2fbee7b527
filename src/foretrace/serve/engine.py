"""`Engine`: the settings of a serving engine, and what its scheduler does with them.

Settings come as vLLM states them: keywords of its engine, alone or under `engine_kwargs`, beside
them what it resolved (`kv_cache`, `hardware`, `resolved_config`). What a file leaves out is vLLM's
default; what nothing here acts on is named.

Source:
    vllm-project/vllm 0.19, vllm/engine/arg_utils.py and vllm/config for the defaults;
    vllm/v1/core/sched/scheduler.py for the order: running requests first, each its next tokens
    within the budget, the last one preempted where blocks run out; then waiting requests, first
    come first served, those that were preempted before all; vllm/v1/core/block_pool.py for blocks,
    which are freed last one first, so that a preempted request finds its first ones again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from foretrace.base import Count, DescriptionKey, Positive, WorkloadError, read_value

NO_LIMIT = 2**40  # blocks where memory is not known to bind
_MIB_OF_LARGE_CARDS = 70 * 1024  # from here on vLLM takes larger batches
_USUAL_SEQUENCES, _SEQUENCES_OF_LARGE = 256, 1024
_USUAL_TOKENS, _TOKENS_OF_LARGE = 2048, 8192
_MOST_CAPTURED = 512
_FINE, _COARSE = 8, 16  # apart, of captured sizes below 256 and from there on
_COARSE_FROM = 256
# Keywords that change nothing about time: names, seeds, logs, and what is stated elsewhere.
_READ_APART = frozenset(
    [
        "speculative_config",
        "quantization_config",
        "hf_overrides",
        "batching",
        "model",
        "kv_cache",
        "hardware",
        "resolved_config",
        "vllm_version",
    ]
)
_WITHOUT_EFFECT = frozenset(
    {"model", "dtype", "seed", "served_model_name", "tokenizer", "trust_remote_code", "revision"}
    | {"disable_log_stats", "disable_log_requests", "download_dir", "load_format", "hf_token"}
)
# Who guesses the next tokens: what the text so far repeats, or a layer (and the head) of the model.
_OF_TEXTS, _OF_LAYERS = ("ngram", "suffix"), ("eagle", "eagle3", "mtp", "deepseek_mtp")
_KINDS: Mapping[str, Any] = {
    "max_num_seqs": Count,
    "max_num_batched_tokens": Count,
    "max_model_len": Count,
    "block_size": Count,
    "num_gpu_blocks_override": Count,
    "tensor_parallel_size": Count,
    "pipeline_parallel_size": Count,
    "data_parallel_size": Count,
    "gpu_memory_utilization": Positive,
    "enable_chunked_prefill": bool,
    "enable_prefix_caching": bool,
    "enable_expert_parallel": bool,
    "async_scheduling": bool,
    "enforce_eager": bool,
    "scheduler_reserve_full_isl": bool,
    "kv_cache_dtype": str,
    "quantization": str,
}


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
    kv_cache_dtype: str = "auto"
    quantization: str = ""  # in one word: how weights are kept
    # The same as a checkpoint's config.json states it; it counts before the word.
    quantization_config: Mapping[str, Any] | None = field(default=None, hash=False)
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    enable_expert_parallel: bool = False
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    async_scheduling: bool = True  # a step is put together while the one before runs
    enforce_eager: bool = False  # no CUDA graphs
    scheduler_reserve_full_isl: bool = True  # let in where the whole prompt has room
    num_speculative_tokens: int = 0  # guessed for each sequence in a step
    acceptance_rate: float = 0.0  # of guesses, each by itself
    has_drafts: bool = False  # guesses come from a layer more, each; else from texts
    is_static: bool = False  # no request joins before all that run are done
    capture_sizes: tuple[int, ...] | None = None  # tokens that graphs are made for
    unused: tuple[str, ...] = field(default=(), compare=False)  # keywords nothing here acts on

    @property
    def num_gpus(self) -> int:
        """Of one engine."""
        return self.pipeline_parallel_size * self.expert_gpus

    @property
    def expert_gpus(self) -> int:
        """That experts of a layer may lie over."""
        return self.tensor_parallel_size * self.data_parallel_size

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


def read_engine(path: Path) -> Engine:
    """The engine that a file of vLLM's settings describes.

    Raises:
        WorkloadError: if the file cannot be read, or a setting is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as err:
        reason = err.strerror if isinstance(err, OSError) else err
        raise WorkloadError(f"cannot read {path} as an engine's settings: {reason}") from err
    if not isinstance(found, dict):
        raise WorkloadError(
            f"cannot read {path} as an engine's settings: expected a mapping of vLLM's keywords, "
            "or one that holds engine_kwargs"
        )
    return engine_of(found, str(path))


def engine_of(stated: Mapping[str, Any], where: str = "engine") -> Engine:
    """The engine of these settings.

    Args:
        stated: as a file has them.
        where: for errors.

    Raises:
        WorkloadError: if a setting is none.
    """
    resolved = {**_resolved(stated), **_known(stated.get("kv_cache"))}
    keywords = stated.get("engine_kwargs", None if "engine_kwargs" in stated else stated)
    if not isinstance(keywords, Mapping):
        raise WorkloadError(f"engine_kwargs of {where} is no mapping of vLLM's keywords")
    hardware = _known(stated.get("hardware"))
    bytes_of_device = hardware.get("device_total_memory_bytes")
    size = bytes_of_device if isinstance(bytes_of_device, int) else None
    values: dict[str, Any] = dict(_by_memory(size))
    for key, kind in _KINDS.items():
        for source in (resolved, keywords):
            if source.get(key) is not None:
                values[key] = _read(key, kind, source[key], where=where)
    blocks = values.pop("num_gpu_blocks_override", None) or resolved.get("num_gpu_blocks")
    values |= _speculation(keywords.get("speculative_config"), where)
    if values.get("pipeline_parallel_size", 1) > 1 and values.get("num_speculative_tokens"):
        raise WorkloadError(
            f"{where} has a speculative_config beside pipeline_parallel_size above 1, which is not "
            "known here: leave one of them out"
        )
    sizes = resolved.get("cudagraph_capture_sizes")
    return Engine(
        model=str(keywords.get("model") or stated.get("model") or ""),
        device=str(hardware.get("device_name") or ""),
        device_bytes=size,
        version=str(stated.get("vllm_version") or ""),
        num_gpu_blocks=None
        if blocks is None
        else _read("num_gpu_blocks", Count, blocks, where=where),
        capture_sizes=tuple(sizes) if isinstance(sizes, list) and sizes else None,
        unused=_unused(keywords),
        is_static=_is_static(keywords.get("batching"), where),
        quantization_config=_quantization(keywords, where),
        **values,
    )


def _speculation(stated: object, where: str) -> dict[str, Any]:
    """What is guessed, how often rightly, and what makes the guesses."""
    if stated is None:
        return {}
    named = f"speculative_config of {where}"
    if not isinstance(stated, Mapping):
        raise WorkloadError(f"{named} is no mapping of vLLM's keywords")
    method = stated.get("method")
    if method not in (*_OF_TEXTS, *_OF_LAYERS):
        raise WorkloadError(
            f"{named} has method {method!r}: expected {', '.join((*_OF_TEXTS, *_OF_LAYERS))}; "
            "models of their own that guess are not known here"
        )
    rate = stated.get("acceptance_rate")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate <= 1:
        raise WorkloadError(
            f"{named} does not say how many guesses are right, which decides what they are worth: "
            "state acceptance_rate from 0 to 1, as the engine's own metrics show it"
        )
    count = _read(
        "num_speculative_tokens", Count, stated.get("num_speculative_tokens"), where=named
    )
    return {
        "num_speculative_tokens": count,
        "acceptance_rate": float(rate),
        "has_drafts": method in _OF_LAYERS,
    }


def _quantization(keywords: Mapping[str, Any], where: str) -> Mapping[str, Any] | None:
    """What a checkpoint's `quantization_config` is to be, itself or among overrides."""
    found = keywords.get("quantization_config")
    if found is None:
        found = _known(keywords.get("hf_overrides")).get("quantization_config")
    if found is not None and not isinstance(found, Mapping):
        raise WorkloadError(f"quantization_config of {where} is {found!r}: expected a mapping")
    return found


def _read(key: str, kind: Any, value: object, *, where: str) -> Any:
    return read_value(value, DescriptionKey(key, kind), where, error=WorkloadError)


def _by_memory(size: int | None) -> Iterator[tuple[str, int]]:
    """VLLM's defaults for servers: cards from 70 GiB take larger batches."""
    is_large = size is not None and size >= _MIB_OF_LARGE_CARDS << 20
    yield "max_num_seqs", _SEQUENCES_OF_LARGE if is_large else _USUAL_SEQUENCES
    yield "max_num_batched_tokens", _TOKENS_OF_LARGE if is_large else _USUAL_TOKENS


def _known(found: object) -> dict[str, Any]:
    return dict(found) if isinstance(found, Mapping) else {}


def _resolved(stated: Mapping[str, Any]) -> dict[str, Any]:
    """What the engine made of its settings, of all its parts together."""
    parts = _known(stated.get("resolved_config")).values()
    joined: dict[str, Any] = {}
    for part in parts:
        joined |= {key: value for key, value in _known(part).items() if key not in joined}
    wanted = {*_KINDS, "num_gpu_blocks", "cudagraph_capture_sizes"}
    return {key: value for key, value in joined.items() if key in wanted and value is not None}


def _unused(keywords: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(
        key
        for key, value in keywords.items()
        if value is not None and key not in {*_KINDS, *_WITHOUT_EFFECT, *_READ_APART}
    )


def _is_static(batching: object, where: str) -> bool:
    """Whether no request joins a batch before all of it is done."""
    if batching not in (None, "continuous", "static"):
        raise WorkloadError(
            f"batching of {where} is {batching!r}: expected 'continuous', as vLLM's is, or 'static'"
        )
    return batching == "static"
