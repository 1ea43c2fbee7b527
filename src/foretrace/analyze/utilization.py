"""`Utilization`: the FLOPs that shapes demand beside the chip's peak, by step and by layer.

Counted are matrix products, attention and convolutions among them, once per call of an operator.
*MFU*, the share of the peak, leaves out what is computed again for the backward pass; with it, it
is *HFU*. Where products of several number formats run, each is held against its own peak. A layer's
time lasts from the begin of the first to the end of the last of its operations, in each pass of
each microbatch, waiting included.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from foretrace.analyze.activity import is_compute
from foretrace.analyze.calls import CallKind, calls_of, in_step
from foretrace.analyze.operators import operand_format
from foretrace.analyze.windows import step_time_ns, windows
from foretrace.answer import Plain, percent_text
from foretrace.base import Bools, Float64s, Int64s, begins_run, numbered_rows
from foretrace.graph import NO_LAYER, NO_STEP, NodeKind, Phase, Timeline
from foretrace.machine import Chip
from foretrace.operators import OperatorClass, Work, operator_class, work_of

PRODUCTS = frozenset(
    (OperatorClass.GEMM, OperatorClass.ATTENTION, OperatorClass.CONVOLUTION)
)  # classes of kernels that are matrix products, or hold them
# Products of which so much of the time has no FLOPs: the rest says too little.
_MOST_UNTOLD = 0.05
_MOST_FLOPS = 1 << 50  # of one call, a second of the fastest chips: beyond it no shapes are true


@dataclass(frozen=True)
class StepUse(Plain):
    """Products of one step of the job."""

    step: str  # "" the recording has no steps: all of it
    step_ns: int
    flops: int  # of all recorded ranks, without what is computed again
    mfu: float | None  # None: not known


@dataclass(frozen=True)
class LayerUse(Plain):
    """Products of one layer in one step."""

    step: str
    layer: int
    time_ns: float  # of its passes, mean over ranks that have it
    flops: int  # of all recorded ranks, without what is computed again
    mfu: float | None  # of that time


@dataclass(frozen=True)
class Utilization(Plain):
    """How much of the chip's peak the steps of a run use."""

    chip: str  # "" unknown
    dtype: str  # number format of most FLOPs; "" there are none
    peak_flops_per_ns: float | None  # of one chip in that format
    mfu: float | None
    hfu: float | None  # None too where nothing is computed again
    untold: str  # why there is no MFU; "" there is one
    steps: tuple[StepUse, ...]
    layers: tuple[LayerUse, ...]  # by step, then layer


def utilization(
    timeline: Timeline, *, chip: Chip | None = None, step: str | int | None = None
) -> Utilization:
    """The share of its peak that a job uses, of its steps and layers.

    Args:
        timeline: of a job, what was measured.
        chip: what it ran on.
        step: by name or number; those that the job's step time is the mean of, if left out.

    Raises:
        GraphError: if there is no such step.
    """
    length_ns = _lengths_ns(timeline, step)
    products = _Products.of(timeline, chip)
    is_inside = {number: in_step(timeline.graph, number) for number in length_ns}
    inside = np.logical_or.reduce(list(is_inside.values()))
    untold = products.untold(inside, chip)
    num_ranks = max(len(timeline.graph.ranks), 1)
    whole_ns = 0 if untold else sum(length_ns.values()) * num_ranks
    steps = tuple(
        StepUse(
            step="" if number == NO_STEP else timeline.graph.step_names[number],
            step_ns=step_ns,
            flops=int(products.flops[mine := is_inside[number][products.node]].sum()),
            mfu=_share(products.ideal_ns[mine].sum(), 0 if untold else step_ns * num_ranks),
        )
        for number, step_ns in length_ns.items()
    )
    mine = inside[products.node]
    again_ns = products.again_ns[mine].sum()
    whole_ideal_ns = products.ideal_ns[mine].sum()
    return Utilization(
        chip="" if chip is None else chip.name,
        dtype=products.dtype,
        peak_flops_per_ns=None if chip is None else chip.peak_flops_per_ns(products.dtype),
        mfu=_share(whole_ideal_ns, whole_ns),
        hfu=_share(whole_ideal_ns + again_ns, whole_ns) if again_ns else None,
        untold=untold,
        steps=steps,
        layers=_layers(timeline, products, inside, is_told=not untold),
    )


