"""The catalogue of `PossibleChange`s that somebody could make to a recorded job.

A new change is one entry of `proposals`: what it is called, its edits, what it takes to do, and
what has to be true. Edits that cannot be made to a recording are left out when they are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import Selection, StallKind, evened_ranks, selection_of, windows
from foretrace.answer import bytes_text
from foretrace.base import Int64s
from foretrace.graph import EdgeKind, ExecutionGraph, MemoryEvents, NodeKind
from foretrace.whatif.baseline import Baseline
from foretrace.whatif.edits import (
    Attention,
    Batch,
    CudaGraphs,
    DataLoading,
    Fuse,
    Lasts,
    NoStalls,
    PlanKeys,
    RemoveSync,
    Speed,
)
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.edits.fused_traffic import fused_share

EFFORTS = ("hours", "days", "weeks")
_BUCKETS = (4, 1 / 4)  # times the recorded size: fewer operations, or begun sooner
_TIMES_LARGER = (2, 4, 8)  # microbatches
_KEPT_FREE = 0.05  # of a device's memory: what allocators cannot use
_STALLS = (
    (
        "no host stalls",
        (StallKind.UNTOLD, StallKind.SLOWED, StallKind.LOCK),
        "threads get cores of their own, and nothing else runs on the host",
    ),
    (
        "garbage collected between steps",
        (StallKind.GARBAGE_COLLECTION,),
        "objects can wait: `gc.disable()` and a collection now and then, or `gc.freeze()`",
    ),
    (
        "memory allocated ahead",
        (StallKind.ALLOCATOR,),
        "the allocator keeps what it has: no `empty_cache()` in steps, `expandable_segments`",
    ),
)
_FROM_PAGEABLE = "Pageable -> Device"  # of names of copies, as CUPTI and roctracer spell them


@dataclass(frozen=True)
class PossibleChange:
    """One thing that somebody could do."""

    name: str
    edits: tuple[Edit, ...]
    effort: str  # one of EFFORTS, of one who knows the code
    needs: str  # what has to be true
    kind: str = ""  # of several ways of one kind the best counts; "": its name

    @property
    def of(self) -> str:
        """What it is a way of."""
        return self.kind or self.name


def proposals(baseline: Baseline, *, memory_bytes: int | None = None) -> Iterator[PossibleChange]:
    """The changes that this recording could be told of; some may turn out not to apply.

    Args:
        baseline: of a recording.
        memory_bytes: that each device has; none: not known.
    """
    graph = baseline.program.graph
    yield from _of_hosts(graph)
    yield from _of_kernels(graph)
    yield from _of_gradients(baseline)
    yield from _larger_microbatches(baseline, memory_bytes)
    yield from _equal_ranks(baseline)


def _of_hosts(graph: ExecutionGraph) -> Iterator[PossibleChange]:
    """What keeps hosts from launching."""
    for name, kinds, needs in _STALLS:
        told = "|".join(kind.words for kind in kinds)
        yield PossibleChange(name, (NoStalls(told),), "hours", needs)
    yield PossibleChange(
        "data loaded ahead",
        (DataLoading(by_workers=True),),
        "hours",
        "workers have the next batch ready before its step, on cores of their own",
    )
    waits = graph.nodes_of(NodeKind.SYNC)
    names = sorted({graph.names[name] for name in np.unique(graph.name[waits]).tolist()})
    if names:
        yield PossibleChange(
            "no blocking synchronisation",
            tuple(RemoveSync(name) for name in names),
            "hours",
            "no step needs a value of the device on the host (`.item()`, copies to the host)",
        )
    yield from _pinned(graph)


def _pinned(graph: ExecutionGraph) -> Iterator[PossibleChange]:
    """Copies to the device that hold the host while it stages them."""
    call, copied = graph.edges_of(EdgeKind.LAUNCH)
    is_pageable = np.array([_FROM_PAGEABLE in name for name in graph.names], np.bool_)
    is_staged = is_pageable[graph.name[copied]]
    calls = sorted({graph.names[name] for name in np.unique(graph.name[call[is_staged]]).tolist()})
    others = graph.measured_ns[call[~is_staged]]
    if not calls or not len(others):
        return
    yield PossibleChange(
        "pinned copies",
        (Lasts(int(np.median(others)), Selection(calls="|".join(calls))),),
        "hours",
        "batches stand in pinned memory (`pin_memory=True`) and are copied with "
        "`non_blocking=True`; the copies themselves are taken to be no faster",
    )


def _of_kernels(graph: ExecutionGraph) -> Iterator[PossibleChange]:
    """Fewer launches, and less memory traffic between kernels."""
    if graph.has_device:
        yield PossibleChange(
            "CUDA graphs",
            (CudaGraphs(),),
            "days",
            "shapes stay the same and nothing inside waits for the device",
        )
    yield PossibleChange(
        "attention in one kernel",
        (Attention(flash=True),),
        "hours",
        "a fused kernel takes these masks (`scaled_dot_product_attention`)",
    )
    for name, work, effort, needs in (
        ("fused elementwise kernels", "elementwise", "days", "`torch.compile` can trace the model"),
        (
            "fused optimizer",
            "phase:optimizer",
            "hours",
            "the optimizer has a fused form for these parameters",
        ),
    ):
        of = selection_of(work)
        share = round(fused_share(graph, of), 2)
        known = (
            "shapes are not recorded, so memory traffic that fusing saves is not counted"
            if share == 1
            else "it moves no more than shapes say it has to"
        )
        yield PossibleChange(name, (Fuse(of, share),), effort, f"{needs}; {known}")


def _of_gradients(baseline: Baseline) -> Iterator[PossibleChange]:
    """When gradients are reduced, and how many at once."""
    plan = baseline.before.plan
    if plan.data == 1:
        return
    if not plan.overlap.gradients:
        yield PossibleChange(
            "gradients reduced beside the backward pass",
            (PlanKeys({"overlap.gradients": True}),),
            "hours",
            "gradients are whole bucket by bucket, and nothing reads them before the optimizer",
        )
    if plan.bucket_bytes is None:
        return
    for factor in _BUCKETS:
        size = round(plan.bucket_bytes * factor)
        yield PossibleChange(
            f"gradients in buckets of {bytes_text(size)}",
            (PlanKeys({"sharding.bucket_bytes": size}),),
            "hours",
            "the software lets buckets be of that size (`bucket_cap_mb`, `bucket_size`)",
            kind="buckets",
        )


def _larger_microbatches(baseline: Baseline, memory_bytes: int | None) -> Iterator[PossibleChange]:
    """Fewer and larger microbatches, where it is recorded that memory has room for them."""
    plan = baseline.before.plan
    recording = baseline.program.recording
    levels = [
        _level_bytes(one) for one in recording.memory if one.is_device == recording.graph.has_device
    ]
    if not levels:
        return
    more = max(int(level.max() - level.min()) for level in levels)
    peak = max(int(level.max()) for level in levels)
    room = None if memory_bytes is None else round(memory_bytes * (1 - _KEPT_FREE)) - peak
    for times in _TIMES_LARGER:
        if plan.num_microbatches % times or (room is not None and (times - 1) * more > room):
            continue
        micro, count = plan.micro_batch * times, plan.num_microbatches // times
        told = "" if room is not None else f"; there is room for {bytes_text((times - 1) * more)}"
        yield PossibleChange(
            f"{count} {'microbatch' if count == 1 else 'microbatches'} of {micro}",
            (Batch(micro_batch=micro, num_microbatches=count),),
            "hours",
            f"memory grows as activations do, by {times} times what one microbatch keeps{told}",
            kind="microbatches",
        )


def _level_bytes(events: MemoryEvents) -> Int64s:
    """Bytes in use after each event; from any beginning, where totals were not recorded."""
    known = (events.allocated_bytes >= 0).all()
    return events.allocated_bytes if known else np.cumsum(events.change_bytes)


def _equal_ranks(baseline: Baseline) -> Iterator[PossibleChange]:
    """Ranks as fast as the fastest that does the same."""
    timeline, steps = baseline.replayed, windows(baseline.replayed)
    evened = evened_ranks(timeline, np.isin(timeline.graph.step, steps.step))
    if evened is None:
        return
    yield PossibleChange(
        "ranks as fast as the fastest",
        tuple(
            Speed(1 / factor, selection_of(f"compute ranks:{rank}"))
            for rank, factor in zip(evened.ranks, evened.factor.tolist(), strict=True)
            if factor < 1
        ),
        "weeks",
        "slow chips can be replaced, or work moved from slow ranks to fast ones",
    )
