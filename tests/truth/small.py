"""Small jobs from a list of instructions per rank: chains, forks and joins, rendezvous.

The same host, streams, engine and writer as the training job, so every truth is there too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.truth.config import JobConfig
from tests.truth.host import AUTOGRAD, MAIN
from tests.truth.job import Job, make_job
from tests.truth.names import TP_STREAM
from tests.truth.program import TrainingRank

COMPUTE_STREAM = 7


@dataclass(frozen=True)
class Launch:
    """A kernel on a stream."""

    duration_ns: int
    stream: int = COMPUTE_STREAM


@dataclass(frozen=True)
class Depend:
    """An event recorded on one stream and waited for by another."""

    before: int
    after: int


@dataclass(frozen=True)
class Synchronize:
    """The host waits for a stream; None for the device."""

    stream: int | None = None


@dataclass(frozen=True)
class Think:
    """Host time."""

    duration_ns: int


@dataclass(frozen=True)
class SwitchThread:
    """The running host thread hands over to the other."""


@dataclass(frozen=True)
class Reduce:
    """An all-reduce over all ranks, after what the compute stream has; awaited at once if told."""

    num_bytes: int = 0
    is_awaited: bool = True


@dataclass(frozen=True)
class Exchange:
    """One kernel that sends to the next rank and receives from the previous, over all ranks."""

    num_bytes: int = 0


@dataclass(frozen=True)
class LaunchGraph:
    """One launch call with many kernels."""

    durations_ns: tuple[int, ...]


@dataclass(frozen=True)
class Hold:
    """The host is held by a runtime call (`cudaMalloc`), or under an annotation."""

    name: str
    duration_ns: int
    is_annotation: bool = False


Instruction = (
    Launch | Depend | Synchronize | Think | SwitchThread | Reduce | Exchange | LaunchGraph | Hold
)


def _launch(rank: TrainingRank, given: Launch) -> None:
    with rank.host.span("aten::mm"):
        rank.host.launch(
            "ampere_sgemm_128x64_nn",
            family="gemm",
            base_ns=given.duration_ns,
            stream=rank.host.stream(given.stream),
        )


def _depend(rank: TrainingRank, given: Depend) -> None:
    event = rank.host.record(rank.host.stream(given.before))
    rank.host.wait(rank.host.stream(given.after), event)
    rank.host.release(event)


def _synchronize(rank: TrainingRank, given: Synchronize) -> None:
    rank.host.synchronize(None if given.stream is None else rank.host.stream(given.stream))


def _think(rank: TrainingRank, given: Think) -> None:
    rank.host.segment(given.duration_ns)


def _hold(rank: TrainingRank, given: Hold) -> None:
    if not given.is_annotation:
        rank.host.segment(rank.host.costs.short_segment_ns)
        rank.host.runtime_call(given.name, given.duration_ns)
        return
    rank.host.segment(rank.host.costs.short_segment_ns)
    with rank.host.span(given.name, category="user_annotation"):
        rank.host.segment(rank.host.costs.short_segment_ns)
        rank.host.segment(given.duration_ns)
    rank.host.segment(rank.host.costs.short_segment_ns)


def _switch(rank: TrainingRank, given: SwitchThread) -> None:
    del given
    rank.host.hand_over(AUTOGRAD if rank.host.thread == MAIN else MAIN)


def _communicate(rank: TrainingRank, name: str, num_bytes: int, *, is_awaited: bool) -> None:
    done = rank.communicate(
        name,
        rank.groups.tp,
        stream=TP_STREAM,
        num_bytes=num_bytes,
        link=rank.config.tp_link,
        kernel="ncclDevKernel_SendRecv" if name == "exchange" else "ncclDevKernel_AllReduce",
    )
    if is_awaited:
        rank.finish(done)
    else:
        rank.host.release(done)


def _reduce(rank: TrainingRank, given: Reduce) -> None:
    _communicate(rank, "allreduce", given.num_bytes, is_awaited=given.is_awaited)


def _exchange(rank: TrainingRank, given: Exchange) -> None:
    _communicate(rank, "exchange", given.num_bytes, is_awaited=True)


def _launch_graph(rank: TrainingRank, given: LaunchGraph) -> None:
    name = "ampere_sgemm_128x64_nn"
    rank.host.launch_graph(tuple((name, "gemm", each) for each in given.durations_ns))


_ACTIONS: dict[type, Callable[..., None]] = {
    Launch: _launch,
    Depend: _depend,
    Synchronize: _synchronize,
    Think: _think,
    SwitchThread: _switch,
    Reduce: _reduce,
    Exchange: _exchange,
    LaunchGraph: _launch_graph,
    Hold: _hold,
}


def small_job(programs: Sequence[Sequence[Instruction]], config: JobConfig) -> Job:
    """A job in which rank r runs `programs[r]` in each step.

    `config.tp` must be the number of programs and dp and pp 1. Every program must hold the same
    communications in the same order, or the job deadlocks, which raises ValueError.
    """
    if config.tp != len(programs) or config.num_ranks != config.tp:
        raise ValueError(f"{len(programs)} programs need tp={len(programs)}, dp=1, pp=1")

    def run(rank: TrainingRank) -> None:
        def one_step() -> None:
            num_met = 0  # the same number on every rank names the same communication
            for instruction in programs[rank.place.rank]:
                rank.now = (num_met,)
                num_met += isinstance(instruction, Reduce | Exchange)
                _ACTIONS[type(instruction)](rank, instruction)
            if rank.host.thread != MAIN:
                rank.host.hand_over(MAIN)

        rank.in_steps(one_step)

    return make_job(config, run)
