"""`Anonymised`: what was written, what was replaced, and what is left."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from foretrace.exchange.anonymised.hints import Hint

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class Anonymised:
    """What `anonymise` did."""

    path_by_source: dict[str, Path]  # each file read -> the file written
    replaced: dict[str, str]  # text -> neutral name; not for others' eyes
    neutral: dict[str, str]  # the same, with parts of texts, and those of runs before
    removed: tuple[str, ...]  # texts that went with the members that held them
    num_kept: int  # different texts that are public, or were asked to be kept
    found_again: tuple[str, ...]  # replaced or removed texts that stand in what was written
    hints: tuple[Hint, ...]

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files written."""
        return tuple(self.path_by_source.values())

    def to_frame(self) -> pl.DataFrame:
        """One row per text replaced: `text`, `neutral`."""
        import polars as pl  # on demand: it takes longer to import than most commands take

        return pl.DataFrame(
            {"text": list(self.replaced), "neutral": list(self.replaced.values())},
            schema={"text": pl.String, "neutral": pl.String},
        )

    def as_json(self) -> dict[str, object]:
        """Everything as builtins, but for the texts that were taken out."""
        return {
            "paths": [str(path) for path in self.paths],
            "num_replaced": len(self.replaced),
            "num_removed": len(self.removed),
            "num_kept": self.num_kept,
            "num_found_again": len(self.found_again),
            "hints": [asdict(hint) for hint in self.hints],
        }
