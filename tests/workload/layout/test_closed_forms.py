from dataclasses import replace

import pytest

from foretrace.graph import Part, Phase
from foretrace.workload import Block, Group, Overlap, ParameterCount, Passes, Plan
from tests.workload.layout.parts import exchange, layer, model, operator, run_ns

TIMES = [(100, 120, 80), (7, 5, 3), (50, 50, 50)]


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(("stages", "microbatches"), [(1, 3), (2, 2), (4, 4), (4, 9), (8, 32)])
@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("overlaps", [True, False])
def test_one_forward_one_backward_takes_its_closed_form(
    times: tuple[int, int, int], stages: int, microbatches: int, schedule: str, overlaps: bool
) -> None:
    plan = Plan(
        pipeline=stages,
        global_batch=microbatches,
        schedule=schedule,
        overlap=Overlap(pipeline=overlaps),
    )

    found_ns = run_ns(model(stages, layer(*times)), plan)

    assert found_ns == (microbatches + stages - 1) * sum(times)


@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize(
    ("stages", "chunks", "microbatches"), [(2, 2, 2), (4, 2, 8), (4, 3, 16), (8, 4, 16)]
)
def test_interleaving_divides_the_bubble_by_the_chunks(
    times: tuple[int, int, int], stages: int, chunks: int, microbatches: int
) -> None:
    plan = Plan(
        pipeline=stages, global_batch=microbatches, schedule="interleaved", num_chunks=chunks
    )

    found_ns = run_ns(model(stages * chunks, layer(*times)), plan)

    stage_ns = chunks * sum(times)  # of one microbatch, all chunks of a stage
    assert found_ns == microbatches * stage_ns + (stages - 1) * stage_ns // chunks


@pytest.mark.parametrize("contiguous", [4, 8, 16])
def test_more_microbatches_in_a_row_leave_the_interleaved_bubble(contiguous: int) -> None:
    plan = Plan(
        pipeline=4,
        global_batch=16,
        schedule="interleaved",
        num_chunks=2,
        contiguous=contiguous,
    )

    found_ns = run_ns(model(8), plan)

    assert found_ns == (16 * 2 + 3) * 300


@pytest.mark.parametrize("times", [(100, 120, 80), (50, 50, 50), (70, 80, 60)])
@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (4, 12), (8, 16)])
def test_putting_weight_gradients_off_shortens_the_bubble(
    times: tuple[int, int, int], stages: int, microbatches: int
) -> None:
    plan = Plan(pipeline=stages, global_batch=microbatches, schedule="zb-h1")

    found_ns = run_ns(model(stages, layer(*times)), plan)

    forward, inputs, weights = times
    bubble_ns = (stages - 1) * (forward + inputs - weights)
    assert found_ns == microbatches * sum(times) + bubble_ns


def test_a_stated_split_of_the_backward_pass_is_taken() -> None:
    whole = layer(100, 120, 80)
    stated = Passes(
        part=whole.part,
        forward=whole.forward,
        backward=whole.backward,
        parameters=ParameterCount(),
        input_backward=Block(Part.LAYER, (operator("own input part", 50, Phase.BACKWARD),)),
        weight_backward=Block(Part.LAYER, (operator("own weight part", 40, Phase.BACKWARD),)),
    )

    found_ns = run_ns(model(4, stated), Plan(pipeline=4, global_batch=8, schedule="zb-h1"))

    assert found_ns == 8 * 190 + 3 * (100 + 50 - 40)


@pytest.mark.parametrize(("stages", "microbatches"), [(2, 4), (4, 8), (4, 12), (8, 16), (8, 20)])
def test_dualpipe_has_its_published_bubble(stages: int, microbatches: int) -> None:
    forward = inputs = weights = 60
    # The forward pass of a pair ends behind its backward pass: it waits for an exchange there.
    ends_late = (
        operator("product", forward),
        exchange(Group.EXPERT, after=(0,)),
        operator("residual sum", 0, after=(1,)),
    )
    one = layer(forward, inputs, weights)
    late = Passes(one.part, Block(Part.LAYER, ends_late), one.backward, ParameterCount())
    plan = Plan(pipeline=stages, global_batch=microbatches, schedule="dualpipe")

    found_ns = run_ns(model(stages, late), plan)

    pair, backward = forward + inputs + weights, inputs + weights
    bubble_ns = (stages // 2 - 1) * (pair + backward - 3 * weights)
    assert found_ns == microbatches * (forward + backward) + bubble_ns


def test_the_slowest_stage_never_waits_once_it_has_begun() -> None:
    slow, fast = layer(100, 100, 100), layer(10, 10, 10)
    blocks = replace(model(4), layers=(fast, slow, fast, fast))

    found_ns = run_ns(blocks, Plan(pipeline=4, global_batch=8, schedule="1f1b"))

    # The first stage's forward pass before, its backward pass behind.
    assert found_ns == 10 + 8 * 300 + 20
