"""The page's tables: rows of a result, chosen, ordered and named; no new quantities.

Means over steps and ranks, and percent of the measured step, are the only arithmetic here.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import starmap
from statistics import fmean, median
from typing import Literal

import numpy as np

from foretrace.analyze import COMPONENTS, BusyFraction, CollectiveTable
from foretrace.base import Float64s
from foretrace.graph import Ablation, EdgeConstant, ExecutionGraph
from foretrace.report.numbers import count_text
from foretrace.trace import TraceMeta
from foretrace.validate import DurationMix, RankReplay, ReplayReport, ReplaySummary

MAX_STEP_ROWS = 96
NUM_TOP = 8
MAX_BUSY_ROWS = 16
BUSY_POINTS = 400  # about one for every two pixels of the page's width

NULL_MODEL_TEXT = {
    Ablation.DEVICE: "the host's chain alone: nothing waits for the device",
    Ablation.RENDEZVOUS: "recorded collective times; ranks do not wait for each other",
    Ablation.INTER_STREAM: "streams do not wait for each other",
}

_EDGE_TEXT = {
    "HOST_ORDER": "host call to the next",
    "THREAD": "host thread to another",
    "LAUNCH": "launch call to device",
    "QUEUE": "launch queue to blocked launch",
    "WAKE": "device to waiting host",
    "STREAM": "next on the same stream",
    "INTER_STREAM": "stream to stream, from ids",
    "PROGRAMMATIC": "next on the stream, begun early",
    "INTER_STREAM_INFERRED": "stream to stream, inferred",
    "ARRIVAL": "arrival at a collective",
    "TRANSFER": "last arrival to transfer",
    "GHOST": "unrecorded rank to the next",
    "ISSUE": "host call to collective's worker",
}


@dataclass(frozen=True)
class Glance:
    """The page's first lines."""

    measured_ns: float  # mean over steps and ranks
    replayed_ns: float
    unprofiled_ns: float | None  # median over ranks
    profiler_cost_percent: float | None  # of the host's mark, over the step without profiler
    subject: str  # "8 ranks of 8, 1 step, NVIDIA A100-SXM4-80GB"


@dataclass(frozen=True)
class ComponentRow:
    """One component, mean over steps and ranks."""

    name: str
    measured_ns: float
    replayed_ns: float
    measured_percent: float  # of the measured step
    replayed_percent: float  # of the measured step too, so that bars are to one scale
    error_percent: float  # of the measured step, signed


@dataclass(frozen=True)
class StepRow:
    """One step on one rank."""

    step: str
    is_first_of_step: bool
    replay: RankReplay
    error_percent: float
    p95_percent: float  # of kernel starts, of the measured step
    measured_widths: tuple[float, ...]  # percent of the table's longest step, as `COMPONENTS`
    replayed_widths: tuple[float, ...]


@dataclass(frozen=True)
class StepRows:
    """The rows that fit the page."""

    rows: tuple[StepRow, ...]
    num_left_out: int


@dataclass(frozen=True)
class NullRow:
    """The replay, or a null model beside it."""

    short: str  # "this replay", "without device"
    title: str  # what is missing, in words; "" for the replay
    summary: ReplaySummary
    is_replay: bool


@dataclass(frozen=True)
class Share:
    """One origin of durations."""

    name: str
    text: str
    percent: float


@dataclass(frozen=True)
class BusyRow:
    """How busy one rank was, over the whole recording."""

    rank: int
    measured_percent: float
    replayed_percent: float
    measured_points: str  # of an SVG polyline, in a box of `BUSY_POINTS` by 1, upside down
    replayed_points: str


@dataclass(frozen=True)
class ConstantRow:
    """One fitted constant."""

    text: str
    constant: EdgeConstant


@dataclass(frozen=True)
class CollectiveRow:
    """One collective on one rank."""

    name: str
    group: str
    position: int
    num_bytes: int
    rank: int
    last_rank: int
    wait_ns: int
    transfer_ns: int
    is_transfer_estimated: bool


def rank_rows(replay: ReplayReport) -> list[RankReplay]:
    """Every step on every rank."""
    return [rank for step in replay.steps for rank in step.ranks]


def glance(replay: ReplayReport, metas: tuple[TraceMeta, ...]) -> Glance:
    """The means, the step without profiler, and what was replayed."""
    rows = rank_rows(replay)
    unprofiled_ns = (
        float(median(replay.unprofiled_step_ns.values())) if replay.unprofiled_step_ns else None
    )
    host_ns = fmean(row.host_measured_ns for row in rows)
    return Glance(
        measured_ns=fmean(row.measured_ns for row in rows),
        replayed_ns=fmean(row.replayed_ns for row in rows),
        unprofiled_ns=unprofiled_ns,
        profiler_cost_percent=(
            100 * (host_ns - unprofiled_ns) / unprofiled_ns if unprofiled_ns else None
        ),
        subject=_subject(replay, metas),
    )


def _subject(replay: ReplayReport, metas: tuple[TraceMeta, ...]) -> str:
    ranks = {row.rank for row in rank_rows(replay)}
    world_sizes = {meta.world_size for meta in metas if meta.world_size}
    text = count_text(len(ranks), "rank")
    if len(world_sizes) == 1 and world_sizes != {len(ranks)}:
        text += f" of {world_sizes.pop()}"
    devices = sorted({name for meta in metas for name in meta.device_names})
    return ", ".join([text, count_text(len(replay.steps), "step"), *devices[:3]])


