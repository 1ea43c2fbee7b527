from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foretrace.base import GraphError
from foretrace.exchange import MOST_NODES, Choice, write_drawing
from foretrace.exchange.drawing.drawing import places
from foretrace.exchange.drawing.subgraph import subgraph
from foretrace.graph import EdgeKind, ExecutionGraph, NodeKind, Part, Phase
from tests.graphs import Block, Edge, GraphBuilder

SVG = "{http://www.w3.org/2000/svg}"


def chain(num_launches: int = 4, num_ranks: int = 2) -> ExecutionGraph:
    """Ranks that launch kernels one after the other, and meet at the end."""
    build = GraphBuilder()
    last: dict[int, int] = {}
    for rank in range(num_ranks):
        host = build.add(NodeKind.STEP_BEGIN, rank=rank, step="ProfilerStep#3")
        for number in range(num_launches):
            host = build.add(
                NodeKind.LAUNCH, rank=rank, name="cudaLaunchKernel", takes_ns=1_500, after=[host]
            )
            last[rank] = build.add(
                NodeKind.KERNEL,
                rank=rank,
                lane="stream 7",
                name=f'void gemm<"{number}">(float const&)',
                takes_ns=12_345,
                after=[Edge(host, EdgeKind.LAUNCH)]
                + ([Edge(last[rank], EdgeKind.STREAM)] if rank in last else []),
                step="ProfilerStep#3",
                block=Block(Part.LAYER, Phase.FORWARD, number),
            )
    build.collective({rank: [node] for rank, node in last.items()}, transfer_ns=50)
    return build.graph()


def drawn(path: Path) -> ET.Element:
    return ET.parse(path).getroot()  # noqa: S314  written a line above


def test_every_chosen_node_is_a_box_with_its_name_and_number(tmp_path: Path) -> None:
    graph = chain()

    done = write_drawing(tmp_path / "a.svg", graph, Choice())

    titles = [title.text or "" for title in drawn(done.path).iter(f"{SVG}title")]
    assert done.num_nodes == len(titles) == graph.num_nodes
    assert done.num_edges == graph.num_edges
    assert any('gemm<"3">(float const&)' in title and "12,345 ns" in title for title in titles)
    assert any("layer 2 forward" in title for title in titles)


def test_columns_are_headed_by_threads_streams_and_meetings(tmp_path: Path) -> None:
    done = write_drawing(tmp_path / "a.svg", chain(num_ranks=1), Choice())

    texts = {text.text for text in drawn(done.path).iter(f"{SVG}text")}
    assert {"rank 0 thread 1", "rank 0 stream 7", "all ranks"} <= texts
    assert {"launch", "stream", "host order"} <= texts  # the legend


@given(st.integers(1, 12), st.integers(1, 4))
def test_edges_point_down_and_no_two_nodes_meet(num_launches: int, num_ranks: int) -> None:
    part = subgraph(chain(num_launches, num_ranks), Choice())

    where = places(part)

    assert np.all(where.row[part.source] < where.row[part.target])
    spots = set(zip(where.column.tolist(), where.row.tolist(), strict=True))
    assert len(spots) == len(part.node)


def test_around_a_node_are_its_neighbours_in_both_directions() -> None:
    graph = chain(num_ranks=1)  # 0 begin, then launch 1, kernel 2, launch 3, kernel 4, ...

    part = subgraph(graph, Choice(around=4, depth=1))

    assert part.node.tolist() == [2, 3, 4, 6]
    assert part.node[part.centre] == 4


def test_a_node_is_found_by_words_of_its_name_on_the_rank_asked_for() -> None:
    graph = chain()

    part = subgraph(graph, Choice(around='GEMM<"2">', depth=0, rank=1))

    [node] = part.node.tolist()
    assert graph.rank[node] == 1
    assert '"2"' in graph.names[graph.name[node]]


def test_step_rank_and_label_must_all_hold() -> None:
    graph = chain()

    part = subgraph(graph, Choice(step="3", rank=0, label="layer 1 forward"))

    assert graph.rank[part.node].tolist() == [0]
    assert graph.layer[part.node].tolist() == [1]


def test_dot_names_every_node_once_inside_its_lane_s_cluster(tmp_path: Path) -> None:
    graph = chain(num_ranks=1)

    done = write_drawing(tmp_path / "a.dot", graph, Choice())

    text = done.path.read_text(encoding="utf-8")
    declared = re.findall(r"^    n(\d+) \[", text, flags=re.MULTILINE)
    edges = re.findall(r"^  n(\d+) -> n(\d+) \[", text, flags=re.MULTILINE)
    assert sorted(map(int, declared)) == list(range(graph.num_nodes))
    assert len(edges) == graph.num_edges
    assert 'label="rank 0 stream 7"' in text
    assert 'gemm<\\"3\\">' in text  # quotes are escaped
    assert text.count("{") == text.count("}")


def test_too_many_nodes_are_refused_with_what_to_narrow() -> None:
    graph = chain(num_launches=300)
    assert graph.num_nodes > MOST_NODES

    with pytest.raises(GraphError, match=r"a step or a label or the neighbourhood of one node"):
        subgraph(graph, Choice(rank=0))
    with pytest.raises(GraphError, match="ask for a depth below 500"):
        subgraph(graph, Choice(around=0, depth=500))


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        (Choice(step="9"), "no step '9' to draw"),
        (Choice(rank=7), "no rank 7 to draw"),
        (Choice(label="attention"), "nothing to draw"),
        (Choice(around=10**6), "no node 1000000"),
        (Choice(around="titan"), "no node is called 'titan'"),
    ],
)
def test_what_is_not_there_is_refused_in_one_sentence(choice: Choice, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        subgraph(chain(), choice)


def test_an_ending_that_names_no_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"'\.png' names no format, expected one of \.svg"):
        write_drawing(tmp_path / "a.png", chain(), Choice())