def _share(ideal_ns: float, whole_ns: float) -> float | None:
    return float(ideal_ns / whole_ns) if whole_ns else None


def _lengths_ns(timeline: Timeline, step: str | int | None) -> dict[int, int]:
    """Steps that count, by position, with their lengths; all of a recording without marks."""
    found = windows(timeline)
    if not len(found) and step is None:
        return {NO_STEP: step_time_ns(timeline)}
    rows = found.longest_run() if step is None else (found.row_of(step),)
    return {int(found.step[row]): int(found.duration_ns[row]) for row in rows}


@dataclass(frozen=True)
class _Products:
    """One row per call of an operator that multiplies, and one per kernel of such operators."""

    node: Int64s  # int64[calls], its first kernel
    flops: Int64s  # int64[calls], 0 of what is computed again
    ideal_ns: Float64s  # float64[calls], at the peak of its format; 0 of what is computed again
    again_ns: Float64s  # float64[calls], the same of that alone
    dtype: str  # of most FLOPs
    formats: tuple[str, ...]  # that no peak is known of
    kernel: Int64s  # int64[kernels], node
    is_told: Bools  # bool[kernels], its FLOPs are known
    took_ns: Int64s  # int64[kernels]
    has_shapes: bool
    shapeless: str  # why it has none
    is_on_device: bool

    @classmethod
    def of(cls, timeline: Timeline, chip: Chip | None) -> _Products:
        """Those of a timeline."""
        graph, calls = timeline.graph, calls_of(timeline, NO_STEP)
        work = _work_of_kinds(calls.kinds)
        is_product = np.array([_is_product(kind) for kind in calls.kinds], np.bool_)
        kernels = np.flatnonzero(is_product[calls.kind])
        is_first = begins_run(calls.call)
        has_work = np.array([one is not None for one in work], np.bool_)
        first = np.flatnonzero(is_first & has_work[calls.kind])
        peaks = [
            None if one is None or chip is None else chip.peak_flops_per_ns(one[1]) for one in work
        ]
        flops_of = np.array([0 if one is None else one[0].flops for one in work], np.int64)
        ideal_of = np.array(
            [one / peak if peak else 0.0 for one, peak in zip(flops_of, peaks, strict=True)]
        )
        node, kind = calls.node[first], calls.kind[first]
        is_again = graph.phase[node] == Phase.RECOMPUTE
        done = np.bincount(kind, minlength=len(work)) * flops_of
        formats = Counter[str]()
        for one, flops in zip(work, done.tolist(), strict=True):
            if one is not None:
                formats[one[1]] += flops
        unknown = {one[1] for one, peak in zip(work, peaks, strict=True) if one and not peak}
        return cls(
            node=node,
            flops=np.where(is_again, 0, flops_of[kind]),
            ideal_ns=np.where(is_again, 0.0, ideal_of[kind]),
            again_ns=np.where(is_again, ideal_of[kind], 0.0),
            dtype=formats.most_common(1)[0][0] if formats else "",
            formats=tuple(sorted(unknown)),
            kernel=calls.node[kernels],
            is_told=has_work[calls.kind[kernels]],
            took_ns=timeline.duration_ns[calls.node[kernels]],
            has_shapes=any(kind.signature for kind in calls.kinds),
            shapeless="kernels of CUDA graphs tell no shapes"
            if any("GraphLaunch" in name for name in graph.names)
            else "the recording has no shapes: record with record_shapes=True",
            is_on_device=bool(graph.is_device.any()),
        )

    def untold(self, inside: Bools, chip: Chip | None) -> str:
        """Why there is no MFU of these nodes; "" if there is one."""
        mine = inside[self.kernel]
        took_ns = int(self.took_ns[mine].sum())
        if not took_ns:
            return "no matrix products were recorded"
        lost = int(self.took_ns[mine & ~self.is_told].sum()) / took_ns
        if not self.has_shapes:
            return self.shapeless
        if lost > _MOST_UNTOLD:
            return (
                f"of {percent_text(100 * lost)} of the time of matrix products the recording "
                "tells no FLOPs: shapes or strides are missing"
            )
        if chip is None:
            what = (
                "peak of its chip is known" if self.is_on_device else "device's work was recorded"
            )
            return f"no {what}: foretrace throughput --chip"
        if self.formats:
            return f"{chip.name} has no known peak in {', '.join(self.formats)}"
        return ""


