"""`StagedServing`: latencies, throughput and stages of what is served in batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    Table,
    Told,
    Unit,
    number_text,
    percent_text,
)
from foretrace.base import NS_PER_MS, NS_PER_S
from foretrace.serve.of_generator import PassPositions, PictureEnd, WorkShare
from foretrace.serve.requests import Requests
from foretrace.serve.serving import LatencySpread, ServiceTarget, latency_table
from foretrace.serve.stages import ServingStage, StagedRun, sizes_up_to, staged_run

# As without layer profiles: kernels of chips that were not measured, all of a step's together.
_LOW, _HIGH = 0.8, 1.2


@dataclass(frozen=True)
class StageOutcome(Plain):
    """One stage: what a batch takes in it, and how much of the time it works."""

    name: str
    where: str
    copies: int
    one_ms: float  # of a batch of one
    most_ms: float  # of the largest batch
    rate: float  # samples in a second at most, in the largest batches
    busy_share: float


@dataclass(frozen=True)
class BatchPoint(Plain):
    """What a batch of one size takes and gives where nothing waits."""

    batch: int
    latency_ms: float
    rate: float  # samples in a second at most


@dataclass(frozen=True, repr=False, kw_only=True)
class StagedServing(Answer):
    """Requests that went through stages in batches."""

    model: str
    machine: str
    num_requests: int
    seconds: float  # from the first arrival to the last answer
    latency_ms: LatencySpread
    queue_ms: LatencySpread
    requests_per_s: float
    most_per_s: float  # of the slowest stage, in the largest batches
    mean_batch: float
    target: ServiceTarget | None
    met_share: float | None
    stages: tuple[StageOutcome, ...]
    batches: tuple[BatchPoint, ...]
    work: tuple[WorkShare, ...]  # of one pass of a generator's network
    positions: tuple[PassPositions, ...]  # so too
    ends: tuple[PictureEnd, ...]  # what a generator does once for a picture
    memory: tuple[tuple[str, int], ...]  # bytes, by what they are
    notes: tuple[str, ...]

    @property
    def slowest(self) -> StageOutcome:
        """The stage that bounds the throughput."""
        return min(self.stages, key=lambda one: one.rate)

    @property
    def headline(self) -> str:
        """Latency, throughput and what bounds it."""
        kept = ""
        if self.met_share is not None and self.target is not None:
            kept = f"; {percent_text(100 * self.met_share)} keep {self.target.words}"
        return (
            f"{self.model} on {self.machine}: {number_text(self.latency_ms.mean)} ms a request, "
            f"99 % within {number_text(self.latency_ms.p99)} ms, up to "
            f"{number_text(self.most_per_s)} requests/s, bound by {self.slowest.name}{kept}"
        )

    def parts(self) -> tuple[Told, ...]:
        """Figures, stages, batches, work, what to know."""
        facts = [
            Fact("requests", f"{self.num_requests:,}", f"in {number_text(self.seconds)} s"),
            Fact("done", f"{number_text(self.requests_per_s)} requests/s", is_first=True),
            Fact("batch", f"{number_text(self.mean_batch)} requests", "on the average"),
        ]
        facts += [Fact(name, f"{size / 2**30:,.2f} GiB") for name, size in self.memory]
        tables = [
            self._stages(),
            latency_table(("whole request", self.latency_ms), ("in the queue", self.queue_ms)),
            self._batches(),
        ]
        if self.work:
            tables += [self._work(), self._positions()]
        if self.ends:
            tables.append(self._ends())
        return (Facts(tuple(facts)), *tables, Sentences.of("to know", self.notes))

    def _stages(self) -> Table:
        return Table.of(
            "stages",
            self.stages,
            Column("name", "stage", Unit.WORD),
            Column("where"),
            Column("copies", "batches at once", Unit.COUNT),
            Column("one_ms", "ms for one", Unit.NUMBER),
            Column("most_ms", "ms, largest batch", Unit.NUMBER),
            Column("rate", "requests/s", Unit.NUMBER),
            Column("busy_share", "busy"),
            title="stages",
            is_strong=lambda one: one == self.slowest,
        )

    def _batches(self) -> Table:
        return Table.of(
            "batches",
            self.batches,
            Column("batch", "batch", Unit.COUNT),
            Column("latency_ms", "ms", Unit.NUMBER),
            Column("rate", "requests/s", Unit.NUMBER),
            title="latency against batch, where nothing waits",
            chart=Chart(
                ChartKind.CURVES,
                "latency of a batch by its size",
                "batch",
                (Series("latency_ms", "latency", "compute"),),
                Unit.NUMBER,
                Unit.NUMBER,
            ),
        )

    def _work(self) -> Table:
        return Table.of(
            "work",
            self.work,
            Column("kind", "work", Unit.WORD),
            Column("ms", "ms", Unit.NUMBER),
            Column("share"),
            title="one pass of the network",
        )

    def _ends(self) -> Table:
        return Table.of(
            "ends",
            self.ends,
            Column("part", "part", Unit.WORD),
            Column("parameters", "parameters", Unit.COUNT),
            Column("ms", "ms", Unit.NUMBER),
            title="once for a picture, before the loop and behind it",
        )

    def _positions(self) -> Table:
        return Table.of(
            "positions",
            self.positions,
            Column("at", "transformer", Unit.IDENTIFIER),
            Column("positions", "positions", Unit.COUNT),
            Column("ms", "ms of attention", Unit.NUMBER),
            title="positions that attention sees, in the order of a pass",
            chart=Chart(
                ChartKind.STEPS,
                "positions that attention sees over a pass of the network",
                "at",
                (Series("positions", "positions", "compute"),),
                Unit.COUNT,
                Unit.NUMBER,
            ),
        )


def staged_serving(
    requests: Requests,
    stages: Sequence[ServingStage],
    *,
    model: str,
    machine: str,
    most_batch: int,
    target: ServiceTarget | None = None,
    work: tuple[WorkShare, ...] = (),
    positions: tuple[PassPositions, ...] = (),
    ends: tuple[PictureEnd, ...] = (),
    memory: tuple[tuple[str, int], ...] = (),
    notes: tuple[str, ...] = (),
) -> StagedServing:
    """What requests get that go through stages in batches.

    Args:
        requests: in the order in which they come; their lengths count for nothing.
        stages: in order.
        model: its name.
        machine: its name.
        most_batch: requests of a batch at most.
        target: what requests are promised; their latency counts.
        work: of a pass of a generator's network.
        positions: so too.
        ends: what it does once for a picture.
        memory: bytes by what they are.
        notes: what to know.

    Raises:
        WorkloadError: if the stages are not timed for such batches.
    """
    run, fast, slow = (
        staged_run(requests, [one.scaled(factor) for one in stages], most_batch=most_batch)
        for factor in (1.0, _LOW, _HIGH)
    )
    latency, queue = (
        [(one - requests.arrival_ns) / NS_PER_MS for one in each]
        for each in (
            (run.last_ns, fast.last_ns, slow.last_ns),
            (run.first_ns, fast.first_ns, slow.first_ns),
        )
    )
    seconds = float(run.last_ns.max()) / NS_PER_S
    met = None
    if target is not None:
        limit = target.latency_ms or target.ttft_ms
        met = float((latency[0] <= limit).mean()) if limit else 1.0
    return StagedServing(
        model=model,
        machine=machine,
        num_requests=len(requests),
        seconds=seconds,
        latency_ms=LatencySpread.of(*latency),
        queue_ms=LatencySpread.of(*queue),
        requests_per_s=len(requests) / seconds,
        most_per_s=min(one.rate(most_batch) for one in stages),
        mean_batch=float(run.sizes.mean()),
        target=target,
        met_share=met,
        stages=tuple(
            StageOutcome(
                name=one.name,
                where=one.where,
                copies=one.copies,
                one_ms=float(one.batch_ns[1]) / NS_PER_MS,
                most_ms=float(one.batch_ns[most_batch]) / NS_PER_MS,
                rate=one.rate(most_batch),
                busy_share=_busy_ns(run, at) / (one.copies * float(run.last_ns.max())),
            )
            for at, one in enumerate(stages)
        ),
        batches=tuple(
            BatchPoint(
                size,
                sum(float(one.batch_ns[size]) for one in stages) / NS_PER_MS,
                min(one.rate(size) for one in stages),
            )
            for size in sizes_up_to(most_batch)
        ),
        work=work,
        positions=positions,
        ends=ends,
        memory=memory,
        notes=notes,
    )


def _busy_ns(run: StagedRun, stage: int) -> float:
    return float((run.end_ns[:, stage] - run.start_ns[:, stage]).sum())
