"""`packings`: steps that packers make of documents, simulated beside each other."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from foretrace.balance import (
    AsItComes,
    AsItComesWhole,
    ContextShards,
    Documents,
    DocumentWork,
    Greedy,
    OutlierQueues,
    PackedStream,
    Packer,
    Piece,
    Room,
    SlowestRank,
    arrivals,
    document_work,
    imbalance,
    overhead_ms,
    packed_stream,
    slowest_rank,
    tuned_queues,
    work_by_microbatch,
)
from foretrace.base import Float64s, Int64s, WorkloadError
from foretrace.cost import CostModel, step_costs
from foretrace.estimate.packings import DocumentMix, Packing, Packings, WindowGain
from foretrace.estimate.uneven import UnevenStep, uneven_step
from foretrace.machine import Machine
from foretrace.workload import Plan, Transformer

LONGEST = 1.5  # windows that a microbatch of varying length may have, if nothing else is said
_NUM_STEPS = 200
_GROUPS = 8  # of steps, whose differences tell how sure a mean is
_CONFIDENCE = 1.28  # of the normal distribution: 80 % lie within
_SHORTEST_WINDOW = 4_096
_MOST_WINDOWS = 4
_WINDOW_STEPS = 100


def packings(
    model: Transformer,
    plan: Plan,
    machine: Machine,
    *,
    documents: Documents,
    costs: CostModel | None = None,
    longest: int | None = None,
    num_steps: int = _NUM_STEPS,
    seed: int = 0,
    by_window: bool = True,
    progress: Callable[[int, int], None] | None = None,
) -> Packings:
    """Packers on the documents of a dataset, and the steps that they make.

    Args:
        model: that is trained.
        plan: complete; its sequence is the window, its global batch the microbatches.
        machine: with as many chips as the plan has ranks, or more.
        documents: of the dataset.
        costs: what predicts durations; the fitted models of this version, if left out.
        longest: tokens of the longest microbatch where lengths vary; 1.5 windows, if left out.
        num_steps: that documents are drawn for.
        seed: of the order of documents.
        by_window: also at shorter windows.
        progress: called with packers done and packers in all.

    Raises:
        WorkloadError: for attention that is not fused, or a plan that is not legal.
        MachineError: if the machine cannot be costed.
    """
    if num_steps < 2 * _GROUPS:
        raise WorkloadError(
            f"{num_steps} steps are too few to tell packers apart: {2 * _GROUPS} at least"
        )
    priced = costs or step_costs(machine)
    study = _Study.of(
        model, plan, machine, costs=priced, longest=longest, documents=documents, seed=seed
    )
    room = study.room
    found = list(study.told(num_steps, progress=progress))
    notes = [
        (
            f"{num_steps:,} steps of {room.step_tokens:,} tokens; intervals are of what steps "
            "differ by and of what the cost of attention is not sure of"
        ),
        "copies of the model wait for the last of them where the step ends",
    ]
    few = [one for one in found if isinstance(one, str)]
    if few:
        notes.append(f"too few steps of {', '.join(few)} to tell: take more with --steps")
    by_length: Iterator[WindowGain] = iter(())
    if by_window:

        def studied(window: int) -> _Study:
            if window == plan.sequence and longest is None:
                return study
            shorter = replace(plan, sequence=window)
            return _Study.of(
                model, shorter, machine, costs=priced, longest=None, documents=documents, seed=seed
            )

        by_length = _windows(studied, plan.sequence)
    return Packings(
        documents=documents.name,
        model=model.name,
        machine=machine.name,
        window=room.window,
        num_microbatches=room.num_microbatches,
        num_steps=num_steps,
        even_ns=study.even_ns,
        packers=tuple(one for one in found if isinstance(one, Packing)),
        windows=tuple(by_length),
        notes=tuple(notes),
    )


def document_mix(
    model: Transformer,
    plan: Plan,
    machine: Machine,
    *,
    documents: Documents,
    costs: CostModel | None = None,
    num_steps: int = _NUM_STEPS,
    seed: int = 0,
) -> DocumentMix:
    """How long steps of a dataset's documents take, packed as they come.

    Args:
        model: that is trained.
        plan: complete; its sequence is the window, its global batch the microbatches.
        machine: with as many chips as the plan has ranks, or more.
        documents: of the dataset.
        costs: what predicts durations; the fitted models of this version, if left out.
        num_steps: that documents are drawn for.
        seed: of the order of documents.

    Raises:
        WorkloadError: where `packings` does.
        MachineError: where `packings` does.
    """
    priced = costs or step_costs(machine)
    study = _Study.of(
        model, plan, machine, costs=priced, longest=None, documents=documents, seed=seed
    )
    stream = study.as_it_comes(num_steps)
    run = study.run(stream, ContextShards.BY_SEQUENCE)
    return DocumentMix(
        documents=documents.name,
        packer=stream.name,
        num_steps=len(run.step_ns),
        imbalance=imbalance(run.slowest_ns),
        mean_ns=float(run.step_ns.mean()),
        p50_ns=float(np.quantile(run.step_ns, 0.5)),
        p95_ns=float(np.quantile(run.step_ns, 0.95)),
        even_ns=study.even_ns,
    )


def drawn_mix(
    plan: Plan,
    work: DocumentWork,
    *,
    documents: Documents,
    num_copies: int,
    seed: int = 0,
) -> tuple[Float64s, Float64s]:
    """Microbatches of copies of the model, whose documents come as they come.

    Args:
        plan: its sequence is the window, its global batch the microbatches.
        work: on documents under that plan.
        documents: of the dataset.
        num_copies: of the model, or of one in several steps.
        seed: of the order of documents.

    Returns:
        Tokens and attention, of one document as long as the window; float64[copies, microbatches].

    Raises:
        WorkloadError: as `packings`.
    """
    room = _room(plan, None)
    count = room.num_microbatches // plan.data
    one = replace(room, num_microbatches=count)
    arriving = documents.arriving(num_copies * one.step_tokens, seed=seed)
    stream = packed_stream(AsItComes(one), arrivals(arriving.tolist(), one))
    made = MixedWork(work, one, plan.context)
    return made.factors(stream.lengths(), ContextShards.BY_SEQUENCE)


@dataclass(frozen=True, eq=False)
class _Run:
    """Steps that a packer made, simulated."""

    stream: PackedStream
    shards: str
    tokens: Int64s  # int64[steps]
    work_ns: Float64s  # float64[steps, microbatches]
    slowest_ns: Float64s  # float64[steps, microbatches], on the rank of CONTEXT that is last
    step_ns: Float64s  # float64[steps]
    ns_per_work: tuple[float, float, float]  # attention as it is, at its least, at its most
    groups: Float64s  # float64[groups], the first of them in parts of the stream

    def packing(self, first: _Run) -> Packing:
        """Beside documents as they come."""
        gains = [one / own for one, own in zip(first.ns_per_work, self.ns_per_work, strict=True)]
        among = np.log(first.groups / self.groups)
        by_steps = _CONFIDENCE * float(among.std(ddof=1)) / math.sqrt(len(among))
        by_costs = max(abs(math.log(one / gains[0])) for one in gains[1:])
        half = 0.0 if self is first else math.hypot(by_steps, by_costs)
        waited = self.stream.delays()[0]
        own, theirs = self._ns_per_token, first._ns_per_token
        return Packing(
            name=self.stream.name,
            shards=self.shards,
            keeps_documents_whole=self.stream.packer.keeps_documents_whole,
            imbalance=imbalance(self.slowest_ns),
            longest_tokens=max(int(one.sum()) for step in self.stream.lengths() for one in step),
            overhead_ms=overhead_ms(self.stream),
            delay_iterations=self.stream.mean_delay(),
            longest_delay_iterations=int(waited.max()),
            step_ns=float(self.step_ns.mean()),
            p50_ns=float(np.quantile(self.step_ns, 0.5)),
            p95_ns=float(np.quantile(self.step_ns, 0.95)),
            ns_per_token=own,
            ns_per_work=self.ns_per_work[0],
            gain=gains[0],
            gain_low=gains[0] * math.exp(-half),
            gain_high=gains[0] * math.exp(half),
            token_gain=theirs / own,
        )

    @property
    def _ns_per_token(self) -> float:
        return float(self.step_ns.sum() / self.tokens.sum())


@dataclass(frozen=True)
class MixedWork:
    """Work on the documents of microbatches, beside that on one as long as the window."""

    work: DocumentWork
    room: Room
    context: int

    def factors(
        self, lengths: list[list[Int64s]], shards: ContextShards
    ) -> tuple[Float64s, Float64s]:
        """Tokens and attention on the slowest rank; float64[steps, microbatches]."""
        whole = np.full(self.room.window // self.work.window, self.work.window, np.int64)
        even = self._slowest(whole, ContextShards.BY_SEQUENCE)
        found = [[self._slowest(one, shards) for one in step] for step in lengths]
        tokens = [[one.tokens / even.tokens for one in step] for step in found]
        attention = [[one.attention_ns / even.attention_ns for one in step] for step in found]
        return np.array(tokens), np.array(attention)

    def slowest_ns(self, lengths: list[list[Int64s]], shards: ContextShards) -> Float64s:
        """How long the slowest rank works on each; float64[steps, microbatches]."""
        tokens, attention = self.factors(lengths, shards)
        whole_ns = float(self.work.attention_of(np.array([self.work.window]))[0])
        windows = self.room.window // self.work.window
        of_tokens: Float64s = self.work.token_ns * self.room.window * tokens
        return of_tokens + windows * whole_ns * attention

    def _slowest(self, lengths: Int64s, shards: ContextShards) -> SlowestRank:
        return slowest_rank(
            lengths, self.work, self.context, shards=shards, longest=self.room.longest
        )


def _room(plan: Plan, longest: int | None) -> Room:
    window = plan.sequence * plan.micro_batch
    return Room(
        window=window,
        num_microbatches=plan.global_batch // plan.micro_batch,
        longest=round(LONGEST * window) if longest is None else longest,
        longest_document=plan.sequence,
    )


@dataclass(frozen=True, eq=False)
class _Study:
    """What packers are tried on."""

    step: UnevenStep
    work: DocumentWork
    room: Room
    context: int
    documents: Documents
    seed: int
    thresholds: dict[int, tuple[int, ...]] = field(default_factory=dict)  # by number of queues

    @classmethod
    def of(
        cls,
        model: Transformer,
        plan: Plan,
        machine: Machine,
        *,
        costs: CostModel,
        longest: int | None,
        documents: Documents,
        seed: int,
    ) -> _Study:
        return cls(
            uneven_step(model, plan, machine, costs=costs),
            document_work(model, plan, costs),
            _room(plan, longest),
            plan.context,
            documents,
            seed,
        )

    def arrived(self, num_steps: int) -> list[list[Piece]]:
        """Documents of so many steps, by the step that they arrive for."""
        lengths = self.documents.arriving(num_steps * self.room.step_tokens, seed=self.seed)
        return list(arrivals(lengths.tolist(), self.room))

    def as_it_comes(self, num_steps: int) -> PackedStream:
        """So many steps of documents as they come."""
        return packed_stream(AsItComes(self.room), self.arrived(num_steps))

    def queues(self, count: int) -> OutlierQueues:
        """So many queues, empty, with the thresholds that suit the documents."""
        room, work = self.room, self.work
        if count not in self.thresholds:
            tuned = tuned_queues(room, work, self.documents, num_queues=count, seed=self.seed)
            self.thresholds[count] = tuned.thresholds
        return OutlierQueues(room, work, self.thresholds[count])

    @property
    def even_ns(self) -> float:
        """The step of even microbatches: the estimate's."""
        even = np.ones((1, self.step.num_replicas, self.step.num_microbatches))
        return float(self.step.step_ns(even, even)[0])

    def told(
        self, num_steps: int, *, progress: Callable[[int, int], None] | None
    ) -> Iterator[Packing | str]:
        """Every packer with every way of sharding; the name of one that made too few steps."""
        tried = self._tried()
        first: _Run | None = None
        arrived = self.arrived(num_steps)
        for done, (packer, shards) in enumerate(tried):
            stream = packed_stream(packer, arrived)
            if len(stream.steps) < 2 * _GROUPS:
                yield packer.name
                continue
            run = self.run(stream, shards)
            first = first or run
            yield run.packing(first)
            if progress is not None:
                progress(done + 1, len(tried))

    def _tried(self) -> list[tuple[Packer, ContextShards]]:
        room, work = self.room, self.work
        plain = ContextShards.BY_SEQUENCE
        packers: list[Packer] = [AsItComes(room), AsItComesWhole(room)]
        packers += [Greedy(room, work, count) for count in (1, 2, 4, 8)]
        packers += [self.queues(count) for count in (1, 2, 3)]
        found = [(packer, plain) for packer in packers]
        if self.context > 1:
            found.insert(1, (AsItComes(room), ContextShards.ADAPTIVE))
            others = [shards for shards in ContextShards if shards is not plain]
            found += [(self.queues(2), one) for one in others]
        return found

    def best(self, num_steps: int) -> tuple[Packing, Packing]:
        """Documents as they come, and two queues with shards as they suit."""
        arrived = self.arrived(num_steps)
        shards = ContextShards.ADAPTIVE if self.context > 1 else ContextShards.BY_SEQUENCE
        came = packed_stream(AsItComes(self.room), arrived)
        first = self.run(came, ContextShards.BY_SEQUENCE)
        last = self.run(packed_stream(self.queues(2), arrived), shards)
        return first.packing(first), last.packing(first)

    def run(self, stream: PackedStream, shards: ContextShards) -> _Run:
        """The steps of a stream, simulated."""
        work_ns = work_by_microbatch(stream, self.work)
        order = self._dealt(stream, work_ns)
        lengths = [
            [step[at] for at in row] for step, row in zip(stream.lengths(), order, strict=True)
        ]
        tokens = np.array([[int(one.sum()) for one in step] for step in lengths], np.int64)
        shape = (len(lengths), self.step.num_replicas, self.step.num_microbatches)
        mixed = MixedWork(self.work, self.room, self.context)
        share, attention = (one.reshape(shape) for one in mixed.factors(lengths, shards))
        simulated = [
            self.step.step_ns(share, attention * factor)
            for factor in (1.0, *self.step.attention_spread)
        ]
        plain_ns = self.work.token_ns * tokens.sum()
        scores_ns = work_ns.sum() - plain_ns
        of_work = [
            float(step_ns.sum() / (plain_ns + factor * scores_ns))
            for step_ns, factor in zip(simulated, (1.0, *self.step.attention_spread), strict=True)
        ]
        parts = np.array_split(np.arange(len(lengths)), _GROUPS)
        step_ns = simulated[0]
        return _Run(
            stream=stream,
            shards=str(shards) if self.context > 1 else "",
            tokens=tokens.sum(axis=1),
            work_ns=work_ns,
            slowest_ns=mixed.slowest_ns(lengths, shards),
            step_ns=step_ns,
            ns_per_work=(of_work[0], of_work[1], of_work[2]),
            groups=np.array([step_ns[part].sum() / work_ns[part].sum() for part in parts]),
        )

    def _dealt(self, stream: PackedStream, work_ns: Float64s) -> Int64s:
        """Which microbatch goes where; int64[steps, microbatches], copy by copy.

        As they come they stay; packers deal the largest first, to and fro over the copies.
        """
        count = self.room.num_microbatches
        if isinstance(stream.packer, AsItComes | AsItComesWhole):
            return np.tile(np.arange(count), (len(work_ns), 1))
        copies = self.step.num_replicas
        rows = np.arange(count).reshape(-1, copies)
        rows[1::2] = rows[1::2, ::-1]
        return np.argsort(-work_ns, axis=1, kind="stable")[:, rows.T.ravel()]


def _windows(study: Callable[[int], _Study], window: int) -> Iterator[WindowGain]:
    """The best packer at this window and at halves of it, the shortest first."""
    tried = [window]
    while tried[-1] >= 2 * _SHORTEST_WINDOW and tried[-1] % 2 == 0 and len(tried) < _MOST_WINDOWS:
        tried.append(tried[-1] // 2)
    for length in reversed(tried):
        one = study(length)
        first, best = one.best(_WINDOW_STEPS)
        yield WindowGain(
            window=length,
            attention_share=one.work.attention_share,
            imbalance=first.imbalance,
            gain=best.gain,
            low=best.gain_low,
            high=best.gain_high,
        )
