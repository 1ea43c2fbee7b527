from __future__ import annotations

from pathlib import Path

import polars as pl

from foretrace.exchange import write_tables
from tests.exchange.test_kineto import small_timeline


def test_nodes_and_edges_are_tables_that_join_by_number(tmp_path: Path) -> None:
    timeline = small_timeline()

    nodes_path, edges_path = write_tables(tmp_path / "job.parquet", timeline)

    nodes, edges = pl.read_parquet(nodes_path), pl.read_parquet(edges_path)
    assert edges_path.name == "job.edges.parquet"
    assert nodes["kind"].to_list() == ["rank_start", "launch", "kernel", "sync"]
    assert nodes["lane"].to_list()[2] == "rank 0 stream 7"
    assert nodes["operator"].to_list() == [None, None, "aten::mm", None]
    assert nodes["start_ns"].to_list() == timeline.start_ns.tolist()
    wake = edges.filter(pl.col("kind") == "wake")
    assert wake.select("source", "target").rows() == [(2, 3)]
