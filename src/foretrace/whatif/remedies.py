"""`Remedies`: real changes that somebody could make, each tried as a what-if; those that pay.

A new change is one entry of `proposals`: what it is called, its edits, what it takes to do, and
what has to be true. Edits that cannot be made to a recording are left out when they are tried.

Unlike a lever (`analyze.what_helps`), a remedy is something that somebody does: its edits, what it
takes to do, and what has to be true. Each gain is that of the same edits under `whatif`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from foretrace.analyze import Selection, StallKind, evened_ranks, selection_of, windows
from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    bytes_text,
    duration_text,
    percent_text,
)
from foretrace.base import Int64s, ScenarioError
from foretrace.graph import WHOLE, EdgeKind, ExecutionGraph, MemoryEvents, NodeKind
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
from foretrace.whatif.outcome import outcome

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

_LEAST_SHARE = 0.005  # of the step: what gains less is not worth a change
_MAX_TOGETHER = 3
_MAX_TRIED = 5  # beside the best one, in the order of what they gain alone


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
    yield from _of_kernels(graph, has_passes=_has_passes(baseline))
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


def _has_passes(baseline: Baseline) -> bool:
    """Whether work repeats: a loop of steps was marked, or there are several microbatches."""
    marked = baseline.program.graph.step_names != (WHOLE,)
    return marked or baseline.before.plan.num_microbatches > 1


def _of_kernels(graph: ExecutionGraph, *, has_passes: bool) -> Iterator[PossibleChange]:
    """Fewer launches, and less memory traffic between kernels."""
    if graph.has_device and has_passes:  # what is captured once must run again
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


@dataclass(frozen=True)
class Remedy(Plain):
    """One change, or several together, and what the step becomes."""

    name: str
    edits: tuple[Edit, ...]
    effort: str
    needs: str
    step_ns: int
    low_ns: int  # 10th percentile
    high_ns: int  # 90th
    gain_ns: int
    share: float  # of the replayed step

    @property
    def sentence(self) -> str:
        """What it is worth, and what it takes."""
        return (
            f"{subject_of(self.name)} would save {percent_text(100 * self.share)} of the step: "
            f"{duration_text(self.step_ns)} ({duration_text(self.low_ns)} to "
            f"{duration_text(self.high_ns)}); takes {self.effort}, if {self.needs}"
        )


def subject_of(change: str) -> str:
    """A change as what does something: `no host stalls` alone would be read as a denial."""
    return f"having {change}" if change.startswith("no ") else change


@dataclass(frozen=True, repr=False)
class Remedies(Answer):
    """Changes that pay, the most first; gains alone do not add up."""

    note = (
        "Each is tried alone, as `foretrace whatif` makes it; together they gain what the last "
        "rows say, where one more gains 0.5 % more. Intervals are middle 80 %."
    )

    step_ns: int  # replayed
    rows: tuple[Remedy, ...]
    together: tuple[Remedy, ...]  # two, then three, each of which gains beyond the others
    num_tried: int

    @property
    def headline(self) -> str:
        """What pays most."""
        if not self.rows:
            return f"none of {self.num_tried} changes that were tried shortens the step by 0.5 %"
        return self.rows[0].sentence

    @property
    def is_empty(self) -> bool:
        """Whether nothing pays."""
        return not self.rows

    def parts(self) -> tuple[Told, ...]:
        """Those that pay, then the best together."""
        columns = (
            Column("name", "change", Unit.TEXT),
            Column("share", "step", Unit.SIGNED_SHARE, lambda one: -one.share),
            Column("gain_ns", "saves ms"),
            Column("step_ns"),
            Column("low_ns", "from", shown=Shown.WIDE),
            Column("high_ns", "to", shown=Shown.WIDE),
            Column("effort", unit=Unit.WORD),
            Column("needs", "if", Unit.TEXT, shown=Shown.WIDE),
        )
        return (
            Table.of("rows", self.rows, *columns),
            Table.of("together", self.together, *columns, title="together"),
            Sentences.of("what it takes", (one.sentence for one in self.rows)),
        )


def tried_remedies(baseline: Baseline, *, memory_bytes: int | None = None) -> Remedies:
    """Every change of the catalogue that can be made to a recording, tried; of its ways the best.

    Args:
        baseline: of a recording.
        memory_bytes: that each of its devices has; none: not known.
    """
    best: dict[str, Remedy] = {}
    num_tried = 0
    for change in proposals(baseline, memory_bytes=memory_bytes):
        found = _tried(baseline, change)
        if found is None:
            continue
        num_tried += 1
        known = best.get(change.of)
        if known is None or found.gain_ns > known.gain_ns:
            best[change.of] = found
    rows = [one for one in best.values() if one.share >= _LEAST_SHARE]
    rows.sort(key=lambda one: (-one.gain_ns, one.name))
    together = _together(baseline, rows) if rows else ()
    return Remedies(baseline.replayed_step_ns, tuple(rows), together, num_tried)


def _together(baseline: Baseline, rows: Sequence[Remedy]) -> tuple[Remedy, ...]:
    """The best change with one more, then with two, each of which gains beyond those before it."""
    together, among = [rows[0]], [rows[0]]
    for row in rows[1 : 1 + _MAX_TRIED]:
        alone = [*among, row]
        found = _tried(
            baseline,
            PossibleChange(
                name=" + ".join(one.name for one in alone),
                edits=tuple(edit for one in alone for edit in one.edits),
                effort=max((one.effort for one in alone), key=EFFORTS.index),
                needs="; ".join(one.needs for one in alone),
            ),
        )
        if found is not None and found.share >= together[-1].share + _LEAST_SHARE:
            together.append(found)
            among = alone
        if len(among) == _MAX_TOGETHER:
            break
    return tuple(together[1:])


def _tried(baseline: Baseline, change: PossibleChange) -> Remedy | None:
    """A change's what-if; None where this recording cannot tell what it gains."""
    scenario = baseline.before
    with suppress(ScenarioError):
        for edit in change.edits:
            scenario = edit.applied(scenario)
        last = outcome(baseline, scenario)
        gain_ns = baseline.replayed_step_ns - last.step_ns
        if last.at_once_ns and 2 * last.at_once_ns > gain_ns:
            return None  # most of it is gained only if the device has room that was not seen
        return Remedy(
            name=change.name,
            edits=change.edits,
            effort=change.effort,
            needs=change.needs,
            step_ns=last.step_ns,
            low_ns=last.low_ns,
            high_ns=last.high_ns,
            gain_ns=gain_ns,
            share=gain_ns / baseline.replayed_step_ns,
        )
    return None
