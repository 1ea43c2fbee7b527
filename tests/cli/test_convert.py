from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest

from foretrace import api
from foretrace.graph import ExecutionGraph, NodeKind
from tests.cli.conftest import Run
from tests.graphs import GraphBuilder


def replayed_steps(run: Run, *paths: object) -> list[int]:
    outcome = run("replay", *paths, "--json", "--no-cache")
    assert outcome.code == 0, outcome.err
    return [
        rank["replayed_ns"]
        for step in json.loads(outcome.out)["steps"]
        for rank in step["ranks"]
    ]  # fmt: skip


def test_chakra_that_is_loaded_again_has_the_same_steps(
    run: Run, traces: Path, tmp_path: Path
) -> None:
    outcome = run("convert", traces, "-o", tmp_path / "out" / "job", "--to", "chakra")

    assert outcome.code == 0, outcome.err
    assert "wrote" in outcome.err
    files = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert files == ["job.0.et", "job.1.et", "job.2.et", "job.3.et", "job.groups.json"]
    assert replayed_steps(run, tmp_path / "out") == replayed_steps(run, traces)


@pytest.mark.parametrize(
    ("to", "names"),
    [
        ("perfetto", ["job.json"]),
        ("kineto", [f"job.rank{rank}.json" for rank in range(4)]),
        ("parquet", ["job.json.edges.parquet", "job.json.parquet"]),
    ],
)
def test_each_format_writes_its_files(
    run: Run, traces: Path, tmp_path: Path, to: str, names: list[str]
) -> None:
    outcome = run("convert", traces, "-o", tmp_path / "out" / "job.json", "--to", to)

    assert outcome.code == 0, outcome.err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names


def test_tables_of_the_replay_hold_its_times(run: Run, traces: Path, tmp_path: Path) -> None:
    outcome = run(
        "convert", traces, "-o", tmp_path / "job.parquet", "--to", "parquet", "--replayed"
    )

    nodes = pl.read_parquet(tmp_path / "job.parquet")
    assert outcome.code == 0, outcome.err
    job = api.load(traces)
    assert nodes["end_ns"].to_list() == api.simulate(job).end_ns.tolist()


def test_a_format_that_does_not_exist_names_those_that_do(run: Run, traces: Path) -> None:
    outcome = run("convert", traces, "-o", "x", "--to", "xml")

    assert outcome.code == 2
    assert "chakra" in outcome.err


def graph_alone() -> ExecutionGraph:
    build = GraphBuilder()
    build.add(NodeKind.RANK_START)
    return build.graph()


def test_a_graph_without_times_becomes_chakra_and_no_timeline(tmp_path: Path) -> None:
    written = api.convert(graph_alone(), tmp_path / "job", to="chakra")

    assert [path.name for path in written] == ["job.0.et", "job.groups.json"]
    with pytest.raises(ValueError, match="a graph has no times to write as kineto"):
        api.convert(graph_alone(), tmp_path / "job", to="kineto")


def test_inspect_says_how_execution_traces_link(run: Run, data_dir: Path) -> None:
    folder = data_dir / "traces/megatron-tp8"

    table = run("inspect", folder)
    found = json.loads(run("inspect", folder, "--json").out)["rows"]

    assert table.out.count("100.0 %") == 8
    assert [row["execution_trace"]["coverage"] for row in found] == [1.0] * 8


def test_files_without_times_ask_for_the_replay(run: Run, tmp_path: Path) -> None:
    api.convert(graph_alone(), tmp_path / "job", to="chakra")

    refused = run("convert", tmp_path / "job.0.et", "-o", tmp_path / "x.json", "--to", "perfetto")

    assert refused.code == 1
    assert "--replayed" in refused.err
    assert "Traceback" not in refused.err
    assert not (tmp_path / "x.json").exists()
