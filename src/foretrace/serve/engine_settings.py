"""`read_engine`, `engine_of`: vLLM's settings become an `Engine`.

Settings come as vLLM states them: keywords of its engine, as Python or a command line has them,
alone or under `engine_kwargs`, beside them what it resolved (`kv_cache`, `hardware`,
`resolved_config`). What a file leaves out is vLLM's default; what nothing here acts on is named,
and what changes steps in a way that is not known is refused.

Source:
    vllm-project/vllm 0.19, vllm/engine/arg_utils.py, for keywords and short names.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from foretrace.base import Count, DescriptionKey, Positive, WorkloadError, read_value
from foretrace.serve.engine import EXCHANGES, NCCL, Engine, by_memory
from foretrace.workload import values_by_flag

_MOST_OF_STEP = 2**20  # tokens or sequences that tables of steps have room for
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
        "cudagraph_capture_sizes",
    ]
)
# Keywords that change what a step takes in a way that is not known here, but for these values.
_AS_USUAL: Mapping[str, tuple[tuple[object, ...], str]] = {
    "dtype": (("auto", "bfloat16", "float16", "half"), "models are served in 16 bit"),
    "runner": (("auto", "generate"), "only models that make tokens are served"),
    "task": (("auto", "generate"), "only models that make tokens are served"),
    "cpu_offload_gb": ((0,), "weights that wait in the host's memory are not known"),
    "decode_context_parallel_size": ((1,), "keys of a sequence over several GPUs are not known"),
    "prefill_context_parallel_size": ((1,), "keys of a sequence over several GPUs are not known"),
    "speculative_model": ((), "state speculative_config, as vLLM 0.19 takes it"),
}
_SHORT = {
    "tp": "tensor_parallel_size",
    "pp": "pipeline_parallel_size",
    "dp": "data_parallel_size",
    "q": "quantization",
}
_WITHOUT_EFFECT = frozenset(
    {"model", "seed", "served_model_name", "tokenizer", "trust_remote_code", "revision"}
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
    "enable_eplb": bool,
    "enable_dbo": bool,
    "disable_custom_all_reduce": bool,
    "kv_cache_memory_bytes": Count,
    "kv_cache_dtype": str,
    "quantization": str,
    "all2all_backend": str,
}

_MISSPELT = 0.9  # likeness (difflib) from which a keyword is taken for one that counts


def engine_named(text: str) -> Engine:
    """The engine of a file of vLLM's settings, of their JSON, or of its command line.

    Args:
        text: a path; a mapping; flags alone, or `vllm serve MODEL` before them.

    Raises:
        WorkloadError: as `read_engine`.
    """
    if text.lstrip().startswith("{"):
        return engine_of(_parsed(text, "the engine's settings"))
    if text.startswith(("-", "vllm serve ")) and not Path(text).is_file():
        return engine_of(_of_command_line(text), "the engine's command line")
    return read_engine(Path(text))


def _of_command_line(text: str) -> dict[str, object]:
    """Keywords as flags state them: `--no-X` is false, and mappings are JSON."""
    try:
        words = shlex.split(text)
    except ValueError as err:
        raise WorkloadError(f"cannot read {text!r} as an engine's command line: {err}") from err
    words = words[2:] if words[:2] == ["vllm", "serve"] else words
    model = words.pop(0) if words and not words[0].startswith("-") else None
    long = (f"-{word}" if word.lstrip("-") in _SHORT and word[0] == "-" else word for word in words)
    found: dict[str, object] = {} if model is None else {"model": model}
    for name, value in values_by_flag(long).items():
        if name.startswith("no-") and value is True:
            found[name.removeprefix("no-")] = False
        elif isinstance(value, str) and value.startswith("{"):
            found[name] = _parsed(value, f"--{name}")
        else:
            found[name] = value
    return found


def _parsed(text: str, what: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as err:
        raise WorkloadError(f"cannot read {what} as JSON: {err}") from err
    if not isinstance(found, dict):
        raise WorkloadError(f"{what} is no mapping of vLLM's keywords")
    return found


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
    keywords = _whole_names(keywords)
    _check_usual(keywords, where)
    hardware = _known(stated.get("hardware"))
    bytes_of_device = hardware.get("device_total_memory_bytes")
    size = bytes_of_device if isinstance(bytes_of_device, int) else None
    device = str(hardware.get("device_name") or "")
    values: dict[str, Any] = dict(by_memory(size, device))
    left_out = set(values)
    for key, kind in _KINDS.items():
        for source in (resolved, keywords):
            if source.get(key) is not None:
                values[key] = _read(key, kind, source[key], where=where)
                left_out.discard(key)
    _check_ranges(values, where)
    blocks = values.pop("num_gpu_blocks_override", None) or resolved.get("num_gpu_blocks")
    values |= _speculation(keywords.get("speculative_config"), where)
    if values.get("pipeline_parallel_size", 1) > 1 and values.get("num_speculative_tokens"):
        raise WorkloadError(
            f"{where} has a speculative_config beside pipeline_parallel_size above 1, which is not "
            "known here: leave one of them out"
        )
    return Engine(
        model=str(keywords.get("model") or stated.get("model") or ""),
        device=device,
        device_bytes=size,
        version=str(stated.get("vllm_version") or ""),
        num_gpu_blocks=None
        if blocks is None
        else _read("num_gpu_blocks", Count, blocks, where=where),
        capture_sizes=_captured(resolved, keywords, where),
        assumed=tuple(sorted(left_out)) if size is None else (),
        unused=_unused(keywords, where),
        is_static=_is_static(keywords.get("batching"), where),
        quantization_config=_quantization(keywords, where),
        **values,
    )


def _speculation(stated: object, where: str) -> dict[str, Any]:
    """What is guessed, how often rightly, and what makes the guesses."""
    if stated is None:
        return {}
    named = f"speculative_config of {where}"
    if isinstance(stated, str):  # as a command line has it
        try:
            stated = json.loads(stated)
        except ValueError as err:
            raise WorkloadError(f"cannot read {named}: {err}") from err
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


def _whole_names(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords as Python has them: a command line's have hyphens, and some are short."""
    plain = ((str(key).lstrip("-").replace("-", "_"), value) for key, value in keywords.items())
    return {_SHORT.get(key, key): value for key, value in plain}


