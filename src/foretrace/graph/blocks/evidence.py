"""What blocks were found from, how sure that is, and how much of the device's time it covers."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.answer import Answer, Json, Plain, Sentences, Table, Told, plain
from foretrace.graph.blocks.table import Blocks


@dataclass(frozen=True)
class BlockEvidence(Plain):
    """One question about blocks and what answered it."""

    about: str  # "phases", "layers", "backward layers", "microbatches", "stages"
    source: str  # "repetition", "modules", "sequence numbers", ...; "" nothing
    is_inferred: bool  # from order or repetition, where nothing states it
    share: float  # of the device's (on the CPU: the operators') time with this known, 0 to 1
    note: str = ""  # a number or name that a reader can check: "40 layers", "TransformerLayer"

    @property
    def sentence(self) -> str:
        """What was found from what, and how sure that is."""
        source = self.source or ("nothing" if self.about != "parts" else "all of these")
        note = f", {self.note}" if self.note else ""
        sure = ", inferred" if self.is_inferred else ""
        share = f"{100 * self.share:.1f} % of the work"
        return f"{self.about}: {source}{note}{sure}; {share}"


@dataclass(frozen=True, repr=False)
class BlocksWithEvidence(Answer):
    """A run's blocks, and what they were found from."""

    blocks: Blocks
    evidence: tuple[BlockEvidence, ...]
    notes: tuple[str, ...] = ()

    @property
    def headline(self) -> str:
        """How many blocks, and how much of the work they hold."""
        return self.blocks.headline

    @property
    def note(self) -> str:
        """How times are counted."""
        return self.blocks.note

    @property
    def is_empty(self) -> bool:
        """Whether no block was found."""
        return self.blocks.is_empty

    def parts(self) -> tuple[Told, ...]:
        """The blocks, what they rest on, and what must be known."""
        return (
            *self.blocks.parts(),
            Sentences.of("found from", (one.sentence for one in self.evidence)),
            Sentences.of("notes", self.notes),
        )

    def tables(self) -> tuple[Table, ...]:
        """The blocks' tables."""
        return self.blocks.tables()

    def as_json(self) -> Json:
        """The blocks, and the evidence."""
        return {**self.blocks.as_json(), "evidence": plain(self.evidence)}
