"""Rows of a replay's comparison, chosen, ordered and named; no new quantities.

Means over steps and ranks, and percent of the measured step, are the only arithmetic here.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from foretrace.analyze import COMPONENTS
from foretrace.answer import count_text
from foretrace.graph import Ablation, EdgeConstant, ExecutionGraph
from foretrace.trace import TraceMeta
from foretrace.validate import DurationMix, RankReplay, ReplayReport, ReplaySummary

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
    "STATED": "as a file of dependencies states",
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
class ConstantRow:
    """One fitted constant."""

    text: str
    constant: EdgeConstant


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
