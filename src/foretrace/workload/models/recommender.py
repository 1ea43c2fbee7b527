"""Recommendation models of the DLRM kind: embedding tables, an interaction, two networks.

Source:
    Naumov et al., "Deep Learning Recommendation Model for Personalization and Recommendation
    Systems", arXiv 1906.00091; Wang et al., "DCN V2", arXiv 2008.13535.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from pathlib import Path

from foretrace.workload.models.entries import Entry
from foretrace.workload.models.published import Published


class Interaction(StrEnum):
    """How pooled embeddings and dense features meet."""

    DOT = "dot"  # products of all pairs, beside the dense features
    CROSS = "cross"  # low-rank cross layers over all of them
    CONCATENATION = "concatenation"


@dataclass(frozen=True)
class Recommender:
    """Tables of vectors that are looked up, and the dense networks around them."""

    name: str
    title: str
    num_dense: int  # dense features of a sample
    rows: tuple[int, ...]  # of each table
    pooling: tuple[int, ...]  # lookups of a sample in each table
    size: int  # of a vector
    bottom: tuple[int, ...]  # widths of the layers that the dense features pass through
    top: tuple[int, ...]  # widths of the layers after the interaction
    interaction: Interaction
    num_cross_layers: int
    cross_rank: int
    published: Published
    entries: tuple[Entry, ...]
    parent: str
    path: Path | None

    kind = "recommender"

    @property
    def num_tables(self) -> int:
        """Tables of embeddings."""
        return len(self.rows)

    @property
    def num_lookups(self) -> int:
        """Vectors that a sample looks up, all tables together."""
        return sum(self.pooling)

    @property
    def interaction_width(self) -> int:
        """Numbers of a sample that enter the top layers."""
        if self.interaction is Interaction.DOT:
            return self.size + self.num_tables * (self.num_tables + 1) // 2
        return self.size * (self.num_tables + 1)

    def dense_shapes(self, part: str) -> Iterator[tuple[int, int]]:
        """Inputs and outputs of each layer of "bottom" or "top"."""
        first = self.num_dense if part == "bottom" else self.interaction_width
        return pairwise((first, *(self.bottom if part == "bottom" else self.top)))