def _is_product(kind: CallKind) -> bool:
    """Whether a kernel is a matrix product, or serves an operator that is one."""
    own = operator_class(kind.operator) if kind.operator else kind.what.kind
    return own in PRODUCTS


def _work_of_kinds(kinds: tuple[CallKind, ...]) -> list[tuple[Work, str] | None]:
    """What a call of each kind multiplies, and its number format; `None`: not known, or nothing."""
    kernels: dict[tuple[str, str], list[str]] = {}
    for one in kinds:
        kernels.setdefault((one.operator, one.signature), []).append(one.name)
    work_by_operator = {}
    for (operator, signature), names in kernels.items():
        work = work_of(operator, signature) if signature else None
        is_known = work is not None and work.is_product and work.dtype and work.flops <= _MOST_FLOPS
        work_by_operator[operator, signature] = (
            (work, operand_format(work, names)) if work is not None and is_known else None
        )
    return [work_by_operator[one.operator, one.signature] for one in kinds]


def _layers(
    timeline: Timeline, products: _Products, inside: Bools, *, is_told: bool
) -> tuple[LayerUse, ...]:
    """Every layer of every step."""
    graph = timeline.graph
    runs = is_compute(graph) | (graph.kind == NodeKind.FINISH)
    node = np.flatnonzero(inside & runs & (graph.layer != NO_LAYER))
    if not len(node):
        return ()
    layer, step = graph.layer.astype(np.int32), graph.step
    passes = numbered_rows(
        [column[node] for column in (step, graph.rank, layer, graph.phase, graph.microbatch)]
    )
    begin_ns = np.full(int(passes.max()) + 1, np.iinfo(np.int64).max)
    end_ns = np.full(len(begin_ns), np.iinfo(np.int64).min)
    np.minimum.at(begin_ns, passes, timeline.start_ns[node])
    np.maximum.at(end_ns, passes, timeline.end_ns[node])
    one_of = np.zeros(len(begin_ns), np.int64)
    one_of[passes] = node
    width = int(layer.max()) + 1
    key = step[one_of] * np.int64(width) + layer[one_of]
    keys, row = np.unique(key, return_inverse=True)
    took_ns = np.bincount(row.reshape(-1), weights=end_ns - begin_ns)
    ranks = np.unique(np.stack([row.reshape(-1), graph.rank[one_of]]), axis=1)[0]
    num_ranks = np.bincount(ranks, minlength=len(keys))
    of_layer = inside[products.node] & (layer[products.node] != NO_LAYER)
    call_key = step[products.node] * np.int64(width) + layer[products.node]
    at = np.searchsorted(keys, call_key[of_layer])
    flops = np.bincount(at, weights=products.flops[of_layer], minlength=len(keys))
    ideal_ns = np.bincount(at, weights=products.ideal_ns[of_layer], minlength=len(keys))
    return tuple(
        LayerUse(
            step="" if one < 0 else graph.step_names[one // width],
            layer=one % width,
            time_ns=took / count,
            flops=round(of_flops),
            mfu=_share(ideal, took if is_told else 0),
        )
        for one, took, count, of_flops, ideal in zip(
            keys.tolist(),
            took_ns.tolist(),
            num_ranks.tolist(),
            flops.tolist(),
            ideal_ns.tolist(),
            strict=True,
        )
    )
