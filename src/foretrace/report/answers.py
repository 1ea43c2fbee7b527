"""`Answers`: what the analyses say about a job; an answer that is missing is `None`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from foretrace.analyze import (
    CriticalPath,
    Diagnosis,
    Hang,
    IdleCauses,
    MemoryUse,
    Roofline,
    WhatHelps,
)
from foretrace.answer import Answer, Stretch
from foretrace.graph import BlocksWithEvidence
from foretrace.numerics import WatchedRun
from foretrace.whatif import Remedies, Throughput


@dataclass(frozen=True)
class OptimizerSpan:
    """A recorded step in which an optimizer was looked at, up to then."""

    text: str
    where: Stretch
    is_alarm: bool


@dataclass(frozen=True)
class OptimizerSeen:
    """What an optimizer's monitor saw while a job ran."""

    run: WatchedRun  # of the rank with most alarms
    stretches: tuple[Stretch | None, ...]  # of its alarms, where they were recorded
    spans: tuple[OptimizerSpan, ...]  # of all ranks
    note: str = ""


@dataclass(frozen=True)
class Answers:
    """What the page shows beside the replay itself; made by `foretrace.api`."""

    path_by_title: Mapping[str, CriticalPath] = field(default_factory=dict)  # of one step
    helps: WhatHelps | None = None
    hang: Hang | None = None
    lost: Diagnosis | None = None  # what is wrong; measured
    remedies: Remedies | None = None  # real changes, tried
    throughput: Throughput | None = None  # what a step gets done; measured
    idle_by_title: Mapping[str, IdleCauses] = field(default_factory=dict)
    # Answers to questions that have a place, by their names; each of the side it is asked of.
    by_question: Mapping[str, Answer] = field(default_factory=dict)
    roofline: Roofline | None = None  # measured, as all that follow
    memory: MemoryUse | None = None
    blocks: BlocksWithEvidence | None = None
    optimizer: OptimizerSeen | None = None
    refusals: tuple[str, ...] = ()  # why an answer is missing, a sentence each