def component_rows(replay: ReplayReport) -> list[ComponentRow]:
    """The four components as means over all steps and ranks."""
    rows = rank_rows(replay)
    step_ns = max(fmean(row.measured_ns for row in rows), 1.0)
    found = []
    for name in COMPONENTS:
        measured_ns = fmean(row.measured_parts.as_json()[name] for row in rows)
        replayed_ns = fmean(row.replayed_parts.as_json()[name] for row in rows)
        found.append(
            ComponentRow(
                name=name,
                measured_ns=measured_ns,
                replayed_ns=replayed_ns,
                measured_percent=100 * measured_ns / step_ns,
                replayed_percent=100 * replayed_ns / step_ns,
                error_percent=100 * (replayed_ns - measured_ns) / step_ns,
            )
        )
    return found


def step_rows(replay: ReplayReport) -> StepRows:
    """Every step on every rank, as many as fit."""
    pairs = [(step.name, rank) for step in replay.steps for rank in step.ranks]
    longest_ns = max(max(rank.measured_ns, rank.replayed_ns, 1) for _, rank in pairs)

    def widths(parts: dict[str, int]) -> tuple[float, ...]:
        return tuple(100 * parts[name] / longest_ns for name in COMPONENTS)

    rows = []
    for index, (name, rank) in enumerate(pairs[:MAX_STEP_ROWS]):
        step_ns = max(rank.measured_ns, 1)
        rows.append(
            StepRow(
                step=name,
                is_first_of_step=index == 0 or pairs[index - 1][0] != name,
                replay=rank,
                error_percent=100 * (rank.replayed_ns - rank.measured_ns) / step_ns,
                p95_percent=100 * rank.kernel_start_error.p95_ns / step_ns,
                measured_widths=widths(rank.measured_parts.as_json()),
                replayed_widths=widths(rank.replayed_parts.as_json()),
            )
        )
    return StepRows(tuple(rows), max(0, len(pairs) - MAX_STEP_ROWS))


def null_model_rows(replay: ReplayReport) -> list[NullRow]:
    """The replay first, then each null model."""
    return [
        NullRow("this replay", "", replay.summary, is_replay=True),
        *(
            NullRow(
                f"without {null.ablation.value}",
                NULL_MODEL_TEXT[null.ablation],
                null.summary,
                is_replay=False,
            )
            for null in replay.null_models
        ),
    ]


def duration_shares(mix: DurationMix) -> list[Share]:
    """What the replayed time rests on, largest meaning first."""
    texts = {
        "recorded_host": ("host work", "recorded: calls and the time between"),
        "recorded_device": ("device work", "recorded: kernels, copies and fills"),
        "split": ("transfers", "recorded collectives, waits taken out"),
        "estimated": ("estimated", "ranks not recorded, transfers with them"),
        "constant": ("constants", "launch latency, hand-over, wake-up"),
    }
    shares = mix.as_json()
    return [Share(name, text, 100 * shares[key]) for key, (name, text) in texts.items()]


def constant_rows(graph: ExecutionGraph) -> list[ConstantRow]:
    """The constants that edges of this graph carry, in words."""
    used = set(np.unique(graph.edge_kind).tolist())
    return [
        ConstantRow(_EDGE_TEXT[one.kind.name], one) for one in graph.constants if one.kind in used
    ]


def busy_rows(measured: BusyFraction, replayed: BusyFraction) -> list[BusyRow]:
    """Busy fractions of the first ranks, side by side on one axis of time."""
    num_bins = max(measured.num_bins, replayed.num_bins, 1)
    return [
        BusyRow(
            rank=rank,
            measured_percent=100 * float(measured.of_rank(rank).mean()),
            replayed_percent=100 * float(replayed.of_rank(rank).mean()),
            measured_points=_points(measured.of_rank(rank), num_bins),
            replayed_points=_points(replayed.of_rank(rank), num_bins),
        )
        for rank in measured.ranks[:MAX_BUSY_ROWS]
        if measured.num_bins and replayed.num_bins
    ]


def _points(fraction: Float64s, num_bins: int) -> str:
    """The curve of one rank; bins that are narrower than a point are drawn as their mean."""
    bins_per_point = -(-num_bins // BUSY_POINTS)
    borders = np.append(np.arange(0, len(fraction), bins_per_point), len(fraction))
    means = np.add.reduceat(fraction, borders[:-1]) / np.diff(borders)
    x = (borders[:-1] + borders[1:]) / 2 * BUSY_POINTS / num_bins
    return " ".join(f"{at:.1f},{1 - mean:.3f}" for at, mean in zip(x, means, strict=True))


def top_collectives(
    table: CollectiveTable, *, by: Literal["wait", "transfer"]
) -> list[CollectiveRow]:
    """The collectives with the longest wait or transfer on any rank, each once."""
    length_ns = table.wait_ns if by == "wait" else table.transfer_ns
    order = np.lexsort((np.arange(len(table)), -length_ns))
    _, first = np.unique(table.collective[order], return_index=True)
    rows = order[np.sort(first)[:NUM_TOP]]
    return list(starmap(_collective_row, ((table, row) for row in rows.tolist())))


def _collective_row(table: CollectiveTable, row: int) -> CollectiveRow:
    collective = table.collectives[table.collective[row]]
    return CollectiveRow(
        name=collective.name,
        group=collective.group,
        position=collective.position,
        num_bytes=collective.num_bytes,
        rank=int(table.rank[row]),
        last_rank=int(table.last_rank[row]),
        wait_ns=int(table.wait_ns[row]),
        transfer_ns=int(table.transfer_ns[row]),
        is_transfer_estimated=collective.is_transfer_estimated,
    )
