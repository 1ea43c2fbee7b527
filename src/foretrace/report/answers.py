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
from foretrace.answer import Answer
from foretrace.graph import BlocksWithEvidence
from foretrace.whatif import Remedies, Throughput


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
    refusals: tuple[str, ...] = ()  # why an answer is missing, a sentence each
