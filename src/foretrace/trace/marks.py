"""What the name of an annotation says of a step: that it is one, and of what.

Profilers number steps (`ProfilerStep#3`). Serving engines mark every step with the batch that it
works on (`batch_of_mark`). Other programs mark iterations in words of their own (`plain_mark`).

Source:
    vllm-project/vllm, vllm/v1/worker/gpu_worker.py, `annotate_profile`:
    execute_context_2(1024)_generation_30(30), requests and tokens of prompts and of replies; with
    detailed_trace_annotation (pull request 37524) execute_1054_context_2(sq1024sk1500...)_
    generation_30(sq30sk9000...): queries and keys of either; before both (0.11)
    execute_new_2_cached_30.
    sgl-project/sglang, `build_step_span_name` (pull requests 23419 and 24911):
    step[DECODE bs=64 ... g_sk=100032], step[EXTEND bs=1 toks=1025], step[MIXED bs=66 ...] with c=,
    g=, c_sq=, g_sk=, or ext= and dec=; step[TARGET_VERIFY bs=8 g_sq=24 ...] of speculation, whose
    draft's steps are DRAFT_EXTEND..., DECODE beside TARGET_VERIFY, or begin with "draft".
    NVIDIA/TensorRT-LLM, tensorrt_llm/_torch/pyexecutor/py_executor.py, `_forward_step`:
    [Executor] _forward_step 12: 1 ctx reqs, 512 ctx tokens, 31 gen reqs, without number and tokens
    in older ones.
    ROCm/ATOM, `build_run_label`: decode[bs=128 tok=128 p=2 d=126], prefill[bs=2 tok=16384 ...].
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

STEP_MARK = "ProfilerStep#"  # how names of the profiler's marks of steps begin
_PROFILER = re.compile(rf"{STEP_MARK}(\d{{1,18}})")
_NUMBERED = re.compile(r"(.+)#(\d{1,18})", re.DOTALL)  # as steps of the same words are told apart
_VLLM = re.compile(
    r"execute_context_(?P<prefills>\d+)\((?P<tokens>\d+)\)"
    r"_generation_(?P<decodes>\d+)\((?P<replies>\d+)\)"
)
_VLLM_DETAILED = re.compile(
    r"execute_\d+_context_(?P<prefills>\d+)"
    r"\(sq(?P<tokens>\d+)sk\d+sqsq(?P<squares>\d+)sqsk(?P<rectangles>\d+)\)"
    r"_generation_(?P<decodes>\d+)\(sq(?P<replies>\d+)sk(?P<kept>\d+)sqsq\d+sqsk\d+\)"
)
_VLLM_OLDER = re.compile(r"execute_new_(?P<prefills>\d+)_cached_(?P<decodes>\d+)")
_SGLANG = re.compile(r"step\[(\w+)((?: \w+=\d+)*)\]")
_TENSORRT = re.compile(
    r"\[Executor\] _forward_step(?: \d+)?: (?P<prefills>\d+) ctx reqs"
    r"(?:, (?P<tokens>\d+) ctx tokens)?, (?P<decodes>\d+) gen reqs"
)
_ATOM = re.compile(r"(prefill|decode)\[bs=(\d+)(?:/\d+)?((?: .*)?)\]", re.DOTALL)
_STATED = re.compile(r"(\w+)=(\d+)")
_ENGINES = ("execute_", "step[", "[Executor] ", "prefill[", "decode[")
_DECODING, _VERIFYING = "decode", "target_verify"
# What people call an iteration in a mark: numbered, or the same words again and again.
_PLAIN = re.compile(
    r"(?:train(?:ing)?[ _-]?)?(?:global[ _-]?)?(?:step|iter|iteration)[ _:#=-]{0,3}(\d{1,18})",
    re.IGNORECASE,
)
_WORDS = frozenset((
    "iteration", "train_step", "train step", "training step", "train_iteration",
    # Lightning, PyTorchProfiler; before 1.5.9 without its prefix
    "[pl][profile]run_training_batch", "run_training_batch",
))  # fmt: skip
_MOST_DIGITS = 15  # of a count in a mark: more is none, and would not be exact as a float


class BatchKind(StrEnum):
    """What requests of a batch are at."""

    DECODE = "decode"  # each makes its next token, or verifies a few
    PREFILL = "prefill"  # prompts, or parts of them
    MIXED = "mixed"  # both
    IDLE = "idle"  # none: a rank keeps others company

    @property
    def words(self) -> str:
        """What a step of such a batch does: "decode", "take prompts in"."""
        return {"prefill": "take prompts in", "mixed": "do both", "idle": "idle"}.get(
            self.value, self.value
        )


@dataclass(frozen=True)
class EngineBatch:
    """What a serving engine's step works on."""

    num_prefills: int
    prefill_tokens: int | None  # of prompts, in this step; None: not said
    num_decodes: int
    kept_tokens: int | None = None  # keys of all decodes; None: not said
    pairs: float | None = None  # of prefills' queries and keys; None: not said
    decode_tokens: int | None = None  # queries of all decodes, where more than one each

    @property
    def kind(self) -> BatchKind:
        """What its requests are at."""
        if self.num_prefills > 0 or (self.prefill_tokens or 0) > 0:
            return BatchKind.MIXED if self.num_decodes > 0 else BatchKind.PREFILL
        return BatchKind.DECODE if self.num_decodes > 0 else BatchKind.IDLE

    @property
    def num_requests(self) -> int:
        """Requests of either kind."""
        return self.num_prefills + self.num_decodes


