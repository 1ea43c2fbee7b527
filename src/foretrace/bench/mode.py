"""What of a step a benchmark replays."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """Kinds of operators to replay."""

    FULL = "full"
    COMPUTE = "compute"  # no collectives
    COMMUNICATION = "communication"  # nothing else
