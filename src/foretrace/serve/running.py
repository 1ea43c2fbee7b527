"""`engine_run`: requests go through an engine, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import Int64s, SimulationError, WorkloadError
from foretrace.serve import _compiled
from foretrace.serve.engine import NO_LIMIT, Engine
from foretrace.serve.requests import Requests
from foretrace.serve.step_times import EngineStepTimes

_ROOM = 2**20  # steps; memory is taken as they are written
_DRAWS = 4096
NULL_BLOCKS = 1  # vLLM's block pool keeps its first block for what holds nothing


@dataclass(frozen=True, eq=False)
class EngineSteps:
    """Steps of an engine, one row each."""

    start_ns: Int64s
    duration_ns: Int64s
    num_decodes: Int64s
    prefill_tokens: Int64s
    num_prefills: Int64s
    num_waiting: Int64s
    num_running: Int64s
    used_blocks: Int64s
    gaps_ns: Int64s  # of all decodes, from the token before

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.start_ns)


@dataclass(frozen=True, eq=False)
class EngineRun:
    """What became of each request, and the steps in which it did; times from the first arrival."""

    requests: Requests
    scheduled_ns: Int64s  # int64[requests], when it was first put into a step
    first_ns: Int64s  # int64[requests], when its first token was made
    last_ns: Int64s  # int64[requests], when its last was
    preempted: Int64s  # int64[requests], how often it had to begin again
    rank: Int64s  # int64[requests], which copy of the model served it
    steps: tuple[EngineSteps, ...]  # of each engine that runs by itself
    num_blocks: int  # of one copy
    num_stages: int = 1

    def gaps_ns(self) -> tuple[Int64s, Int64s]:
        """Time from one token of a request to its next, and of how many tokens that is so."""
        gaps, counts = [], []
        for steps in self.steps:
            ends = steps.start_ns + steps.duration_ns
            if self.num_stages == 1:
                gaps.append(np.diff(ends, prepend=ends[:1] - steps.duration_ns[:1]))
            else:  # other requests' steps lie between
                gaps.append(steps.gaps_ns // np.maximum(steps.num_decodes, 1))
            counts.append(steps.num_decodes)
        return np.concatenate(gaps), np.concatenate(counts)


def engine_run(
    requests: Requests, engine: Engine, times: EngineStepTimes, *, blocks: int = NO_LIMIT
) -> EngineRun:
    """Serve requests.

    Copies of a dense model each serve by themselves, requests taking turns; copies that share
    experts go in step.

    Args:
        requests: in the order in which they come.
        engine: its scheduler's settings.
        times: of its steps.
        blocks: of the cache of one copy.

    Raises:
        WorkloadError: if a request can never be served.
    """
    check_served(requests, engine, blocks)
    parts = engine.data_parallel_size // times.num_ranks
    runs = [
        _one_engine(requests.share(part, parts), engine, times, blocks=blocks)
        for part in range(min(parts, len(requests)))
    ]
    rows = np.zeros((len(requests), _compiled.NUM_FIELDS), np.int64)
    for part, (found, _) in enumerate(runs):
        rows[part::parts] = found
        rows[part::parts, _compiled.RANK] += part * times.num_ranks
    return EngineRun(
        requests,
        scheduled_ns=rows[:, _compiled.SCHEDULED],
        first_ns=rows[:, _compiled.FIRST],
        last_ns=rows[:, _compiled.LAST],
        preempted=rows[:, _compiled.PREEMPTED],
        rank=rows[:, _compiled.RANK],
        steps=tuple(steps for _, steps in runs),
        num_blocks=blocks,
        num_stages=times.num_stages,
    )


def _one_engine(
    requests: Requests, engine: Engine, times: EngineStepTimes, *, blocks: int
) -> tuple[Int64s, EngineSteps]:
    limits = np.zeros(_compiled.NUM_LIMITS, np.int64)
    limits[_compiled.BLOCKS] = min(blocks, NO_LIMIT) - NULL_BLOCKS
    limits[_compiled.BLOCK_TOKENS] = engine.block_size
    limits[_compiled.MOST_SEQUENCES] = engine.max_num_seqs
    limits[_compiled.TOKEN_BUDGET] = engine.max_num_batched_tokens
    limits[_compiled.IS_CHUNKED] = engine.enable_chunked_prefill
    limits[_compiled.RESERVES_PROMPT] = engine.scheduler_reserve_full_isl
    is_ahead = engine.async_scheduling and not engine.num_speculative_tokens
    limits[_compiled.IS_AHEAD] = is_ahead and times.num_stages == 1
    limits[_compiled.MOST_STEPS] = times.num_stages if times.num_stages > 1 else 1 + is_ahead
    limits[_compiled.SPECULATIVE] = engine.num_speculative_tokens
    limits[_compiled.KEEPS_BLOCKS] = engine.finds_blocks
    limits[_compiled.SEQUENCE_BLOCKS] = engine.sequence_blocks
    limits[_compiled.IS_STATIC] = engine.is_static
    cached = requests.cached_tokens
    if cached is None or not (engine.finds_blocks or engine.is_handed_prompts):
        cached = np.zeros(len(requests), np.int64)
    held = (requests.arrival_ns, requests.prompt_tokens, requests.output_tokens, cached)
    # A part of a workload is every n-th request: packed, it needs no machine code of its own.
    columns = [*map(np.ascontiguousarray, held)]
    rows = np.zeros((len(requests), _compiled.NUM_FIELDS), np.int64)
    num_steps, steps = _ROOM, np.empty((0, _compiled.NUM_COLUMNS), np.int64)
    while num_steps > len(steps):  # where there was no room for all, it runs again
        steps = np.zeros((num_steps, _compiled.NUM_COLUMNS), np.int64)
        num_steps = _compiled.engine_steps_into(
            *columns, accepted_guesses(engine), limits, times.num_ranks, times.grids, times.times,
            times.stages, rows, steps,
        )  # fmt: skip
    if (rows[:, _compiled.LAST] < 0).any():
        raise SimulationError(
            f"{int((rows[:, _compiled.LAST] < 0).sum())} of {len(requests)} requests were never "
            "done: raise max_num_batched_tokens or the memory of the cache"
        )
    return rows, EngineSteps(*steps[:num_steps].T)


def accepted_guesses(engine: Engine) -> Int64s:
    """Draws of how many guessed tokens in a row are right, int64[draws].

    Each is right with the same chance (Leviathan et al., arXiv:2211.17192, whose mean of tokens a
    step, (1 - a**(k + 1)) / (1 - a), these have). The draws are as even as can be.
    """
    most, chance = engine.num_speculative_tokens, engine.acceptance_rate
    if most == 0 or chance <= 0:
        return np.zeros(1, np.int64)
    if chance >= 1:
        return np.full(1, most, np.int64)
    even = (np.random.default_rng(0).permutation(_DRAWS) + 0.5) / _DRAWS
    found: Int64s = np.minimum(np.log(even) // np.log(chance), most).astype(np.int64)
    return found


def check_served(requests: Requests, engine: Engine, blocks: int) -> None:
    """Refuse requests that an engine turns away or can never finish.

    Raises:
        WorkloadError: naming the first.
    """
    total = requests.prompt_tokens + requests.output_tokens
    if engine.max_model_len is not None and (total > engine.max_model_len).any():
        at = int(np.flatnonzero(total > engine.max_model_len)[0])
        raise WorkloadError(
            f"request {requests.names[at]!r} of {requests.name} has {int(total[at]):,} tokens, "
            f"prompt and reply, and the engine's context holds {engine.max_model_len:,}: leave it "
            "out, or raise max_model_len"
        )
    need = -(-(total - 1) // engine.block_size) + engine.sequence_blocks
    if need.max() > blocks - NULL_BLOCKS:
        at = int(need.argmax())
        raise WorkloadError(
            f"request {requests.names[at]!r} of {requests.name} needs {int(need[at]):,} blocks of "
            f"{engine.block_size:,} tokens, and the cache has {max(blocks - NULL_BLOCKS, 0):,}: "
            "take a GPU with more memory, more GPUs, or shorter requests"
        )
    if not engine.enable_chunked_prefill:
        longest = int(total.max())  # a preempted request begins again with what it made
        if longest > engine.max_num_batched_tokens:
            raise WorkloadError(
                f"a request of {longest:,} tokens of {requests.name} goes into no step of "
                f"{engine.max_num_batched_tokens:,} tokens: let prefills be chunked, or raise "
                "max_num_batched_tokens"
            )
