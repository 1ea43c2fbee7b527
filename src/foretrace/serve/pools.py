"""`pooled_run`: prompts on some copies of an engine, replies on others, what is kept sent between.

Nothing that comes later holds up what came before: copies that work on prompts make first tokens,
their links carry what was kept of each prompt, one request after the other, and copies that make
replies go on from there. What is sent is in the receiver's cache when the request comes to it.

Source:
    Zhong et al., DistServe, arXiv:2401.09670; vLLM 0.19's connectors send when a prompt is done.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import CollectiveKind, Float64s, Int64s, WorkloadError
from foretrace.machine import Machine
from foretrace.serve.engine import Engine
from foretrace.serve.exchanges import exchange_ns
from foretrace.serve.requests import Requests
from foretrace.serve.running import EngineRun, engine_run
from foretrace.serve.step_times import EngineStepTimes


@dataclass(frozen=True)
class Pools:
    """Copies of an engine."""

    prefill: int
    decode: int

    def __post_init__(self) -> None:
        """Refuse pools that nothing comes through.

        Raises:
            WorkloadError: if one has no copies.
        """
        if min(self.prefill, self.decode) < 1:
            raise WorkloadError(
                f"pools of {self.prefill} and {self.decode} copies cannot serve: each needs one or "
                "more, as in 1:3"
            )

    @classmethod
    def stated(cls, text: str) -> Pools:
        """Pools as a command line has them: `1:3`.

        Raises:
            WorkloadError: if they cannot be read.
        """
        try:
            prefill, decode = map(int, text.split(":"))
        except ValueError as err:
            raise WorkloadError(
                f"cannot read the pools {text!r}: expected copies for prompts and for replies: 1:3"
            ) from err
        return cls(prefill, decode)

    @property
    def words(self) -> str:
        """As a command line has them."""
        return f"{self.prefill}:{self.decode}"


def sent_ns(num_bytes: Float64s, machine: Machine | None) -> Int64s:
    """How long what is kept of each prompt is on its way, int64[requests], in ns.

    Args:
        num_bytes: kept of each on one GPU; a GPU sends to one.
        machine: what connects them.
    """
    size = np.ceil(num_bytes).astype(np.int64)
    found: Int64s = np.rint(exchange_ns(CollectiveKind.SEND_RECV, size, 2, machine)).astype(
        np.int64
    )
    return found


def pooled_run(
    requests: Requests,
    engine: Engine,
    times: EngineStepTimes,
    *,
    pools: Pools,
    transfer_ns: Int64s,
    blocks: int,
) -> EngineRun:
    """Serve requests on two pools.

    Args:
        requests: in the order in which they come.
        engine: of every copy.
        times: of its steps.
        pools: how many copies each has.
        transfer_ns: how long each request's keys and values are on their way.
        blocks: of the cache of one copy.

    Raises:
        WorkloadError: if a request can never be served.
    """
    ones = np.ones(len(requests), np.int64)
    prompts = _on_copies(
        replace(requests, output_tokens=ones), engine, times, copies=pools.prefill, blocks=blocks
    )
    ready = np.zeros(len(requests), np.int64)
    for rank in np.unique(prompts.rank).tolist():
        ready[prompts.rank == rank] = _in_turn(
            prompts.first_ns[prompts.rank == rank], transfer_ns[prompts.rank == rank]
        )
    going = np.flatnonzero(requests.output_tokens > 1)
    going = going[np.argsort(ready[going], kind="stable")]
    last, preempted, rank = prompts.last_ns.copy(), prompts.preempted.copy(), prompts.rank.copy()
    steps = prompts.steps
    if len(going):
        replies = Requests(
            requests.name,
            ready[going],
            requests.prompt_tokens[going] + 1,
            requests.output_tokens[going] - 1,
            tuple(requests.names[at] for at in going.tolist()),
            cached_tokens=requests.prompt_tokens[going],
        )
        keeping = replace(engine, enable_prefix_caching=True, is_handed_prompts=True)
        run = _on_copies(replies, keeping, times, copies=pools.decode, blocks=blocks)
        last[going], rank[going] = run.last_ns, run.rank + prompts.rank.max() + 1
        preempted[going] += run.preempted
        steps += run.steps
    return replace(
        prompts, requests=requests, last_ns=last, preempted=preempted, rank=rank, steps=steps
    )


def _on_copies(
    requests: Requests, engine: Engine, times: EngineStepTimes, *, copies: int, blocks: int
) -> EngineRun:
    """Copies of an engine take turns."""
    runs = [
        engine_run(requests.share(part, copies), engine, times, blocks=blocks)
        for part in range(min(copies, len(requests)))
    ]
    columns = {
        name: np.zeros(len(requests), np.int64)
        for name in ("scheduled_ns", "first_ns", "last_ns", "preempted", "rank")
    }
    for part, run in enumerate(runs):
        for name, column in columns.items():
            column[part::copies] = getattr(run, name)
        columns["rank"][part::copies] += part * engine.data_parallel_size
    steps = tuple(one for run in runs for one in run.steps)
    stages = times.num_stages
    return EngineRun(requests, **columns, steps=steps, num_blocks=blocks, num_stages=stages)


def _in_turn(begin: Int64s, duration: Int64s) -> Int64s:
    """Ends of what goes over one link, in the order in which it begins."""
    ends = np.zeros(len(begin), np.int64)
    now = 0
    for at in np.argsort(begin, kind="stable").tolist():
        now = max(now, int(begin[at])) + int(duration[at])
        ends[at] = now
    return ends
