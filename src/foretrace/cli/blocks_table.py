"""The blocks of a run as tables of at most 80 columns: ranks alike in one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from foretrace.answer import milliseconds_text
from foretrace.api import Job
from foretrace.base import Int64s
from foretrace.cli.tables import (
    plain_table,
    print_section,
    print_sentences,
    print_title,
    share_text,
)
from foretrace.graph import NO_LAYER, NO_MICROBATCH, BlockEvidence, Blocks, Part, Phase

if TYPE_CHECKING:
    import polars as pl

MAX_GROUPS = 8  # kinds of ranks that are shown; `--json` has all


@dataclass(frozen=True)
class FoundBlocks:
    """A run's blocks, and what they were found from."""

    job: Job
    blocks: Blocks

    def to_frame(self) -> pl.DataFrame:
        """One row per block."""
        return self.blocks.to_frame()

    def as_json(self) -> dict[str, object]:
        """Everything."""
        evidence = [asdict(one) for one in self.job.recording.block_evidence]
        return {**self.blocks.as_json(), "evidence": evidence}


def print_blocks(found: FoundBlocks) -> None:
    """Print the blocks of every kind of rank, and what they rest on."""
    console = Console(highlight=False)
    print_title(console, found.job, is_replayed=False)
    groups = _ranks_alike(found.blocks)
    for ranks in groups[:MAX_GROUPS]:
        title = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {ranks_text(ranks)}"
        print_section(console, title, _table(found.blocks, ranks))
    if len(groups) > MAX_GROUPS:
        console.print(Text(f"and {len(groups) - MAX_GROUPS} more kinds of ranks: --json", "dim"))
    console.print(
        Text("\nms per rank and step; of a layer: the median, least and most of one pass", "dim")
    )
    print_sentences(
        console, "found from", [_sentence(one) for one in found.job.recording.block_evidence]
    )
    print_sentences(
        console, "notes", [one.text for one in found.job.findings if one.topic == "blocks"]
    )


def ranks_text(ranks: Sequence[int]) -> str:
    """Ranks as ranges: `0-3, 6`."""
    pieces: list[list[int]] = []
    for rank in ranks:
        if pieces and rank == pieces[-1][-1] + 1:
            pieces[-1].append(rank)
        else:
            pieces.append([rank])
    return ", ".join(
        str(piece[0]) if len(piece) == 1 else f"{piece[0]}-{piece[-1]}" for piece in pieces
    )


def _ranks_alike(blocks: Blocks) -> list[tuple[int, ...]]:
    """Ranks that have the same blocks, whatever these take."""
    by_kind: dict[frozenset[tuple[int, ...]], list[int]] = {}
    for rank in np.unique(blocks.rank).tolist():
        rows = np.flatnonzero((blocks.rank == rank) & (blocks.work_ns > 0))
        columns = (blocks.part, blocks.phase, blocks.layer, blocks.microbatch)
        kind = frozenset(zip(*(column[rows].tolist() for column in columns), strict=True))
        by_kind.setdefault(kind, []).append(rank)
    return [tuple(ranks) for ranks in by_kind.values()]


def _table(blocks: Blocks, ranks: tuple[int, ...]) -> Table:
    heads = ("part", "phase", "layers", "passes", "work ms", "host ms", "a layer ms")
    table = plain_table(*heads, text_columns=(0, 1))
    inside = np.isin(blocks.rank, ranks)
    num_steps = len(np.unique(blocks.step[inside & (blocks.work_ns > 0)])) or 1
    times = len(ranks) * num_steps
    pairs = sorted(
        set(zip(blocks.phase[inside].tolist(), blocks.part[inside].tolist(), strict=True))
    )
    for phase, part in pairs:
        rows = np.flatnonzero(inside & (blocks.phase == phase) & (blocks.part == part))
        work_ns, host_ns = int(blocks.work_ns[rows].sum()), int(blocks.host_ns[rows].sum())
        table.add_row(
            Part(part).name.lower(),
            Phase(phase).name.lower(),
            _layers_text(blocks.layer[rows]),
            _count(blocks.microbatch[rows], NO_MICROBATCH),
            milliseconds_text(work_ns / times),
            milliseconds_text(host_ns / times),
            _per_layer(blocks, rows),
            style="" if part != Part.UNKNOWN else "dim",
        )
    return table


def _layers_text(layer: Int64s) -> str:
    known = np.unique(layer[layer != NO_LAYER])
    if not len(known):
        return ""
    return f"{known[0]}-{known[-1]}" if len(known) > 1 else str(known[0])


def _count(column: Int64s, nothing: int) -> str:
    known = np.unique(column[column != nothing])
    return str(len(known)) if len(known) else ""


def _per_layer(blocks: Blocks, rows: Int64s) -> str:
    layers = rows[(blocks.layer[rows] != NO_LAYER) & (blocks.work_ns[rows] > 0)]
    if not len(layers) or not (blocks.part[layers] == Part.LAYER).all():
        return ""
    work_ns = blocks.work_ns[layers]
    low, high = milliseconds_text(int(work_ns.min())), milliseconds_text(int(work_ns.max()))
    return f"{milliseconds_text(float(np.median(work_ns)))} ({low} to {high})"


def _sentence(one: BlockEvidence) -> str:
    source = one.source or ("nothing" if one.about != "parts" else "all of these")
    note = f", {one.note}" if one.note else ""
    sure = ", inferred" if one.is_inferred else ""
    return f"{one.about}: {source}{note}{sure}; {share_text(one.share)} of the work"
