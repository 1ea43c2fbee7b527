"""`Answers`: what the analyses say about a job; an answer that is missing is `None`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from foretrace.analyze import (
    AttentionProfile,
    Cause,
    CriticalPath,
    Hang,
    IdleCauses,
    MemoryUse,
    OperatorTable,
    Roofline,
    Sensitivity,
    Stragglers,
    WhatHelps,
)
from foretrace.graph import BlockEvidence, Blocks


@dataclass(frozen=True)
class Answers:
    """What the page shows beside the replay itself; made by `foretrace.api`."""

    path_by_title: Mapping[str, CriticalPath] = field(default_factory=dict)  # of one step
    helps: WhatHelps | None = None
    sensitivity: Sensitivity | None = None
    hang: Hang | None = None
    lost: tuple[Cause, ...] = ()  # what is wrong, worst first; measured
    idle_by_title: Mapping[str, IdleCauses] = field(default_factory=dict)
    stragglers: Stragglers | None = None  # measured
    operators: OperatorTable | None = None  # measured, as all that follow
    roofline: Roofline | None = None
    attention: AttentionProfile | None = None
    memory: MemoryUse | None = None
    blocks: Blocks | None = None
    block_evidence: tuple[BlockEvidence, ...] = ()
    refusals: tuple[str, ...] = ()  # why an answer is missing, a sentence each
