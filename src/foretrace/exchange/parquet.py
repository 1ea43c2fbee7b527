"""A timeline as tables: its nodes in one Parquet file, its edges in another beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import polars as pl

from foretrace.base import Int32s, UInt8s, written_beside, written_together
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Part, Phase, Timeline


def write_tables(path: Path, timeline: Timeline) -> tuple[Path, ...]:
    """Write `nodes` at the path and `edges` beside it; the files written.

    Times are ns on the timeline's clock. An edge names its nodes by number, from 0 in the order
    of the table of nodes.
    """
    stem = path.name.removesuffix(".parquet")
    paths = (path.with_name(f"{stem}.parquet"), path.with_name(f"{stem}.edges.parquet"))
    frames = (node_frame(timeline), edge_frame(timeline.graph))
    with written_together():
        for each, frame in zip(paths, frames, strict=True):
            with written_beside(each) as beside:
                frame.write_parquet(beside)
    return paths


def node_frame(timeline: Timeline) -> pl.DataFrame:
    """One row per node."""
    graph = timeline.graph
    collectives = graph.collectives
    return pl.DataFrame(
        {
            "node": np.arange(graph.num_nodes),
            "kind": _of_enum(graph.kind, [kind.name.lower() for kind in NodeKind]),
            "rank": graph.rank,
            "lane": _named(graph.lane, [lane.label for lane in graph.lanes]),
            "name": _named(graph.name, graph.names),
            "step": _named(graph.step, graph.step_names),
            "operator": _named(graph.operator, graph.names),
            "operator_signature": _named(graph.operator_signature, graph.names),
            "part": _of_enum(graph.part, [part.name.lower() for part in Part]),
            "phase": _of_enum(graph.phase, [phase.name.lower() for phase in Phase]),
            "layer": graph.layer,
            "microbatch": graph.microbatch,
            "collective": graph.collective,
            "group": _named(graph.collective, [one.group for one in collectives]),
            "num_bytes": _numbers(graph.collective, [one.num_bytes for one in collectives]),
            "start_ns": timeline.start_ns,
            "end_ns": timeline.end_ns,
            "work_ns": graph.measured_ns,
            "inflation": graph.inflation,
        }
    )


def edge_frame(graph: ExecutionGraph) -> pl.DataFrame:
    """One row per edge: `target` waits for `source`."""
    return pl.DataFrame(
        {
            "source": graph.predecessor,
            "target": graph.edge_target,
            "kind": _of_enum(graph.edge_kind, [kind.name.lower() for kind in EdgeKind]),
            "lag_ns": graph.lag_ns,
        }
    )


def _named(column: Int32s, names: Sequence[str]) -> pl.Series:
    """Names by position; null where there is none."""
    texts = pl.Series(list(names), dtype=pl.String)
    positions = pl.Series(column.astype(np.int64))
    return texts.gather(positions.set(positions < 0, None)) if len(texts) else _nulls(len(column))


def _nulls(count: int) -> pl.Series:
    return pl.repeat(None, count, dtype=pl.String, eager=True)


def _numbers(column: Int32s, values: Sequence[int]) -> pl.Series:
    numbers = np.array([*values, -1], np.int64)[column]
    series = pl.Series(numbers)
    return series.set(series < 0, None)


def _of_enum(column: UInt8s, names: Sequence[str]) -> pl.Series:
    return pl.Series(list(names), dtype=pl.String).gather(column.astype(np.int64))
