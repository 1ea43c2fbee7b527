"""Blocks: which parts of the model the time belongs to, layer by layer, and how that is known."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from foretrace.answer import (
    Cell,
    Chart,
    ChartKind,
    Column,
    Series,
    SideBySide,
    Table,
    Unit,
    percent_text,
)
from foretrace.base import Int64s
from foretrace.graph import NO_LAYER, BlockEvidence, Blocks, Part, Phase
from foretrace.report.document import Section

# Phases that a layer's work is drawn by, one upon the other.
_PHASES = (
    (Phase.FORWARD, "category-0"),
    (Phase.RECOMPUTE, "category-4"),
    (Phase.BACKWARD, "category-1"),
    (Phase.OPTIMIZER, "category-2"),
    (Phase.UNKNOWN, "category-7"),
)


def block_section(blocks: Blocks | None, evidence: Sequence[BlockEvidence] = ()) -> Section | None:
    """Work by part, phase and layer; `None` if no block was found."""
    if blocks is None or not (blocks.part != Part.UNKNOWN).any():
        return None
    layers = _layers(blocks)
    tables = [_parts(blocks), *([_evidence(evidence)] if evidence else [])]
    return Section(
        key="blocks",
        title="Blocks",
        short="Blocks",
        lead=(
            f"Parts of the model as they were found; {percent_text(100 * blocks.share_assigned)} "
            "of all work is assigned. Mean over ranks and steps that hold the block; work is "
            "kernels, copies and transfers, or operators on the CPU."
        ),
        parts=(*([layers] if layers.rows else []), SideBySide(tuple(tables))),
    )


def _layers(blocks: Blocks) -> Table:
    """Work of each layer by phase, its microbatches together."""
    is_layer = blocks.layer != NO_LAYER
    numbers = np.unique(blocks.layer[is_layer]).tolist()
    rows: list[tuple[Cell, ...]] = []
    for layer in numbers:
        own = blocks.layer == layer
        work_ns = [
            _mean_ns(blocks, np.flatnonzero(own & (blocks.phase == phase))) for phase, _ in _PHASES
        ]
        rows.append((layer, *work_ns))
    used = [place for place in range(len(_PHASES)) if any(row[1 + place] for row in rows)]
    return Table(
        key="layers",
        title="Layer by layer",
        columns=(
            Column("layer", "layer", Unit.IDENTIFIER),
            *(
                Column(f"{_word(_PHASES[place][0])}_ns", f"{_word(_PHASES[place][0])} ms", Unit.MS)
                for place in used
            ),
        ),
        rows=tuple((row[0], *(row[1 + place] for place in used)) for row in rows),
        chart=Chart(
            kind=ChartKind.COLUMNS,
            label="work of each layer by phase",
            category="layer",
            category_unit=Unit.IDENTIFIER,
            series=tuple(
                Series(
                    f"{_word(_PHASES[place][0])}_ns",
                    _word(_PHASES[place][0]),
                    _PHASES[place][1],
                    group="work",
                )
                for place in used
            ),
            unit=Unit.NS,
        ),
    )


def _word(phase: Phase) -> str:
    return "phase unknown" if phase == Phase.UNKNOWN else phase.name.lower()


def _mean_ns(blocks: Blocks, rows: Int64s) -> float:
    """Work of these rows, mean over the ranks and steps that have any of them."""
    cells = {(int(blocks.rank[row]), int(blocks.step[row])) for row in rows.tolist()}
    return float(blocks.work_ns[rows].sum()) / max(len(cells), 1)


def _parts(blocks: Blocks) -> Table:
    """Work and host time of every part and phase, over all ranks and steps."""
    work_ns: dict[tuple[int, int], int] = defaultdict(int)
    host_ns: dict[tuple[int, int], int] = defaultdict(int)
    pairs = zip(blocks.part.tolist(), blocks.phase.tolist(), strict=True)
    for row, pair in enumerate(pairs):
        work_ns[pair] += int(blocks.work_ns[row])
        host_ns[pair] += int(blocks.host_ns[row])
    total_ns = max(sum(work_ns.values()), 1)
    order = sorted(work_ns, key=lambda pair: (-work_ns[pair], pair))
    return Table(
        key="parts",
        title="Parts and phases, all ranks and steps",
        columns=(
            Column("part", "part", Unit.WORD),
            Column("phase", "phase", Unit.WORD),
            Column("work_ns", "work ms", Unit.MS),
            Column("share_percent", "of all work", Unit.PERCENT),
            Column("host_ns", "host ms", Unit.MS),
        ),
        rows=tuple(
            (
                Part(pair[0]).name.lower(),
                Phase(pair[1]).name.lower(),
                work_ns[pair],
                100 * work_ns[pair] / total_ns,
                host_ns[pair],
            )
            for pair in order
        ),
    )


def _evidence(evidence: Sequence[BlockEvidence]) -> Table:
    return Table(
        key="block-evidence",
        title="How they were found",
        columns=(
            Column("about", "what", Unit.WORD),
            Column("source", "from"),
            Column("certainty", "how", Unit.WORD),
            Column("share_percent", "of device time", Unit.PERCENT),
            Column("note", "note"),
        ),
        rows=tuple(
            (
                one.about,
                one.source or "nothing",
                "inferred" if one.is_inferred else "stated",
                100 * one.share,
                one.note,
            )
            for one in evidence
        ),
    )
