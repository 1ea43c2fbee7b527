"""Steps of a serving engine: told by kind, and held against steps of alike batches alone."""

from __future__ import annotations

import pytest

import foretrace as ft
from foretrace.analyze import alike_steps, batch_labels, compare, windows
from foretrace.analyze.usual import places_of
from foretrace.base import GraphError
from foretrace.graph import NodeKind, Timeline
from foretrace.risk import Sampling, recorded_steps
from foretrace.simulate import simulate
from tests.graphs import GraphBuilder

PREFILL, MIXED, IDLE = (
    "step[EXTEND bs=2 toks=1500]",
    "step[MIXED bs=9 c=1 g=8 c_sq=80]",
    "step[IDLE]",
)


def decode(requests: int) -> str:
    return f"step[DECODE bs={requests}]"


def served(*steps: tuple[str, int]) -> Timeline:
    """Steps of one rank, one behind the other: the words of their marks, and what they take."""
    build = GraphBuilder()
    host = build.add(NodeKind.RANK_START)
    for number, (words, takes_ns) in enumerate(steps):
        step = f"{words}#{number}"
        host = build.add(NodeKind.STEP_BEGIN, after=[host], step=step)
        host = build.add(NodeKind.HOST_SEGMENT, takes_ns=takes_ns, after=[host], step=step)
        host = build.add(NodeKind.STEP_END, after=[host], step=step)
    return simulate(build.graph())


RUN = (
    (PREFILL, 900), (decode(32), 100), (decode(32), 104), (decode(33), 102), (MIXED, 400),
    (decode(32), 101),
)  # fmt: skip


def test_steps_are_told_by_kind() -> None:
    found = ft.batches(served(*RUN))

    rows = {row.kind: row for row in found.rows}
    assert [row.kind for row in found.rows] == ["prefill", "decode", "mixed"]  # most time first
    assert (rows["decode"].num_steps, rows["decode"].median_ns) == (4, 101)
    assert (rows["decode"].shortest_ns, rows["decode"].longest_ns) == (100, 104)
    assert sum(row.share for row in found.rows) == pytest.approx(1)
    assert rows["prefill"].prompt_tokens == 1500
    assert rows["mixed"].reply_tokens == 8
    whole_ns = sum(takes_ns for _, takes_ns in RUN)
    assert found.prompt_tokens_per_s == pytest.approx(1580e9 / whole_ns)
    assert found.reply_tokens_per_s == pytest.approx((32 + 32 + 33 + 32 + 8) * 1e9 / whole_ns)
    assert found.counts == "1 of prefill, 4 of decode, 1 of mixed"


def test_tokens_of_prompts_that_no_mark_says_are_not_known() -> None:
    found = ft.batches(served(("execute_new_2_cached_3", 10), (decode(4), 5)))

    assert found.prompt_tokens_per_s is None
    assert "not known" in str(found)


def test_a_training_run_has_no_batches() -> None:
    found = ft.batches(served(("iteration ", 10), ("iteration ", 5)))

    assert found.is_empty
    assert found.rows == ()
    assert found.reply_tokens_per_s is None
    assert "no serving engine" in found.headline


def test_alike_batches_are_of_one_kind_and_of_like_size() -> None:
    names = [decode(32), decode(63), decode(64), PREFILL, IDLE, "ProfilerStep#3"]

    assert batch_labels(names) == (
        "decode of 32 to 63 requests", "decode of 32 to 63 requests",
        "decode of 64 to 127 requests", "prefill of 1,024 to 2,047 tokens", "idle", "",
    )  # fmt: skip
    numbers = alike_steps(names).tolist()
    assert numbers[0] == numbers[1]
    assert len({*numbers}) == 5
    assert numbers[5] == numbers[-1]  # of no step


def test_a_step_that_is_not_named_is_of_the_kind_that_most_are_of() -> None:
    table = windows(served(*RUN))

    assert table.step_names[table.step[table.row_of(None)]] == f"{decode(33)}#3"  # nearest 101.5


def test_decodes_are_compared_with_decodes() -> None:
    slower = tuple((words, takes_ns + 20 * (takes_ns < 200)) for words, takes_ns in RUN[1:])

    found = compare(served(*RUN), served(*slower * 2))

    assert found.difference_ns == 20
    assert (found.noise.num_before, found.noise.num_after) == (4, 8)
    assert found.noise.low_ns > 0
    assert found.notes[:2] == (
        "before, steps that decode are compared; 1 of prefill, 1 of mixed are left out.",
        "after, steps that decode are compared; 2 of mixed are left out.",
    )


def test_unlike_batches_are_said() -> None:
    kinds = compare(served((decode(4), 10)), served((PREFILL, 90)))
    sizes = compare(served((decode(16), 10)), served((decode(32), 15)))

    assert kinds.notes[0] == "steps are not alike: 1 of decode before, 1 of prefill after."
    assert sizes.notes[0] == "batches are not alike: 16.0 requests a step before, 32.0 after."


def test_a_call_is_another_one_in_steps_of_unlike_batches() -> None:
    graph = served((PREFILL, 900), (decode(32), 100), (decode(33), 100)).graph
    nodes = (graph.kind == NodeKind.HOST_SEGMENT).nonzero()[0]

    found = places_of(graph, nodes)

    assert found.call[1] == found.call[2] != found.call[0]


def test_risk_tells_steps_of_one_kind() -> None:
    graph = served(*RUN).graph

    found = recorded_steps(graph, sampling=Sampling(num_samples=40))

    assert found.step_ns.max() < 200
    assert any(note.startswith("steps that decode are told, 4 of 6") for note in found.notes)


def test_a_step_is_named_by_the_number_behind_its_words() -> None:
    timeline = served(*RUN)

    assert ft.breakdown(timeline, step=4).rows[0].step_name == f"{MIXED}#4"
    with pytest.raises(GraphError, match="no step 'ProfilerStep#9'"):
        ft.breakdown(timeline, step=9)
