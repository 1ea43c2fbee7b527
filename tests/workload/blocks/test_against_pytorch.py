"""Blocks of software that fuses nothing are the operators that eager PyTorch runs, one by one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest

from foretrace.operators import parsed_shapes, work_of
from foretrace.workload import (
    Block,
    FeedForward,
    Implementation,
    ModelAttention,
    Norm,
    NormPlace,
    Plan,
    Positions,
    Transformer,
)
from foretrace.workload.blocks.signatures import array, call
from tests.models import transformer
from tests.workload.blocks.counting import first_layer, is_attention, operators

pytest.importorskip("torch", reason="PyTorch is not installed")

from tests.workload.blocks.networks import (
    HEADS,
    HIDDEN,
    KEYS,
    SIZE,
    TOKENS,
    WIDTH,
    named,
    run,
)

EAGER = Implementation(
    fuses_norms=False,
    fuses_activations=False,
    fuses_rotary=False,
    fuses_projections=False,
    fuses_gradients=False,
    repeats_keys=True,
)
PLAN = Plan(sequence=TOKENS, implementation=EAGER)
PLAN = replace(PLAN, precision=replace(PLAN.precision, gradients="bf16"))


def model_of(*, is_llama: bool) -> Transformer:
    keys = KEYS if is_llama else HEADS
    return replace(
        transformer("llama3-8b"),
        num_layers=1,
        hidden=HIDDEN,
        vocabulary=128,
        attention=ModelAttention(HEADS, keys, SIZE, False, False, False, False, None),
        feed_forward=FeedForward(WIDTH, is_gated=is_llama, has_bias=False),
        positions=Positions.ROTARY if is_llama else Positions.ALIBI,
        norm=Norm.RMS if is_llama else Norm.LAYER_WITHOUT_BIAS,
    )


def names_of(block: Block) -> Counter[str]:
    return Counter(
        "attention" if is_attention(one) else named(one.name) for one in operators(block)
    )


def products_of(block: Block) -> Counter[tuple[int, ...]]:
    found: Counter[tuple[int, ...]] = Counter()
    for one in operators(block):
        shapes = parsed_shapes(one.signature)
        if one.name == "aten::mm" and shapes is not None:
            first, second = shapes.single
            found[*first.shape, second.shape[1]] += 1
    return found


def bytes_of(block: Block) -> int:
    works = [work_of(one.name, one.signature) for one in operators(block) if not is_attention(one)]
    return sum(work.num_bytes for work in works if work is not None)


@pytest.mark.parametrize("place", list(NormPlace))
def test_a_layer_of_llama_is_the_operators_that_pytorch_runs(place: NormPlace) -> None:
    forward, backward = run(is_llama=True, place=place)

    layer = first_layer(replace(model_of(is_llama=True), norm_place=place), PLAN)

    assert names_of(layer.forward) == forward.names
    assert names_of(layer.backward) == backward.names
    assert products_of(layer.forward) == forward.products
    assert products_of(layer.backward) == backward.products


@pytest.mark.parametrize("place", list(NormPlace))
def test_a_layer_of_llama_moves_the_bytes_that_pytorch_moves(place: NormPlace) -> None:
    forward, backward = run(is_llama=True, place=place)

    layer = first_layer(replace(model_of(is_llama=True), norm_place=place), PLAN)

    assert bytes_of(layer.forward) == pytest.approx(forward.num_bytes, rel=0.005)
    assert bytes_of(layer.backward) == pytest.approx(backward.num_bytes, rel=0.005)


def test_a_layer_of_mpt_multiplies_and_moves_what_pytorch_does() -> None:
    forward, backward = run(is_llama=False)
    plan = replace(PLAN, implementation=replace(EAGER, fuses_projections=True))

    layer = first_layer(model_of(is_llama=False), plan)

    assert names_of(layer.forward) == forward.names
    assert products_of(layer.forward) == forward.products
    assert products_of(layer.backward) == backward.products
    assert bytes_of(layer.forward) == pytest.approx(forward.num_bytes, rel=0.005)


def test_signatures_are_those_of_a_profiler() -> None:
    text = call("aten::mm", array((2, 3), "bf16"), array((3, 4), "bf16")).signature

    shapes = parsed_shapes(text)

    assert shapes is not None
    assert [(one.shape, one.dtype) for one in shapes.single] == [((2, 3), "bf16"), ((3, 4), "bf16")]
