"""`fewest_gpus`: the fewest GPUs with which requests get what they are promised, with proof.

A deployment is an engine, its degrees and limits, on some GPUs, times copies that requests take
turns on. Each engine gets a bound on its copies from what its steps must take at least. The one
whose bound is the lowest is looked at next: it is run with the most copies that would still be
better than the best, and only if that keeps the promise with fewer. More copies are taken to keep
no fewer promises. No engine whose bound is above the best is run.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from foretrace.answer import number_text, percent_text
from foretrace.base import NS_PER_HOUR, NS_PER_S, MachineError, NoRoomError, WorkloadError
from foretrace.search.deployment_bounds import alone_ms, least_copies
from foretrace.search.found_deployments import FewestGpus, TriedGpus, degree_words
from foretrace.search.progress import Limits, SearchClock
from foretrace.serve import (
    Deployment,
    Engine,
    Requests,
    ServiceTarget,
    check_served,
    engine_run,
    met,
    tpot_ms,
    ttft_ms,
)

KEPT_SHARE = 0.99  # of requests, where nothing else is asked for
DEGREES = (1, 2, 4, 8)  # of parallelism of an engine
HOST_RANKS = 8  # of one engine, where no machine is stated: a host's GPUs
_SEQUENCES = (16, 32, 64, 128, 256, 512, 1024)
_TOKENS = (512, 1024, 2048, 4096, 8192, 16384)
VARIED: Mapping[str, str] = {
    "sequences": "max_num_seqs from 16 to 1,024",
    "tokens": "max_num_batched_tokens from 512 to 16,384",
}


def engines_of(
    engine: Engine, *, has_experts: bool, vary: Sequence[str] = (), most_ranks: int = HOST_RANKS
) -> tuple[Engine, ...]:
    """The engines of a space: degrees, and limits where they are to vary.

    Args:
        engine: what they have in common.
        has_experts: whether copies may share experts.
        vary: of `VARIED`.
        most_ranks: GPUs of one engine.

    Raises:
        WorkloadError: if something else is to vary.
    """
    for name in vary:
        if name not in VARIED:
            raise WorkloadError(
                f"cannot vary {name!r} of a deployment: expected {', '.join(VARIED)}"
            )
    data = DEGREES if has_experts else (1,)
    varied = {VARIED[name].partition(" ")[0] for name in vary}
    engine = replace(engine, assumed=tuple(key for key in engine.assumed if key not in varied))
    sequences = _SEQUENCES if "sequences" in vary else (engine.max_num_seqs,)
    tokens = _TOKENS if "tokens" in vary else (engine.max_num_batched_tokens,)
    stages = (1,) if engine.num_speculative_tokens else DEGREES
    shapes = [
        (tensor, pipeline, copies, is_shared)
        for tensor, pipeline, copies in product(DEGREES, stages, data)
        for is_shared in ((False, True) if has_experts and tensor * copies > 1 else (False,))
        if tensor * copies <= HOST_RANKS
        and tensor * pipeline * copies <= most_ranks
        and (copies == 1 or is_shared)
    ]
    return tuple(
        replace(
            engine,
            tensor_parallel_size=tensor,
            pipeline_parallel_size=pipeline,
            data_parallel_size=copies,
            enable_expert_parallel=is_shared,
            max_num_seqs=most,
            max_num_batched_tokens=budget,
        )
        for (tensor, pipeline, copies, is_shared), most, budget in product(
            shapes, sequences, tokens
        )
        if budget >= most
    )


@dataclass(frozen=True)
class _Waiting:
    """An engine that was not looked at yet."""

    engine: Engine
    gpu: str
    least: int  # copies


class _Search:
    def __init__(
        self,
        deployed: Callable[[Engine, str], Deployment],
        requests: Requests,
        target: ServiceTarget,
        *,
        kept_share: float,
        most_gpus: int,
    ) -> None:
        self.deployed, self.requests, self.target = deployed, requests, target
        self.kept_share, self.most_gpus = kept_share, most_gpus
        self.tried: list[TriedGpus] = []
        self.refused: dict[str, str] = {}  # by what is said without its numbers
        self.no_room = 0, ""  # GPUs of the largest engine without room for a sequence, and that
        self.alone = ""  # what a request alone takes on the fastest engine that is too slow for it
        self.alone_ms = math.inf  # of the same, all of it
        self.best: TriedGpus | None = None
        self.chosen: Deployment | None = None  # of the best
        self.model = ""

    def waiting(self, engine: Engine, gpu: str) -> _Waiting | None:
        """An engine with its bound; none, where it cannot serve or never keeps the promise."""
        try:
            one = self.deployed(engine, gpu)
            check_served(self.requests, one.engine, one.num_blocks)
        except (WorkloadError, MachineError) as err:
            # Of those that differ in nothing but numbers the first stands for all.
            words = _words_of(engine)
            told = f"{words} on {gpu}: {err}" if gpu else f"{words}: {err}"
            self.refused.setdefault(re.sub(r"[\d.,]+", "", str(err)), told)
            if isinstance(err, NoRoomError) and engine.num_gpus > self.no_room[0]:
                self.no_room = engine.num_gpus, told
            return None
        self.model = one.model.name
        least = least_copies(one.times, one.engine, self.requests, self.target, self.kept_share)
        if least is not None:
            return _Waiting(engine, gpu, least)
        first, further = (
            float(each.mean()) for each in alone_ms(one.times, one.engine, self.requests)
        )
        further /= 1 + engine.num_speculative_tokens
        whole_ms = first + further * float(self.requests.output_tokens.mean() - 1)
        if whole_ms < self.alone_ms:
            self.alone_ms = whole_ms
            self.alone = (
                f"a request alone takes {number_text(first)} ms to its first token and "
                f"{number_text(further)} ms for each further one at least on "
                f"{_words_of(one.engine)}{f' of {one.gpu}' if one.gpu else ''}, the fastest of them"
            )
        return None

    def look_at(self, one: _Waiting) -> None:
        """Find the fewest copies of an engine that are better than the best."""
        per_copy = one.engine.num_gpus
        most = self.most_gpus if self.best is None else self.best.num_gpus - 1
        most = min(most // per_copy, len(self.requests))
        if most < one.least:
            return
        deployed = self.deployed(one.engine, one.gpu)
        failing, copies = one.least - 1, most
        if self.best is None:
            copies = one.least
            while not self._keeps(deployed, copies):
                if copies == most:
                    return
                failing, copies = copies, min(2 * copies, most)
        elif not self._keeps(deployed, copies):
            return
        while copies - failing > 1:
            middle = (failing + copies) // 2
            if self._keeps(deployed, middle):
                copies = middle
            else:
                failing = middle

    def _keeps(self, one: Deployment, copies: int) -> bool:
        found = _tried(one, self.requests, self.target, copies)
        self.tried.append(found)
        keeps = found.kept_share >= self.kept_share
        if keeps and (self.best is None or found.num_gpus < self.best.num_gpus):
            self.best, self.chosen = found, one
        return keeps

    def slow(self) -> tuple[TriedGpus, int | None]:
        """The best where steps take the most of their interval, and GPUs of it that suffice then.

        More copies are taken to keep no fewer promises, so twice as many are tried until some do,
        and halves between.
        """
        assert self.best is not None  # noqa: S101  asked of what was found alone
        assert self.chosen is not None  # noqa: S101
        one = replace(self.chosen, times=self.chosen.times.scaled(self.chosen.times.high))
        each, failing = one.engine.num_gpus, self.best.copies
        found = _tried(one, self.requests, self.target, failing)
        if found.kept_share >= self.kept_share:
            return found, found.num_gpus

        def keeps(copies: int) -> bool:
            tried = _tried(one, self.requests, self.target, copies)
            return tried.kept_share >= self.kept_share

        most = min(self.most_gpus // each, len(self.requests))
        copies = min(2 * failing, most)
        while copies > failing and not keeps(copies):
            failing, copies = copies, min(2 * copies, most)
        if copies <= failing:
            return found, None
        while copies - failing > 1:
            middle = (failing + copies) // 2
            failing, copies = (failing, middle) if keeps(middle) else (middle, copies)
        return found, copies * each

    def nothing(self) -> WorkloadError:
        """What to say where no deployment keeps the promise."""
        nearest = max(self.tried, key=lambda each: each.kept_share, default=None)
        refused = self.no_room[1] or next(iter(self.refused.values()), "")
        told = self.alone or refused
        if self.alone and refused:
            told = f"{self.alone}; others cannot serve ({refused})"
        if nearest is not None:
            told = (
                f"{nearest.num_gpus} GPUs come nearest, with which "
                f"{percent_text(100 * nearest.kept_share)} of requests have it"
            )
        return WorkloadError(
            f"no deployment on up to {self.most_gpus} GPUs keeps {self.target.words}: {told}; "
            "promise less, or take a faster GPU"
        )


def fewest_gpus(
    deployed: Callable[[Engine, str], Deployment],
    engines: Sequence[Engine],
    requests: Requests,
    *,
    target: ServiceTarget,
    gpus: Sequence[str] = ("",),
    kept_share: float = KEPT_SHARE,
    most_gpus: int = 64,
    limits: Limits | None = None,
    dollars_per_hour: float | None = None,
) -> FewestGpus:
    """The fewest GPUs with which requests get what they are promised.

    Copies take turns, so one of them stands for all. Engines that cannot be deployed are left out.

    Args:
        deployed: the deployment of one engine on GPUs of a name.
        engines: of the space, see `engines_of`.
        requests: of all copies together.
        target: what they are promised.
        gpus: names of GPUs to choose from; "": what the engine's settings say.
        kept_share: of requests that must have it.
        most_gpus: to try.
        limits: when to stop.
        dollars_per_hour: price of one GPU.

    Raises:
        WorkloadError: if no number of GPUs does.
    """
    search = _Search(deployed, requests, target, kept_share=kept_share, most_gpus=most_gpus)
    clock = SearchClock(limits or Limits())
    heap: list[tuple[int, int, int, _Waiting]] = []
    listed = list(product(gpus, engines))
    for gpu, engine in listed:
        one = search.waiting(engine, gpu)
        if one is not None:
            gpus_needed = one.least * engine.num_gpus
            heapq.heappush(heap, (gpus_needed, -engine.max_num_seqs, len(heap), one))
    while heap and (search.best is None or heap[0][0] < search.best.num_gpus):
        if clock.is_over and search.best is not None:
            break
        search.look_at(heapq.heappop(heap)[-1])
    best = search.best
    if best is None:
        raise search.nothing()
    slow, slow_gpus = search.slow()
    left = heap[0][0] if heap else best.num_gpus
    order = sorted(search.tried, key=lambda each: (each.num_gpus, -each.kept_share, each.tensor))
    return FewestGpus(
        model=search.model,
        gpu=best.gpu,
        target=target,
        rate=requests.rate,
        best=best,
        slow=slow,
        slow_gpus=slow_gpus,
        least_gpus=min(left, best.num_gpus),
        num_deployments=len(listed),
        num_simulated=len(search.tried),
        refused=tuple(search.refused.values()),
        tried=tuple(order),
        dollars_per_million_tokens=None
        if dollars_per_hour is None
        else dollars_per_hour
        * best.num_gpus
        / (best.output_tokens_per_s * NS_PER_HOUR / NS_PER_S)
        * 1e6,
    )


def _words_of(engine: Engine) -> str:
    """Its degrees."""
    return degree_words(
        engine.tensor_parallel_size,
        engine.pipeline_parallel_size,
        engine.data_parallel_size,
        is_shared=engine.enable_expert_parallel,
    )


def _tried(one: Deployment, requests: Requests, target: ServiceTarget, copies: int) -> TriedGpus:
    share = requests.share(0, copies)
    run = engine_run(share, one.engine, one.times, blocks=one.num_blocks)
    further = tpot_ms(run)
    further = further[~np.isnan(further)]
    return TriedGpus(
        num_gpus=copies * one.engine.num_gpus,
        gpu=one.gpu,
        tensor=one.engine.tensor_parallel_size,
        pipeline=one.engine.pipeline_parallel_size,
        data=one.engine.data_parallel_size,
        has_expert_parallel=one.engine.enable_expert_parallel,
        copies=copies,
        max_num_seqs=one.engine.max_num_seqs,
        max_num_batched_tokens=one.engine.max_num_batched_tokens,
        kept_share=met(run, target),
        ttft_ms=float(np.percentile(ttft_ms(run), 99)),
        tpot_ms=float(np.percentile(further, 99)) if len(further) else 0.0,
        output_tokens_per_s=float(
            copies * share.output_tokens.sum() * NS_PER_S / run.last_ns.max()
        ),
    )