def batch_of_mark(name: str) -> EngineBatch | None:
    """What the mark of an engine's step says that it works on; none, if it is no such mark.

    Forward passes of a draft model are no steps.
    """
    if not name.startswith(_ENGINES):
        return None
    numbered = _NUMBERED.fullmatch(name)
    text = numbered[1] if numbered is not None else name
    for pattern in (_VLLM, _VLLM_DETAILED, _VLLM_OLDER, _TENSORRT):
        found = pattern.fullmatch(text)
        if found is not None:
            return _of_counts({key: value for key, value in found.groupdict().items() if value})
    found = _SGLANG.fullmatch(text)
    if found is not None:
        return _of_sglang(found[1].lower(), _counts(found[2]))
    found = _ATOM.fullmatch(text)
    return None if found is None else _of_atom(found[1], int(found[2][:_MOST_DIGITS]), found[3])


def number_of_mark(name: str) -> int | None:
    """The number of the profiler's mark of a step (`ProfilerStep#3`); none of other texts."""
    found = _PROFILER.fullmatch(name)
    return None if found is None else int(found[1])


def plain_mark(name: str) -> tuple[str, int | None] | None:
    """What programs call an iteration: its words without the number, and the number.

    "iteration 12", "step_12", "train_step", and Lightning's run_training_batch; no other text.
    """
    found = _PLAIN.fullmatch(name)
    if found is not None:
        return name[: found.start(1)], int(found[1])
    numbered = _NUMBERED.fullmatch(name)
    words, number = (numbered[1], int(numbered[2])) if numbered is not None else (name, None)
    return (words, number) if words in _WORDS else None


def mark_name(words: str, number: int) -> str:
    """What a step of these words is called: "step[DECODE bs=64]#3"."""
    return f"{words}#{number}"


def is_of_draft(name: str, *, is_verified: bool) -> bool:
    """Whether a mark of SGLang is of the draft model.

    Args:
        name: of the mark.
        is_verified: the trace has steps that verify drafts, so that those that decode draft.
    """
    found = _SGLANG.match(name)
    return is_verified and found is not None and found[1].lower() == _DECODING


def is_verifying(name: str) -> bool:
    """Whether a mark of SGLang is of a step that verifies a draft."""
    found = _SGLANG.match(name)
    return found is not None and found[1].lower() == _VERIFYING


def _of_counts(texts: Mapping[str, str]) -> EngineBatch:
    counts = {key: int(value[:_MOST_DIGITS]) for key, value in texts.items()}
    kept, pairs = counts.get("kept"), None
    if "squares" in counts:
        pairs = counts["rectangles"] - counts["squares"] / 2
    tokens = counts.get("tokens", None if counts["prefills"] else 0)
    return EngineBatch(
        counts["prefills"], tokens, counts["decodes"], kept, pairs,
        _if_more(counts.get("replies"), counts["decodes"]),
    )  # fmt: skip


def _of_sglang(mode: str, stated: Mapping[str, int]) -> EngineBatch | None:
    count, pairs = stated.get("bs", 0), None
    if "c_sqsq" in stated and "c_sqsk" in stated:
        pairs = stated["c_sqsk"] - stated["c_sqsq"] / 2
    if mode in (_DECODING, _VERIFYING):
        queries = _if_more(stated.get("g_sq"), count)
        return EngineBatch(0, 0, count, stated.get("g_sk"), decode_tokens=queries)
    if mode in ("prefill", "extend", "split_prefill"):
        tokens = stated.get("toks", stated.get("c_sq", None if count else 0))
        return EngineBatch(count, tokens, 0, 0, pairs=pairs)
    if mode == "mixed":
        decodes = stated.get("g", stated.get("dec", 0))
        tokens = stated.get("c_sq", stated.get("ext"))
        prefills = stated.get("c", count - decodes)
        return EngineBatch(prefills, tokens, decodes, stated.get("g_sk"), pairs=pairs)
    return EngineBatch(0, 0, 0) if mode == "idle" else None


def _of_atom(mode: str, count: int, rest: str) -> EngineBatch:
    stated = _counts(rest)
    tokens = stated.get("tok")
    if mode == "prefill":
        return EngineBatch(count, tokens, 0, 0)
    prefills = min(stated.get("p", 0), count)
    decodes = stated.get("d", count - prefills)
    if prefills:
        return EngineBatch(prefills, None, decodes)
    return EngineBatch(0, 0, decodes, stated.get("sk"), decode_tokens=_if_more(tokens, decodes))


def _counts(text: str) -> dict[str, int]:
    return {key: int(value[:_MOST_DIGITS]) for key, value in _STATED.findall(text)}


def _if_more(tokens: int | None, decodes: int) -> int | None:
    return tokens if tokens is not None and tokens > decodes else None
