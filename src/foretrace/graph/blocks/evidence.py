"""What blocks were found from, how sure that is, and how much of the device's time it covers."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class BlockEvidence:
    """One question about blocks and what answered it."""

    about: str  # "phases", "layers", "backward layers", "microbatches", "stages"
    source: str  # "repetition", "modules", "sequence numbers", ...; "" nothing
    is_inferred: bool  # from order or repetition, where nothing states it
    share: float  # of the device's (on the CPU: the operators') time with this known, 0 to 1
    note: str = ""  # a number or name that a reader can check: "40 layers", "TransformerLayer"
