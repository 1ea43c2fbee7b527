"""A Llama that a user writes is the zoo's: operators, FLOPs, bytes, exchanges, memory, the step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("torch", reason="PyTorch is not installed")

from foretrace.capture import capture
from foretrace.estimate import estimate
from foretrace.machine import load_machine
from foretrace.operators import ModuleProgram, work_of
from foretrace.workload import (
    Block,
    Exchange,
    FeedForward,
    Implementation,
    ModelAttention,
    ModelBlocks,
    Operator,
    Passes,
    Plan,
    Recompute,
    Sharding,
    Transformer,
    blocks_of_model,
    flops,
)
from tests.capture.module.networks import Llama, tokens_and_answers
from tests.models import transformer

SIZES = (1024, 16, 4, 2816, 4096)  # hidden, heads, key heads, width, vocabulary
TOKENS, LAYERS = 512, 4
EAGER = Implementation(
    fuses_norms=False,
    fuses_activations=False,
    fuses_rotary=False,
    fuses_projections=False,
    fuses_gradients=False,
    fuses_loss=False,
    repeats_keys=True,
)
STYLES = {"*.w[qkv]": "column", "*.wo": "row", "*.w[13]": "column", "*.w2": "row"}


def plan_of(**fields: Any) -> Plan:
    plan = Plan(sequence=TOKENS, implementation=EAGER, **fields)
    return replace(plan, precision=replace(plan.precision, gradients="bf16", reduced="bf16"))


def model() -> Transformer:
    hidden, heads, keys, width, vocabulary = SIZES
    found = transformer("llama3-8b")
    return replace(
        found,
        num_layers=LAYERS,
        hidden=hidden,
        vocabulary=vocabulary,
        attention=ModelAttention(heads, keys, hidden // heads, False, False, False, False, None),
        feed_forward=FeedForward(width, is_gated=True, has_bias=False),
    )


@pytest.fixture(scope="module")
def program() -> ModuleProgram:
    return capture(Llama(LAYERS, sizes=SIZES, tokens=TOKENS), tokens_and_answers(tokens=TOKENS))


def names(block: Block) -> Counter[str]:
    """Operators by name; copies and fused attention have several each."""
    operators = (one for one in block.items if isinstance(one, Operator))
    bases = [one.name.rpartition("::")[2].rstrip("_") for one in operators]
    return Counter(
        "attention" if "attention" in base else "copy" if base == "clone" else base
        for base in bases
    )


def amounts(block: Block) -> tuple[int, int]:
    """FLOPs of products, and bytes of everything."""
    works = [work_of(one.name, one.signature) for one in block.items if isinstance(one, Operator)]
    assert None not in works
    known = [work for work in works if work is not None]
    return sum(one.flops for one in known if one.is_product), sum(one.num_bytes for one in known)


def part_of(blocks: ModelBlocks, place: str) -> Passes:
    found = {"embedding": blocks.embedding, "layer": blocks.layers[0], "head": blocks.head}[place]
    assert found is not None
    return found


@pytest.mark.parametrize("place", ["embedding", "layer", "head"])
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_operators_flops_and_bytes_are_the_zoo_s(
    program: ModuleProgram, place: str, direction: str
) -> None:
    mine, zoo = blocks_of_model(program, plan_of()), blocks_of_model(model(), plan_of())
    own, other = (getattr(part_of(blocks, place), direction) for blocks in (mine, zoo))

    if (place, direction) == ("embedding", "backward"):
        # The zoo adds rows up in a table of zeros, which PyTorch counts as one operator.
        assert amounts(own)[1] == pytest.approx(amounts(other)[1], rel=0.2)
    else:
        assert names(own) == names(other)
        assert amounts(own) == amounts(other)


def test_parameters_layers_and_messages_are_the_zoo_s(program: ModuleProgram) -> None:
    plan = plan_of(pipeline=2, global_batch=2)
    mine, zoo = blocks_of_model(program, plan), blocks_of_model(model(), plan)

    for one, other in zip(
        (mine.embedding, *mine.layers, mine.head),
        (zoo.embedding, *zoo.layers, zoo.head),
        strict=True,
    ):
        assert one is not None
        assert other is not None
        assert one.parameters == other.parameters
    assert len({id(layer) for layer in mine.layers}) <= 2  # the first has nothing before it
    assert (mine.transfer_bytes, mine.transfer_dtype) == (zoo.transfer_bytes, zoo.transfer_dtype)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"data": 8, "global_batch": 8}, id="data parallel"),
        pytest.param({"data": 8, "global_batch": 32}, id="gradients accumulated"),
        pytest.param({"data": 8, "global_batch": 8, "sharding": Sharding.ZERO3}, id="FSDP"),
        pytest.param({"data": 2, "pipeline": 4, "global_batch": 16}, id="pipeline"),
        pytest.param({"data": 8, "global_batch": 8, "recompute": Recompute.FULL}, id="recompute"),
    ],
)
def test_steps_and_memory_are_the_zoo_s(program: ModuleProgram, fields: Mapping[str, Any]) -> None:
    plan, machine = plan_of(**fields), load_machine("dgx-h100")

    mine, zoo = estimate(program, plan, machine), estimate(model(), plan, machine)

    assert mine.step_ns == pytest.approx(zoo.step_ns, rel=0.03)
    assert mine.mfu == pytest.approx(zoo.mfu, rel=0.03)
    assert mine.footprint is not None
    assert zoo.footprint is not None
    for part in ("parameters", "gradients", "optimizer"):
        assert getattr(mine.footprint.peak, part) == getattr(zoo.footprint.peak, part), part
    own, other = mine.footprint.peak, zoo.footprint.peak
    assert own.activations == pytest.approx(other.activations, rel=0.03)


def test_flops_per_token_are_the_zoo_s_but_for_the_diagonal(program: ModuleProgram) -> None:
    mine, zoo = flops(program), flops(model(), TOKENS)

    # The zoo takes half the square of scores, operators the half with its diagonal.
    assert mine.unit == "token"
    assert mine.training == pytest.approx(zoo.training, rel=0.001)


def test_divided_layers_exchange_what_the_zoo_s_do() -> None:
    # With one head of keys a rank PyTorch repeats it without a copy; so two of them.
    sizes = (1024, 16, 8, 2816, 4096)
    divided = capture(
        Llama(1, sizes=sizes, tokens=TOKENS),
        tokens_and_answers(tokens=TOKENS),
        tensor=4,
        divided=STYLES,
    )
    plan = plan_of(tensor=4, global_batch=1)
    zoo_model = replace(model(), attention=replace(model().attention, num_kv_heads=8))
    own, other = (blocks_of_model(one, plan).layers[0] for one in (divided, zoo_model))

    for block, zoo in ((own.forward, other.forward), (own.backward, other.backward)):
        assert sent(block) == sent(zoo)
        assert amounts(block)[0] == amounts(zoo)[0]
        assert names(block) == names(zoo)
    assert own.parameters == other.parameters


def sent(block: Block) -> list[tuple[str, str, int, str]]:
    return [
        (one.collective, one.group.value, one.num_bytes, one.dtype)
        for one in block.items
        if isinstance(one, Exchange)
    ]