def _check_usual(keywords: Mapping[str, Any], where: str) -> None:
    """Refuse what changes steps in a way that is not known."""
    for key, (usual, told) in _AS_USUAL.items():
        value = keywords.get(key)
        if value is not None and value not in usual:
            expected = f" (expected {', '.join(map(str, usual))})" if usual else ""
            raise WorkloadError(f"{key} of {where} is {value!r}{expected}: {told} here")


def _check_ranges(values: Mapping[str, Any], where: str) -> None:
    """Refuse values that no engine takes."""
    share = values.get("gpu_memory_utilization", 0.9)
    if share > 1:
        raise WorkloadError(
            f"'gpu_memory_utilization' of {where} is {share:g}, where a share of the memory, above "
            "0 and at most 1, is expected"
        )
    for key in ("max_num_seqs", "max_num_batched_tokens"):
        if values[key] > _MOST_OF_STEP:
            raise WorkloadError(
                f"{key!r} of {where} is {values[key]:,}, where at most {_MOST_OF_STEP:,} is "
                "expected: tables of steps hold no more"
            )
    backend = values.get("all2all_backend", NCCL[0])
    has_exchange = values.get("enable_expert_parallel") and values.get("data_parallel_size", 1) > 1
    if has_exchange and backend not in (*NCCL, *EXCHANGES):
        raise WorkloadError(
            f"'all2all_backend' of {where} is {backend!r}, where one of "
            f"{', '.join((*NCCL, *EXCHANGES))} is expected: no other is known here"
        )


def _captured(
    resolved: Mapping[str, Any], keywords: Mapping[str, Any], where: str
) -> tuple[int, ...] | None:
    """Sizes that graphs are made for, as resolved or as asked for; none stated: None."""
    asked = _known(keywords.get("compilation_config")).get("cudagraph_capture_sizes")
    for sizes in (
        resolved.get("cudagraph_capture_sizes"),
        keywords.get("cudagraph_capture_sizes"),
        asked,
    ):
        if not sizes:
            continue
        if not isinstance(sizes, list):
            raise WorkloadError(
                f"cudagraph_capture_sizes of {where} is {sizes!r}: expected a list of tokens"
            )
        kinds = (_read("cudagraph_capture_sizes", Count, size, where=where) for size in sizes)
        return tuple(sorted(kinds))
    return None


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


def _unused(keywords: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Keywords without effect; those that are nearly one that has an effect are refused."""
    unused = tuple(
        key
        for key, value in keywords.items()
        if value is not None
        and key not in {*_KINDS, *_WITHOUT_EFFECT, *_READ_APART, *_AS_USUAL}
        and not (key == "compilation_config" and set(_known(value)) == {"cudagraph_capture_sizes"})
    )
    for key in unused:
        for near in get_close_matches(key, _KINDS, n=1, cutoff=_MISSPELT):
            raise WorkloadError(
                f"{key!r} of {where} is no keyword of vLLM's: did you mean {near!r}?"
            )
    return unused


def _is_static(batching: object, where: str) -> bool:
    """Whether no request joins a batch before all of it is done."""
    if batching not in (None, "continuous", "static"):
        raise WorkloadError(
            f"batching of {where} is {batching!r}: expected 'continuous', as vLLM's is, or 'static'"
        )
    return batching == "static"
