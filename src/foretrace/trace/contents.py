"""What a trace contains, what it lacks for a replay, and how to record a better one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foretrace.answer import Plain
from foretrace.base import Bools, CollectiveKind, Int64s, collective_kind_of
from foretrace.trace import formats
from foretrace.trace.better_recordings import PYTORCH, HowToRecord
from foretrace.trace.chakra import (
    KINDS_OF_COMM_TYPE,
    NO_TEXT,
    ChakraTrace,
    NodeType,
    kind_name,
    unknown_kinds,
)
from foretrace.trace.columns import NO_ID, NO_STRING, Category, LaneKind, Trace
from foretrace.trace.discover import discover
from foretrace.trace.ingest import read_files
from foretrace.trace.merged import ranks_within
from foretrace.trace.ranks import rank_in_name
from foretrace.trace.runtime import RuntimeRole, is_communication, runtime_role
from foretrace.trace.steps import StepMark, step_marks

_DEVICE_WORK = (Category.KERNEL, Category.MEMCPY, Category.MEMSET)
_LEAST_LOST = 0.01  # of device operations without a launch, from which it is told
_BACKWARD_NODE = re.compile(r"(torch::autograd::|.*Backward\d*$|.*Backward\d*_jvp$)")
_GRAPH_LAUNCH = "GraphLaunch"  # cudaGraphLaunch, hipGraphLaunch, cuGraphLaunch


@dataclass(frozen=True)
class Contents(Plain):
    """One file, counted."""

    path: str
    rank: int | None  # as the file or its name states
    world_size: int | None
    backend: str | None
    file_bytes: int
    json_bytes: int
    device_names: tuple[str, ...]
    timestamp_unit_ns: int
    num_events: int  # records in the file
    num_kept: int  # of these, kept as events, memory records and ends of arrows
    events_by_category: dict[str, int]  # kept as events; "kernel" -> 690
    dropped: dict[str, int]  # reason -> records
    steps: tuple[StepMark, ...]
    num_threads: int
    num_streams: int
    num_graph_launches: int  # calls that launch a CUDA graph
    num_graph_operations: int  # device operations that these carry
    communication: dict[str, int]  # "allreduce" -> operations
    has_device_work: bool
    has_launches: bool
    has_sync_events: bool
    has_event_records: bool
    has_stream_waits: bool
    has_collective_metadata: bool
    has_shapes: bool
    has_stacks: bool
    has_memory: bool
    has_backward: bool
    has_forward_backward_arrows: bool
    is_truncated: bool
    notes: tuple[str, ...]
    lacks: tuple[str, ...]  # what a replay must do without, a sentence each
    advice: tuple[str, ...]  # how to record a better one, a sentence each


def inspect(
    paths: Iterable[str | Path] | str | Path,
    *,
    cache_folder: Path | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[Contents, ...]:
    """What each file contains, in the order named; the files need not be of one run.

    Raises:
        TraceError: if a file cannot be read.
    """
    found = discover(paths, (*formats.PROFILES, *formats.GRAPHS))
    if found.format in formats.GRAPHS:
        return tuple(_contents_of_graph(formats.read_graph(path)) for path in found.paths)
    read = read_files(found.paths, cache_folder=cache_folder, workers=workers, progress=progress)
    traces = [part for trace in read for part in ranks_within(trace)]
    ranks = {_rank(trace) for trace in traces} - {None}
    return tuple(
        contents_of(trace, num_ranks=len(ranks), how_to_record=found.format.how_to_record)
        for trace in traces
    )


def _contents_of_graph(trace: ChakraTrace) -> Contents:
    """What a file contains that states who waits for whom."""
    meta, nodes = trace.meta, trace.nodes
    counts = np.bincount(nodes.kind, minlength=len(NodeType))
    by_kind = {
        kind_name(kind).lower(): int(counts[kind]) for kind in np.flatnonzero(counts).tolist()
    }
    strange = unknown_kinds(nodes)
    is_collective = nodes.kind == NodeType.COMM_COLL
    kinds = Counter(
        KINDS_OF_COMM_TYPE.get(one, CollectiveKind.UNKNOWN).value
        for one in nodes.numbers("comm_type", -1)[is_collective].tolist()
    )
    is_device = nodes.numbers("is_cpu_op") == 0
    has_times = bool(nodes.duration_micros.any() or nodes.has("duration_ns").any())
    return Contents(
        path=str(meta.path),
        rank=meta.rank,
        world_size=None,
        backend=None,
        file_bytes=meta.file_bytes,
        json_bytes=meta.json_bytes,
        device_names=(),
        timestamp_unit_ns=meta.timestamp_unit_ns,
        num_events=len(nodes),
        num_kept=len(nodes),
        events_by_category=by_kind,
        dropped={},
        steps=(),
        num_threads=len(np.unique(nodes.numbers("tid")[~is_device])),
        num_streams=len(np.unique(nodes.numbers("stream", -1)[is_device])),
        num_graph_launches=0,
        num_graph_operations=0,
        communication=dict(sorted(kinds.items())),
        has_device_work=bool(is_device.any()),
        has_launches=False,
        has_sync_events=False,
        has_event_records=False,
        has_stream_waits=False,
        has_collective_metadata=bool(is_collective.any()),
        has_shapes=bool((nodes.values[:, 1] != NO_TEXT).any()),
        has_stacks=False,
        has_memory=False,
        has_backward=False,
        has_forward_backward_arrows=False,
        is_truncated=meta.is_truncated,
        notes=(*meta.notes, *strange),
        lacks=() if has_times else ("durations: no node states how long it takes",),
        advice=() if has_times else ("link it with the profiler's trace of the same run",),
    )


def _rank(trace: Trace) -> int | None:
    rank = trace.meta.rank
    return rank_in_name(trace.meta.path) if rank is None else rank


def contents_of(
    trace: Trace, *, num_ranks: int = 1, how_to_record: HowToRecord = PYTORCH
) -> Contents:
    """What a trace contains.

    Args:
        trace: the whole trace.
        num_ranks: ranks recorded beside and with it, to tell what is missing.
        how_to_record: of the profiler that wrote it, for what to do about that.
    """
    meta = trace.meta
    counts = np.bincount(trace.category, minlength=len(Category))
    roles = np.bincount(
        runtime_role(trace.strings)[trace.name[trace.category == Category.RUNTIME]],
        minlength=len(RuntimeRole),
    )
    is_communicating = _is_communicating(trace)
    has = {
        "device_work": bool(counts[list(_DEVICE_WORK)].any()),
        "launches": bool(roles[RuntimeRole.LAUNCH] or roles[RuntimeRole.BLOCKING_COPY]),
        "sync_events": bool(counts[Category.SYNC]),
        "event_records": bool(roles[RuntimeRole.EVENT_RECORD]),
        "stream_waits": bool(roles[RuntimeRole.STREAM_WAIT]),
        "collective_metadata": len(trace.collectives.event) > 0,
        "shapes": bool(np.any(trace.signature[trace.category == Category.OPERATOR] != NO_STRING)),
        "stacks": bool(counts[Category.PYTHON]),
        "memory": len(trace.memory.at_ns) > 0,
        "backward": _has_backward(trace),
        "forward_backward_arrows": len(trace.flows.from_ns) > 0,
    }
    communication = Counter(
        collective_kind_of(trace.strings[name]).value
        for name in trace.name[is_communicating].tolist()
    )
    marks = step_marks(trace)
    of_graphs = _kernels_of_graphs(trace)
    held = _lacks(
        trace, has, marks, told=how_to_record, num_communications=communication.total(),
        num_ranks=num_ranks,
    )  # fmt: skip
    advice = [*(todo for _, todo in held), how_to_record.whole] if held else []
    return Contents(
        path=str(meta.path),
        rank=_rank(trace),
        world_size=meta.world_size,
        backend=meta.backend,
        file_bytes=meta.file_bytes,
        json_bytes=meta.json_bytes,
        device_names=meta.device_names,
        timestamp_unit_ns=meta.timestamp_unit_ns,
        num_events=meta.num_events,
        num_kept=trace.num_accounted - sum(meta.dropped.values()),
        events_by_category={
            category.name.lower(): int(counts[category])
            for category in Category
            if counts[category]
        },
        dropped=meta.dropped,
        steps=marks,
        num_threads=int(np.count_nonzero(trace.lanes.kind == LaneKind.HOST)),
        num_streams=int(np.count_nonzero(trace.lanes.kind == LaneKind.DEVICE)),
        communication=dict(sorted(communication.items())),
        **{f"has_{what}": is_there for what, is_there in has.items()},
        is_truncated=meta.is_truncated,
        num_graph_launches=len(of_graphs),
        num_graph_operations=int(of_graphs.sum()),
        notes=(*meta.notes, *_on_graphs(of_graphs)),
        lacks=tuple(lack for lack, _ in held),
        advice=tuple(dict.fromkeys(filter(None, advice))),
    )


def _is_communicating(trace: Trace) -> Bools:
    """bool[events]: communication kernels; without a device, the annotations of CPU workers."""
    is_named = np.array([is_communication(text) for text in trace.strings], np.bool_)
    is_kernel = trace.category == Category.KERNEL
    where = is_kernel if is_kernel.any() else trace.category == Category.ANNOTATION
    if not len(is_named):
        return np.zeros(len(trace.name), np.bool_)
    is_both: Bools = where & is_named[trace.name]
    return is_both


def is_autograd_node(name: str) -> bool:
    """Whether an operator is a node of the autograd graph: "AddmmBackward0", "MulBackward".

    Older profilers record these alone, without the engine's `autograd::engine::evaluate_function`.
    """
    is_named = _BACKWARD_NODE.match(name) is not None
    return is_named and ("::" not in name or name.startswith("torch::autograd::"))


def _has_backward(trace: Trace) -> bool:
    """Whether the autograd engine ran."""
    names = np.unique(trace.name[trace.category == Category.OPERATOR]).tolist()
    return len(trace.flows.from_ns) > 0 or any(
        text.startswith("autograd::engine::evaluate_function") or is_autograd_node(text)
        for text in (trace.strings[name] for name in names)
    )


def _unlaunched(trace: Trace) -> tuple[int, int]:
    """Device operations that no recorded call launched, and all."""
    on_device = np.isin(trace.category, _DEVICE_WORK)
    called = trace.correlation[trace.category == Category.RUNTIME]
    joined = np.isin(trace.correlation[on_device], called[called != NO_ID])
    return int((~joined).sum()), int(on_device.sum())


def _kernels_of_graphs(trace: Trace) -> Int64s:
    """How many operations each launch of a CUDA graph carries; int64[launches]."""
    is_launch = np.array([_GRAPH_LAUNCH in text for text in trace.strings], np.bool_)
    called = trace.category == Category.RUNTIME
    if not is_launch.any() or not called.any():
        return np.zeros(0, np.int64)
    ids = trace.correlation[called][is_launch[trace.name[called]]]
    ids = np.unique(ids[ids != NO_ID])
    carried = trace.correlation[np.isin(trace.category, _DEVICE_WORK)]
    at = np.minimum(np.searchsorted(ids, carried), max(len(ids) - 1, 0))
    is_own = ids[at] == carried if len(ids) else np.zeros(len(carried), np.bool_)
    return np.bincount(at[is_own], minlength=len(ids))


def _on_graphs(of_graphs: Int64s) -> tuple[str, ...]:
    """What is said of CUDA graphs, if there are any."""
    if not len(of_graphs):
        return ()
    none = int((of_graphs == 0).sum())
    empty = f"; {none:,} carry none that was recorded" if none else ""
    text = (
        f"{len(of_graphs):,} launches of CUDA graphs carry {int(of_graphs.sum()):,} device "
        f"operations, {int(np.median(of_graphs)):,} in the median{empty}; what of them was not "
        "recorded is kept as work of the graph"
    )
    return (text,)


def _lacks(
    trace: Trace,
    has: dict[str, bool],
    marks: tuple[StepMark, ...],
    *,
    told: HowToRecord,
    num_communications: int,
    num_ranks: int,
) -> list[tuple[str, str]]:
    """What a replay must do without, and what to do about it; every pair whose test holds."""
    meta = trace.meta
    is_host_known = bool(np.any(trace.category == Category.OPERATOR))
    is_joined = bool(np.any(trace.correlation[trace.category == Category.RUNTIME] != NO_ID))
    wants_edges = has["stream_waits"] and not has["sync_events"]
    num_lost, num_device = _unlaunched(trace)
    size = meta.world_size
    pairs = (
        (trace.num_events == 0, "no events that can be replayed", told.whole),
        (meta.is_truncated, "the end: the file stops in the middle", told.uncut),
        (
            has["launches"] and not has["device_work"],
            "device operations: there are launches, but nothing that they launched",
            told.device,
        ),
        (
            has["device_work"] and not has["launches"],
            "launches: what the host did, and when, is unknown",
            told.host,
        ),
        (
            has["device_work"] and has["launches"] and not is_joined,
            "correlation ids: which call launched which operation is unknown",
            told.whole,
        ),
        (
            has["launches"] and is_joined and num_lost > _LEAST_LOST * num_device,
            (
                f"launches of {num_lost:,} of {num_device:,} device operations: those start when "
                "they did, whatever changes"
            ),
            told.whole,
        ),
        (
            trace.num_events > 0 and not is_host_known,
            "operators: kernels cannot be told by what they compute",
            told.operators,
        ),
        (
            not marks,
            "step marks: the whole trace counts as one step",
            told.steps,
        ),
        (
            wants_edges,
            "sync events: what a stream waited for is inferred from order and times",
            told.syncs,
        ),
        (
            num_communications > 0 and not has["collective_metadata"],
            f"collective metadata: {num_communications:,} communications are matched by order",
            told.members,
        ),
        (
            (is_host_known or not trace.num_events) and not has["backward"],
            "a backward pass: it shows inference or a forward pass only",
            told.backward,
        ),
        (
            size is not None and num_ranks < size,
            f"ranks: {num_ranks} of {size} are here, the others' waits are estimated",
            told.ranks,
        ),
        (
            size is None and num_communications > 0,
            "the number of ranks that took part",
            told.world,
        ),
        (
            is_host_known and not has["shapes"],
            "shapes: operators of different sizes look the same",
            told.shapes,
        ),
        (
            trace.num_events > 0 and meta.timestamp_unit_ns > 1,
            "nanoseconds: timestamps are whole microseconds",
            told.nanoseconds,
        ),
    )
    return [(lack, advice) for is_lacking, lack, advice in pairs if is_lacking]
