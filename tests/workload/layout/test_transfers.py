import numpy as np
import pytest

from foretrace.graph import ExecutionGraph, NodeKind, Part
from foretrace.simulate import simulate
from foretrace.workload import Group, Overlap, Plan
from tests.workload.layout.parts import TRANSFER_BYTES, laid_out, layer, model, step_ns


def _length_ns(graph: ExecutionGraph, transfer_ns: int) -> int:
    is_transfer = (graph.kind == NodeKind.FINISH) & (graph.part == Part.TRANSFER)
    return step_ns(simulate(graph, np.where(is_transfer, transfer_ns, graph.measured_ns)))


@pytest.mark.parametrize(
    ("schedule", "chunks", "num_transfers"), [("1f1b", 1, 3), ("interleaved", 2, 7)]
)
def test_every_microbatch_passes_from_chunk_to_chunk_and_back(
    schedule: str, chunks: int, num_transfers: int
) -> None:
    plan = Plan(pipeline=4, global_batch=8, schedule=schedule, num_chunks=chunks)

    graph = laid_out(model(8), plan).graph

    transfers = [one for one in graph.collectives if one.group == Group.PIPELINE.value]
    assert len(transfers) == 2 * 8 * num_transfers
    assert {one.num_bytes for one in transfers} == {TRANSFER_BYTES}
    assert {one.name for one in transfers} == {"sendrecv"}
    assert all(len(one.ranks) == 2 for one in transfers)


def test_one_microbatch_pays_for_every_transfer() -> None:
    plan = Plan(pipeline=4, global_batch=1)

    found_ns = _length_ns(laid_out(model(4), plan).graph, 11)

    # Gradients leave behind both halves of a backward pass, which is one unit here.
    assert found_ns == 4 * 300 + 2 * 3 * 11


def test_input_gradients_leave_before_weight_gradients_are_made() -> None:
    plan = Plan(pipeline=4, global_batch=4, schedule="zb-h1")

    graph = laid_out(model(4, layer(100, 100, 100)), plan).graph

    assert _length_ns(graph, 0) == 4 * 300 + 3 * 100


def test_sends_that_overlap_do_not_hold_the_sender_up() -> None:
    lengths = [
        _length_ns(
            laid_out(
                model(2), Plan(pipeline=2, global_batch=8, overlap=Overlap(pipeline=overlaps))
            ).graph,
            40,
        )
        for overlaps in (True, False)
    ]

    assert lengths[0] < lengths[1]
    # The first stage computes its eight microbatches, and stands still for each of its sends.
    assert lengths[1] >= 8 * 300 + 8 * 40


def test_transfers_in_both_directions_do_not_wait_for_each_other() -> None:
    plan = Plan(pipeline=2, global_batch=16)

    found_ns = _length_ns(laid_out(model(2, layer(100, 50, 50)), plan).graph, 90)

    # Were both directions one link, each microbatch would take 180 ns for transfers at least.
    alone_ns = 17 * 200
    assert found_ns <= alone_ns + 2 * 90 + 16 * 90


def test_chunks_that_follow_each_other_on_a_stage_need_no_transfer() -> None:
    assert laid_out(model(2), Plan(global_batch=4)).graph.collectives == ()
