from dataclasses import replace

import numpy as np
import pytest

from foretrace.graph import NodeKind, Part, Phase, verify
from foretrace.simulate import simulate
from foretrace.workload import (
    AT_ONCE,
    Block,
    Group,
    Item,
    ModelBlocks,
    Orders,
    ParameterCount,
    Pass,
    Passes,
    Plan,
    Schedule,
    ScheduleUnit,
    Sharding,
    layout,
)
from tests.workload.layout.parts import exchange, laid_out, model, no_update, operator, step_ns

PAIR = (
    ScheduleUnit(Pass.FORWARD, 0, 0),
    ScheduleUnit(Pass.FORWARD, 1, 0, is_joined=True),
    ScheduleUnit(Pass.BACKWARD, 0, 0),
    ScheduleUnit(Pass.BACKWARD, 1, 0),
)


def _model(num_products: int) -> ModelBlocks:
    """A layer whose backward pass has some more products than the forward pass's two."""
    return model(1, Passes(Part.LAYER, _block(2), _block(num_products), ParameterCount()))


def _block(num_products: int) -> Block:
    """Products of 100 ns with an exchange between two of them."""
    phase = Phase.FORWARD if num_products == 2 else Phase.BACKWARD
    first = operator("product", 100, phase)
    items: tuple[Item, ...] = (first,)
    for place in range(num_products - 1):
        at = 2 * place
        items = (
            *items,
            exchange(Group.EXPERT, phase=phase, after=(at,)),
            replace(first, after=(at + 1,)),
        )
    return Block(Part.LAYER, items)


def _length_ns(blocks: ModelBlocks, units: tuple[ScheduleUnit, ...], exchange_ns: int) -> int:
    plan = Plan(data=2, expert=2, global_batch=4)
    schedule = Schedule("pair", Orders.of_units((units,)), (0,), ((0,),), (0, 0))
    graph = layout(blocks, plan, schedule, launch=AT_ONCE, optimizer=no_update).graph
    verify(graph)
    is_finish = graph.kind == NodeKind.FINISH
    return step_ns(simulate(graph, np.where(is_finish, exchange_ns, graph.measured_ns)))


@pytest.mark.parametrize("exchange_ns", [0, 60, 100])
def test_a_pair_hides_each_ones_exchanges_behind_the_others_work(exchange_ns: int) -> None:
    found_ns = _length_ns(_model(2), PAIR, exchange_ns)

    assert found_ns == 8 * 100 + 2 * exchange_ns  # those of the first and the last unit


def test_units_that_are_not_joined_wait_for_their_own_exchanges() -> None:
    apart = tuple(replace(unit, is_joined=False) for unit in PAIR)

    assert _length_ns(_model(2), apart, 100) == 8 * 100 + 4 * 100


@pytest.mark.parametrize("num_products", [1, 3, 4])
def test_pairs_of_unequal_units_lose_nothing(num_products: int) -> None:
    apart = tuple(replace(unit, is_joined=False) for unit in PAIR)
    blocks = _model(num_products)

    assert _length_ns(blocks, PAIR, 0) == (2 * 2 + 2 * num_products) * 100
    assert _length_ns(blocks, PAIR, 100) <= _length_ns(blocks, apart, 100)


@pytest.mark.parametrize(
    ("sharding", "num_gathers"),
    # Once a step, by either of the two stages that hold a chunk, or by each half of eight
    # microbatches both ways.
    [(Sharding.ZERO1, 2), (Sharding.ZERO2, 2), (Sharding.ZERO3, 16)],
)
def test_woven_units_gather_and_scatter_as_others_do(sharding: Sharding, num_gathers: int) -> None:
    one = Passes(Part.LAYER, _block(2), _block(3), ParameterCount(1_000, 0))
    plan = Plan(
        pipeline=2,
        data=2,
        expert=2,
        global_batch=16,
        schedule="dualpipe",
        sharding=sharding,
        bucket_bytes=1_500,
    )

    collectives = laid_out(model(4, one), plan).graph.collectives

    gathered = sum(each.num_bytes for each in collectives if each.name == "allgather")
    scattered = sum(each.num_bytes for each in collectives if each.name == "reducescatter")
    num_scatters = 2 if sharding is Sharding.ZERO1 else 8
    assert gathered == 4 * 1_000 * 2 * num_gathers
    assert scattered == 4 * 1_000 * 4 * num_scatters
