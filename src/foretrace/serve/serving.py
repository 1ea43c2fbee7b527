"""`Serving`: what a deployment makes of its requests: latencies, throughput, memory, price."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Fact,
    Facts,
    Plain,
    Sentences,
    Series,
    Shown,
    Table,
    Told,
    Unit,
    number_text,
    percent_text,
)
from foretrace.base import NS_PER_HOUR, NS_PER_MS, NS_PER_S, Float64s, Int64s
from foretrace.serve.engine import NO_LIMIT, Engine
from foretrace.serve.running import NULL_BLOCKS, EngineRun

_POINTS = 120  # of a curve over time

_OVERLOADED = 0.1  # of all requests, those that wait when the last one comes


@dataclass(frozen=True)
class ServiceTarget(Plain):
    """What a request is promised at most, in ms; 0: nothing."""

    ttft_ms: float = 0.0
    tpot_ms: float = 0.0
    latency_ms: float = 0.0

    @property
    def words(self) -> str:
        """As a command line has it."""
        named = (("ttft", self.ttft_ms), ("tpot", self.tpot_ms), ("latency", self.latency_ms))
        return ", ".join(f"{name} {number_text(value)} ms" for name, value in named if value)


@dataclass(frozen=True)
class LatencySpread(Plain):
    """A latency over all requests, in ms."""

    mean: float
    median: float
    p90: float
    p95: float
    p99: float
    low: float  # of the mean: 80 % interval of the step times
    high: float

    @classmethod
    def of(cls, values: Float64s, low: Float64s, high: Float64s) -> LatencySpread:
        """Of all requests, and of the same under fast and slow steps."""
        if not len(values):
            return cls(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        median, p90, p95, p99 = np.percentile(values, [50, 90, 95, 99]).tolist()
        ends = float(low.mean()), float(high.mean())
        return cls(float(values.mean()), median, p90, p95, p99, *ends)


@dataclass(frozen=True)
class ServedRequest(Plain):
    """What became of one request."""

    request_id: str
    prompt_tokens: int
    output_tokens: int
    arrival_ms: float
    queue_ms: float  # until it was first put into a step
    ttft_ms: float  # from its arrival to its first token
    tpot_ms: float | None  # each further token; a reply of one has none
    latency_ms: float  # to its last token
    num_preempted: int
    rank: int


def queue_ms(run: EngineRun) -> Float64s:
    """Time until each request was first put into a step."""
    return (run.scheduled_ns - run.requests.arrival_ns) / NS_PER_MS


def ttft_ms(run: EngineRun) -> Float64s:
    """Time to the first token of each request, from its arrival."""
    return (run.first_ns - run.requests.arrival_ns) / NS_PER_MS


def latency_ms(run: EngineRun) -> Float64s:
    """Time to the last token of each request."""
    return (run.last_ns - run.requests.arrival_ns) / NS_PER_MS


def tpot_ms(run: EngineRun) -> Float64s:
    """Time of each token after the first, of requests that have any; NaN of others."""
    further = run.requests.output_tokens - 1
    spent = (run.last_ns - run.first_ns) / NS_PER_MS
    return np.where(further > 0, spent / np.maximum(further, 1), np.nan)


def _told(values: Float64s) -> Float64s:
    return values[~np.isnan(values)]


def met(run: EngineRun, target: ServiceTarget) -> float:
    """Share of requests that got what they were promised."""
    kept = np.ones(len(run.requests), bool)
    for limit, values in (
        (target.ttft_ms, ttft_ms(run)),
        (target.tpot_ms, tpot_ms(run)),
        (target.latency_ms, latency_ms(run)),
    ):
        if limit:
            kept &= np.isnan(values) | (values <= limit)
    return float(kept.mean())


@dataclass(frozen=True)
class ServedRates(Plain):
    """What an engine gets done in a second, from the first arrival to the last token."""

    requests_per_s: float
    output_tokens_per_s: float
    total_tokens_per_s: float
    low: float  # of output tokens
    high: float


@dataclass(frozen=True, repr=False, kw_only=True)
class Serving(Answer):
    """A deployment and its requests."""

    json_names: ClassVar[Mapping[str, str]] = {
        "served": "requests",
        "engine": "",
        "over_time": "",
        "run": "",
    }

    model: str
    gpu: str
    num_gpus: int
    source: str  # of step times
    num_requests: int
    seconds: float  # from the first arrival to the last token
    ttft_ms: LatencySpread
    tpot_ms: LatencySpread
    itl_ms: LatencySpread  # from one token to the next, over tokens
    latency_ms: LatencySpread
    queue_ms: LatencySpread
    rates: ServedRates
    num_steps: int
    num_preempted: int
    cache_tokens: int | None  # that one copy of the model keeps at most; None: not known to bind
    cache_share: float  # of it in use at most
    most_waiting: int
    most_running: int
    target: ServiceTarget | None
    met_share: float | None  # of requests that got what they were promised
    goodput_per_s: float | None  # of such requests
    dollars_per_million_tokens: float | None  # of replies
    notes: tuple[str, ...]
    over_time: Table
    engine: Engine
    run: EngineRun
    served: tuple[ServedRequest, ...]

    @property
    def headline(self) -> str:
        """Latencies and throughput in one line."""
        gpus = f"{self.num_gpus} x {self.gpu}" if self.num_gpus > 1 else self.gpu
        kept = (
            f"; {percent_text(100 * self.met_share)} keep {self.target.words}"
            if self.target is not None and self.met_share is not None
            else ""
        )
        further = ""
        if (self.run.requests.output_tokens > 1).any():
            further = f"then {number_text(self.tpot_ms.median)} ms a token (median), "
        return (
            f"{self.model} on {gpus}: first token {number_text(self.ttft_ms.mean)} ms, {further}"
            f"{number_text(self.rates.output_tokens_per_s)} tokens/s{kept}"
        )

    def parts(self) -> tuple[Told, ...]:
        """Figures, latencies, the queue over time, what to know; requests in files."""
        return (
            Facts(self._facts()),
            self._latencies(),
            self.over_time,
            Sentences.of("to know", self.notes),
        )

    def tables(self) -> tuple[Table, ...]:
        """Latencies first; every request in files."""
        return self._latencies(), self.over_time, self._requests()

    def _facts(self) -> tuple[Fact, ...]:
        source, _, calibration = self.source.partition(", ")
        cache = "not known to bind"
        if self.cache_tokens is not None:
            most = percent_text(100 * self.cache_share)
            room = f"{self.cache_tokens:,} tokens"
            if self.engine.is_block_a_sequence:
                blocks = self.cache_tokens // self.engine.block_size
                room = f"{blocks - NULL_BLOCKS:,} sequences"
            cache = f"{room}, {most} in use at most"
        facts = [
            Fact("requests", f"{self.num_requests:,}", f"in {number_text(self.seconds)} s"),
            Fact(
                "output", f"{number_text(self.rates.output_tokens_per_s)} tokens/s", is_first=True
            ),
            Fact("cache", cache, f"{self.num_preempted:,} preemptions"),
            Fact("queue", f"{self.most_waiting:,} at most", f"{self.most_running:,} running"),
            Fact("step times", source, calibration),
        ]
        if self.met_share is not None and self.target is not None:
            share = percent_text(100 * self.met_share)
            facts.append(Fact("promise kept", share, self.target.words))
        if self.dollars_per_million_tokens is not None:
            facts.append(
                Fact("price", f"${self.dollars_per_million_tokens:.3f}", "a million tokens")
            )
        return tuple(facts)

    def _latencies(self) -> Table:
        return latency_table(
            ("first token", self.ttft_ms),
            ("each further token", self.tpot_ms),
            ("between tokens", self.itl_ms),
            ("whole request", self.latency_ms),
            ("in the queue", self.queue_ms),
        )

    def _requests(self) -> Table:
        keys = ("request_id", "prompt_tokens", "output_tokens", "arrival_ms", "queue_ms")
        more = ("ttft_ms", "tpot_ms", "latency_ms", "num_preempted", "rank")
        columns = [
            Column(key, unit=Unit.WORD if key == "request_id" else Unit.NUMBER) for key in keys
        ]
        columns += [Column(key, unit=Unit.NUMBER) for key in more]
        return Table.of("requests", self.served, *columns, shown=Shown.FILES)


def latency_table(*named: tuple[str, LatencySpread]) -> Table:
    """Means and quantiles of latencies, by name."""

    def part(key: str) -> Callable[[tuple[str, LatencySpread]], float]:
        return lambda one: getattr(one[1], key)

    keys = (("mean", "mean ms"), ("low", "from"), ("high", "to"), ("median", "50 %"))
    return Table.of(
        "latencies",
        named,
        Column("latency", value=lambda one: one[0]),
        *(
            Column(f"{key}_ms", title, Unit.NUMBER, part(key))
            for key, title in (*keys, ("p90", "90 %"), ("p95", "95 %"), ("p99", "99 %"))
        ),
        title="latencies in ms; from and to: 80 % interval of the mean",
    )


def _overload(run: EngineRun) -> Iterator[str]:
    """That requests come faster than they are served, where they do."""
    came_ns = run.requests.arrival_ns
    span_ns, count = int(came_ns.max() - came_ns.min()), len(run.requests)
    waiting = int(np.count_nonzero(run.scheduled_ns > came_ns.max()))
    if span_ns and waiting > _OVERLOADED * count:
        comes, served = (count * NS_PER_S / ns for ns in (span_ns, int(run.last_ns.max())))
        yield (
            f"more requests come ({comes:.3g}/s) than are served ({served:.3g}/s): {waiting:,} of "
            f"{count:,} wait when the last one comes, and latencies grow with the length of the "
            "run; --slo with --rate finds how many GPUs are enough"
        )


def serving(
    run: EngineRun,
    fast: EngineRun,
    slow: EngineRun,
    *,
    engine: Engine,
    model: str,
    gpu: str,
    source: str,
    target: ServiceTarget | None = None,
    dollars_per_hour: float | None = None,
    copies: int = 1,
    notes: tuple[str, ...] = (),
) -> Serving:
    """What a run comes to.

    Args:
        run: under the step times.
        fast: under the least of their interval.
        slow: under the most.
        engine: that ran.
        model: its name.
        gpu: its name.
        source: of the step times.
        target: what requests are promised.
        dollars_per_hour: price of one GPU.
        copies: of the engine.
        notes: what to know.
    """
    requests = run.requests
    seconds = float(run.last_ns.max()) / NS_PER_S
    tokens = int(requests.output_tokens.sum())
    share = met(run, target) if target is not None else None
    dollars = None
    if dollars_per_hour is not None:
        hours = seconds * NS_PER_S / NS_PER_HOUR
        dollars = dollars_per_hour * copies * engine.num_gpus * hours / tokens * 1e6
    return Serving(
        model=model,
        gpu=gpu,
        num_gpus=copies * engine.num_gpus,
        source=source,
        num_requests=len(requests),
        seconds=seconds,
        ttft_ms=LatencySpread.of(ttft_ms(run), ttft_ms(fast), ttft_ms(slow)),
        tpot_ms=LatencySpread.of(_told(tpot_ms(run)), _told(tpot_ms(fast)), _told(tpot_ms(slow))),
        itl_ms=LatencySpread.of(*(_between_tokens(one) for one in (run, fast, slow))),
        latency_ms=LatencySpread.of(latency_ms(run), latency_ms(fast), latency_ms(slow)),
        queue_ms=LatencySpread.of(queue_ms(run), queue_ms(fast), queue_ms(slow)),
        rates=ServedRates(
            len(requests) / seconds,
            tokens / seconds,
            (tokens + int(requests.prompt_tokens.sum())) / seconds,
            tokens * NS_PER_S / float(slow.last_ns.max()),
            tokens * NS_PER_S / float(fast.last_ns.max()),
        ),
        num_steps=sum(map(len, run.steps)),
        num_preempted=int(run.preempted.sum()),
        cache_tokens=None if run.num_blocks >= NO_LIMIT else run.num_blocks * engine.block_size,
        cache_share=_cache_share(run),
        most_waiting=max(int(one.num_waiting.max()) for one in run.steps),
        most_running=max(int(one.num_running.max()) for one in run.steps),
        target=target,
        met_share=share,
        goodput_per_s=None if share is None else share * len(requests) / seconds,
        dollars_per_million_tokens=dollars,
        notes=(*notes, *_overload(run)),
        over_time=_over_time(run),
        engine=engine,
        run=run,
        served=_served(run),
    )


def _between_tokens(run: EngineRun) -> Float64s:
    gaps, counts = run.gaps_ns()
    found: Float64s = np.repeat(gaps, counts) / NS_PER_MS
    return found


def _cache_share(run: EngineRun) -> float:
    copies = int(run.rank.max()) + 1
    used = max(int(one.used_blocks.max()) for one in run.steps)
    in_step = max(1, copies // len(run.steps))
    return used / (run.num_blocks * in_step)


def _served(run: EngineRun) -> tuple[ServedRequest, ...]:
    requests = run.requests
    further = [None if np.isnan(value) else value for value in tpot_ms(run).tolist()]
    columns = (
        *(requests.names, requests.prompt_tokens.tolist(), requests.output_tokens.tolist()),
        *(
            (requests.arrival_ns / NS_PER_MS).tolist(),
            queue_ms(run).tolist(),
            ttft_ms(run).tolist(),
        ),
        *(further, latency_ms(run).tolist(), run.preempted.tolist(), run.rank.tolist()),
    )
    return tuple(ServedRequest(*row) for row in zip(*columns, strict=True))


def _over_time(run: EngineRun) -> Table:
    """Running and waiting requests and the cache in use at some moments, of all engines."""
    moments = np.linspace(0, float(run.last_ns.max()), _POINTS)
    running, waiting, used = (
        np.sum([_at(one.start_ns, getattr(one, name), moments) for one in run.steps], axis=0)
        for name in ("num_running", "num_waiting", "used_blocks")
    )
    rows = zip(*(one.tolist() for one in (moments / NS_PER_S, running, waiting, used)), strict=True)
    return Table(
        "over_time",
        "running and waiting requests",
        (
            Column("seconds", "s", Unit.NUMBER),
            Column("num_running", "running"),
            Column("num_waiting", "waiting"),
            Column("num_blocks", "blocks in use"),
        ),
        tuple(rows),
        shown=Shown.WIDE,
        chart=Chart(
            ChartKind.CURVES,
            "requests that run and that wait over time",
            "seconds",
            (Series("num_running", "running", "compute"), Series("num_waiting", "waiting", "idle")),
            Unit.COUNT,
            Unit.NUMBER,
        ),
    )


def _at(starts: Int64s, values: Int64s, moments: Float64s) -> Int64s:
    found: Int64s = values[np.maximum(np.searchsorted(starts, moments, side="right") - 1, 0)]
    return found
