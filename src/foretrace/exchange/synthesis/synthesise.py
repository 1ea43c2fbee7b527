"""Graphs in, Chakra files of a job that never ran out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from foretrace.exchange.synthesis.closeness import Closeness, closeness
from foretrace.exchange.synthesis.observed import Observed, observed
from foretrace.exchange.synthesis.sample import durations, program
from foretrace.exchange.synthesis.write import Groups, write_rank
from foretrace.graph import ExecutionGraph, chakra_recording
from foretrace.trace import read_chakra

if TYPE_CHECKING:
    import polars as pl

DEFAULT_ORDER = 3  # tokens that decide on the next


@dataclass(frozen=True)
class Synthesised:
    """What was made."""

    paths: tuple[Path, ...]  # by rank
    groups_path: Path
    num_nodes: int  # per rank
    num_tokens: int  # different kinds of node in the source
    closeness: Closeness | None  # None if it was not asked for

    def to_frame(self) -> pl.DataFrame:
        """One row per measure of closeness; none if it was not asked for."""
        import polars as pl  # on demand: it takes longer to import than most commands take

        return pl.DataFrame() if self.closeness is None else self.closeness.to_frame()

    def as_json(self) -> dict[str, object]:
        """Everything as builtins."""
        return {
            "paths": [str(path) for path in self.paths],
            "groups_path": str(self.groups_path),
            "num_nodes": self.num_nodes,
            "num_tokens": self.num_tokens,
            "closeness": None if self.closeness is None else self.closeness.as_json(),
        }


def synthesise(
    graphs: Sequence[ExecutionGraph],
    prefix: Path,
    *,
    num_nodes: int,
    num_ranks: int,
    seed: int = 0,
    order: int = DEFAULT_ORDER,
    is_compared: bool = True,
) -> Synthesised:
    """Learn from graphs, and write a job like them of any length and number of ranks.

    Args:
        graphs: what to learn from, of one or many jobs.
        prefix: folder and first part of the files' names.
        num_nodes: nodes per rank.
        num_ranks: ranks; all run one program, each with durations of its own.
        seed: the same seed makes the same files.
        order: how many nodes back decide on the next one: more is nearer to the source, and
            repeats longer pieces of it.
        is_compared: whether to say how near the made job comes to its source.

    Raises:
        GraphError: if there is nothing in the graphs to learn from.
        ValueError: if a number is out of range.
    """
    if num_nodes < 1 or num_ranks < 1 or order < 0:
        raise ValueError(
            f"num_nodes and num_ranks must be at least 1 and order at least 0, got {num_nodes}, "
            f"{num_ranks} and {order}"
        )
    seen = observed(graphs)
    made = program(seen, num_nodes, order=order, rng=np.random.default_rng((seed, 0)))
    groups = Groups()
    paths = []
    for rank in range(num_ranks):
        path = prefix.with_name(f"{prefix.name}.{rank}.et")
        write_rank(
            path,
            seen,
            made,
            duration_ns=durations(seen, made, np.random.default_rng((seed, 1, rank))),
            rank=rank,
            num_ranks=num_ranks,
            groups=groups,
        )
        paths.append(path)
    groups_path = prefix.with_name(f"{prefix.name}.groups.json")
    groups.write(groups_path)
    return Synthesised(
        tuple(paths),
        groups_path,
        num_nodes,
        len(seen.tokens),
        closeness(seen, _read_again(paths)) if is_compared else None,
    )


def _read_again(paths: Sequence[Path]) -> Observed:
    """What the written files show to whoever reads them."""
    return observed([chakra_recording([read_chakra(path) for path in paths]).graph])
