"""Parameters and gradients divided over data-parallel ranks that were recorded with them whole."""

from __future__ import annotations

import numpy as np
import pytest

from foretrace.base import ScenarioError
from foretrace.graph import NO_NODE, NodeKind, verify
from foretrace.machine import load_machine
from foretrace.simulate import simulate
from foretrace.whatif import Edit, Parallelism, PlanKeys, baseline_of, predict
from foretrace.whatif.arrange.arrange import arranged
from foretrace.whatif.recorded.program import MadeExchange, MadeWait, NewJob, RecordedPiece
from tests.acceptance.edited_jobs import job
from tests.graph.recorded import recording_of
from tests.truth import make_job
from tests.whatif.rearrange.jobs import program_under, read_job, step_ns

SHAPES = job(tp=1, dp=2, pp=1, layers=3, microbatches=2)
ZERO3 = PlanKeys({"sharding.level": "zero3"})


def shown(new: NewJob, step: int = 1) -> list[str]:
    """What a rank does in a step for its layers: work, gathers and waits as words."""
    found: list[str] = []
    for each in new.ranks[0].placed:
        what = each.piece
        if each.step != step:
            continue
        if isinstance(what, MadeExchange):
            found.append(
                f"{'gather' if what.collective == 'allgather' else 'scatter'} {each.layer}"
            )
        elif isinstance(what, MadeWait):
            found.append(f"wait {what.back}")
        elif each.layer >= 0 and each.part.name == "LAYER" and isinstance(what, RecordedPiece):
            word = f"{'F' if each.phase.name == 'FORWARD' else 'B'}{each.layer}"
            found += [word] if found[-1:] != [word] else []
    return found


def exchanges(new: NewJob, step: int = 1) -> list[MadeExchange]:
    """What is made in a step of one rank."""
    return [
        each.piece
        for each in new.ranks[0].placed
        if each.step == step and isinstance(each.piece, MadeExchange)
    ]


def test_a_layer_is_gathered_before_both_passes_and_scattered_behind_the_second() -> None:
    words = shown(read_job(SHAPES, ZERO3))

    forward = ["gather 0", "gather 1", "wait 1", "F0", "gather 2", "wait 1", "F1", "wait 0", "F2"]
    assert words[: len(forward)] == forward
    backward = [
        *("gather 2", "gather 1", "wait 1", "B2", "scatter 2"),
        *("gather 0", "wait 2", "B1", "scatter 1", "wait 1", "B0", "scatter 0"),
    ]
    assert words[len(forward) : len(forward) + len(backward)] == backward
    assert words == [*forward, *backward, *forward, *backward, "wait 0"]


def test_parts_have_the_bytes_of_their_parameters() -> None:
    found = exchanges(read_job(SHAPES, ZERO3))

    gathered = {each.num_bytes for each in found if each.collective == "allgather"}
    scattered = {each.num_bytes for each in found if each.collective == "reducescatter"}
    # Parameters in 16 bits, gradients in 32.
    assert [2 * size for size in gathered] == list(scattered)
    assert not any(each.is_awaited for each in found)


def test_nothing_is_gathered_ahead_without_overlap() -> None:
    words = shown(read_job(SHAPES, ZERO3, PlanKeys({"overlap.gradients": False})))

    made = exchanges(read_job(SHAPES, ZERO3, PlanKeys({"overlap.gradients": False})))
    assert all(each.is_awaited for each in made if each.collective == "reducescatter")
    assert words.count("wait 0") >= 1


def test_gradients_divided_alone_are_scattered_in_every_backward_pass() -> None:
    found = exchanges(read_job(SHAPES, PlanKeys({"sharding.level": "zero2"})))

    scattered = [each.num_bytes for each in found if each.collective == "reducescatter"]
    gathered = [each.num_bytes for each in found if each.collective == "allgather"]
    assert [each.collective for each in found[-len(gathered) :]] == ["allgather"] * len(gathered)
    assert scattered[: len(gathered)] == scattered[len(gathered) :]  # in both microbatches
    # Once a step, of what one microbatch reduces: parameters in 16 bits, gradients in 32.
    assert 2 * sum(gathered) == sum(scattered[: len(gathered)])


def test_the_graph_is_legal_and_what_is_gathered_is_awaited() -> None:
    found = arranged(program_under(SHAPES), read_job(SHAPES, ZERO3))
    graph = found.graph
    verify(graph)
    is_made = (found.source == NO_NODE) & (graph.kind == NodeKind.FINISH)
    duration_ns = np.where(is_made, 0, graph.measured_ns)
    slow_ns = np.where(is_made, 50_000_000, graph.measured_ns)

    fast, slow = (step_ns(simulate(graph, each)) for each in (duration_ns, slow_ns))

    # Two passes gather three layers each, and three are scattered, one after the other.
    assert slow > fast + 2 * 9 * 50_000_000 * 0.9


def test_one_copy_divides_nothing() -> None:
    config = job(tp=1, dp=1, pp=1, layers=2, microbatches=1)

    assert exchanges(read_job(config, ZERO3)) == []


@pytest.mark.parametrize("edits", [(ZERO3,), (ZERO3, Parallelism(dp=4))])
def test_the_answer_is_arranged_and_new_pieces_have_intervals(edits: tuple[Edit, ...]) -> None:
    baseline = baseline_of(recording_of(make_job(SHAPES)))

    found = predict(baseline, edits)

    assert found.method == "arranged"
    graph, costs = found.graph, found.costs
    names = [one.name for one in graph.collectives]
    made = [
        node
        for node in graph.nodes_of(NodeKind.FINISH).tolist()
        if names[graph.collective[node]] in {"all_gather", "reduce_scatter"}
    ]
    assert made
    assert (costs.low_ns[made] < costs.duration_ns[made]).all()
    assert (costs.duration_ns[made] < costs.high_ns[made]).all()


def test_a_machine_without_room_for_the_new_ranks_is_refused_in_words() -> None:
    baseline = baseline_of(recording_of(make_job(SHAPES)), machine=load_machine("dgx-h100"))

    with pytest.raises(ScenarioError, match="a machine with as many chips"):
        predict(baseline, [ZERO3, Parallelism(dp=16)])
