"""The scheduler of a serving engine in plain Python, with every block by its number.

For one rank, with steps that are put together one ahead or not; what it follows is
vllm/v1/core/sched/scheduler.py and vllm/v1/core/block_pool.py.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from foretrace.serve import Engine, Requests, StepBatch
from foretrace.serve.running import accepted_guesses


@dataclass
class Request:
    prompt: int
    output: int
    arrival: int
    cached: int
    number: int
    computed: int = 0
    made: int = 0
    in_flight: int = 0
    blocks: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)  # blocks that held its first tokens
    scheduled: int = -1
    first: int = -1
    last: int = -1
    preempted: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.made + self.in_flight


@dataclass
class Part:
    request: Request
    tokens: int
    before: int
    makes: bool


class PlainEngine:
    """An engine that serves until nothing is left."""

    def __init__(
        self, requests: Requests, engine: Engine, step_ns: Callable[[StepBatch], int], blocks: int
    ) -> None:
        self.requests = [
            Request(*row)
            for row in zip(
                requests.prompt_tokens.tolist(),
                requests.output_tokens.tolist(),
                requests.arrival_ns.tolist(),
                (requests.prompt_tokens - requests.new_tokens).tolist(),
                range(len(requests)),
                strict=True,
            )
        ]
        self.engine, self.step_ns = engine, step_ns
        self.guesses = engine.num_speculative_tokens
        self.accepted = accepted_guesses(engine).tolist()
        self.is_ahead = engine.async_scheduling and not self.guesses
        self.coming = deque(self.requests)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.free = deque(range(blocks - 1))
        self.holder: dict[int, Request] = {}  # whose tokens a block holds, free or not
        self.num_blocks = blocks - 1
        self.most_used = 0
        self.num_steps = 0
        self.batch = list[Request]()  # a static one's that have not begun

    def run(self) -> None:
        now, current = 0, list[Part]()
        while self.coming or self.waiting or self.running or current:
            if not current:
                self.arrive(now)
                current = self.schedule(now)
                if not current:
                    now = max(now, self.coming[0].arrival)
                    continue
            end = now + self.step_ns(batch_of(current, self.guesses))
            self.num_steps += 1
            following = list[Part]()
            if self.is_ahead:
                self.arrive(now)
                following = self.schedule(now)
            self.finish(current, end)
            if not self.is_ahead:
                self.arrive(end)
                following = self.schedule(end)
            now, current = end, following

    def arrive(self, now: int) -> None:
        while self.coming and self.coming[0].arrival <= now:
            self.waiting.append(self.coming.popleft())

    def schedule(self, now: int) -> list[Part]:
        left, parts = self.engine.max_num_batched_tokens, list[Part]()
        preempts = False
        if not self.running:
            again = sum(one.preempted > 0 for one in self.waiting)
            fresh = [one for one in self.waiting if one.preempted == 0]
            self.batch = fresh[: max(self.engine.max_num_seqs - again, 0)]
        for one in list(self.running):
            if one not in self.running or left <= 0:
                continue
            tokens = min(one.total - one.computed, left)
            if tokens <= 0 or one.made + one.in_flight >= one.output:
                continue
            if tokens == 1 and self.guesses:
                tokens = min(1 + self.guesses, left, one.output - one.made)
            while self.needed(one, one.computed + tokens) > len(self.free):
                preempts = True
                if self.preempt() is one:
                    break
            if one not in self.running:
                break
            self.allocate(one, one.computed + tokens)
            parts.append(self.part(one, tokens))
            left -= tokens
        if not preempts:
            parts += self.admitted(now, left)
        self.most_used = max(self.most_used, self.num_blocks - len(self.free))
        return parts

    def admitted(self, now: int, left: int) -> list[Part]:
        parts = list[Part]()
        while self.waiting and left > 0 and len(self.running) < self.engine.max_num_seqs:
            one = self.waiting[0]
            if one.in_flight:
                break
            if self.engine.is_static and one.preempted == 0 and one not in self.batch:
                break
            size = self.engine.block_size
            known = [block for block in one.known if self.holder.get(block) is one]
            assert known == one.known[: len(known)], "first blocks stay longest"
            known = known[: (one.total - 1) // size]
            computed = len(known) * size
            if one.preempted == 0 and self.engine.finds_blocks:
                computed = max(computed, min(one.cached, one.total - 1))
            tokens = min(one.total - computed, left)
            if tokens < one.total - computed and not self.engine.enable_chunked_prefill:
                break
            end = one.total if self.engine.scheduler_reserve_full_isl else computed + tokens
            if -(-end // size) + self.engine.sequence_blocks > len(self.free):
                self.batch = []
                break
            self.waiting.popleft()
            self.running.append(one)
            for block in known:
                self.free.remove(block)
            one.blocks, one.known, one.computed = known, [], computed
            self.allocate(one, computed + tokens)
            one.scheduled = now if one.scheduled < 0 else one.scheduled
            parts.append(self.part(one, tokens))
            left -= tokens
        return parts

    def needed(self, one: Request, tokens: int) -> int:
        own = self.engine.sequence_blocks
        return -(-tokens // self.engine.block_size) + own - len(one.blocks)

    def allocate(self, one: Request, tokens: int) -> None:
        for _ in range(self.needed(one, tokens)):
            block = self.free.popleft()
            self.holder[block] = one
            one.blocks.append(block)

    def preempt(self) -> Request:
        one = self.running.pop()
        whole = one.computed // self.engine.block_size if self.engine.finds_blocks else 0
        one.known = one.blocks[:whole]
        self.release(one)
        one.computed, one.preempted = 0, one.preempted + 1
        self.waiting.appendleft(one)
        return one

    def release(self, one: Request) -> None:
        self.free.extend(reversed(one.blocks))
        one.blocks = []

    def part(self, one: Request, tokens: int) -> Part:
        before = one.computed
        one.computed += tokens
        makes = one.computed >= one.total
        one.in_flight += makes
        return Part(one, tokens, before, makes)

    def finish(self, parts: list[Part], end: int) -> None:
        for one in (part.request for part in parts if part.makes):
            one.in_flight -= 1
            guessed = one.computed - one.prompt - one.made
            if self.guesses and guessed > 0:
                place = (131 * one.number + one.made) % len(self.accepted)
                right = min(guessed, self.accepted[place])
                one.computed -= guessed - right
                one.made += right
            one.made += 1
            one.first = end if one.first < 0 else one.first
            if one.made == one.output:
                one.last = end
                where = self.running if one in self.running else self.waiting
                where.remove(one)
                self.release(one)


def batch_of(parts: list[Part], guesses: int) -> StepBatch:
    decodes = [part for part in parts if part.tokens <= 1 + guesses and part.before > 0]
    return StepBatch(
        prefills=tuple((part.tokens, part.before) for part in parts if part not in decodes),
        decodes=tuple(part.before + part.tokens for part in decodes),
        num_guessed=sum(part.tokens - 1 for part in decodes),
    )
