"""A denoising network's blocks against its totals."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.cost.signatures import UNKNOWN, operation_of
from foretrace.graph import Phase
from foretrace.operators import OperatorClass, operator_class, work_of
from foretrace.workload import (
    Block,
    DenoisingUNet,
    DiT,
    Implementation,
    ModelBlocks,
    Operator,
    Passes,
    Plan,
    Recompute,
    blocks_of_diffusion,
    flops,
    load_model,
    parameters,
)

UNETS = ("stable-diffusion-1.5", "stable-diffusion-xl", "modelscope-video")
PATCHED = ("stable-diffusion-3-medium", "flux.1-dev")
NAMES = (*UNETS, *PATCHED)
CLIPS = "modelscope-video"


def preset(name: str) -> DenoisingUNet | DiT:
    found = load_model(name)
    assert isinstance(found, DenoisingUNet | DiT)
    return found


def blocks_by(name: str, attention: str = "flash", **settings: object) -> ModelBlocks:
    plan = Plan(micro_batch=2, global_batch=2, implementation=Implementation(attention=attention))
    return blocks_of_diffusion(preset(name), replace(plan, **settings))  # type: ignore[arg-type]


def parts(blocks: ModelBlocks) -> list[Passes]:
    assert blocks.embedding is not None
    assert blocks.head is not None
    return [blocks.embedding, *blocks.layers, blocks.head]


def product_flops(block: Block, label: str = "") -> int:
    found = 0
    for one in block.items:
        work = work_of(one.name, one.signature) if isinstance(one, Operator) else None
        if work is not None and work.is_product and label in one.label:
            found += work.flops
    return found


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attention", ["flash", "plain"])
def test_forward_products_have_the_models_flops(name: str, attention: str) -> None:
    blocks = blocks_by(name, attention)

    total = sum(product_flops(part.forward) for part in parts(blocks))

    assert total == 2 * flops(preset(name)).forward


@pytest.mark.parametrize("name", NAMES)
def test_backward_products_are_twice_the_forward_ones_but_for_what_nothing_asks(name: str) -> None:
    model, blocks = preset(name), blocks_by(name, "plain")

    total = sum(product_flops(part.backward) for part in parts(blocks))

    assert blocks.embedding is not None
    begin = blocks.embedding.forward
    # No gradient goes back to the latent, to the step's number, or to the text.
    if isinstance(model, DenoisingUNet):
        first = model.channels[0]
        inputs = first + model.added_width
        unasked = product_flops(begin, "first convolution") + 2 * 2 * inputs * 4 * first
    else:
        inputs = 256 * (1 + model.has_guidance) + model.pooled_width
        unasked = sum(product_flops(begin, each) for each in ("patches", "text"))
        unasked -= product_flops(begin, "time and text")
        unasked += 2 * 2 * inputs * model.hidden
    for label in ("text attention keys", "text attention values"):
        unasked += sum(product_flops(part.forward, label) for part in parts(blocks))
    assert total == 2 * flops(model).backward - unasked


def test_fused_attention_computes_scores_once_more_on_the_way_back() -> None:
    fused, plain = blocks_by(NAMES[0]), blocks_by(NAMES[0], "plain")

    more = sum(
        product_flops(one.backward) - product_flops(other.backward)
        for one, other in zip(parts(fused), parts(plain), strict=True)
    )

    scores = sum(
        part.forward
        for part in flops(preset(NAMES[0])).parts
        if part.part in {"attention within frames", "attention to the text"}
    )
    assert more == 2 * scores / 2  # of two samples, one of the two forward products


@pytest.mark.parametrize("name", NAMES)
def test_parts_hold_the_models_parameters(name: str) -> None:
    held = sum(part.parameters.dense for part in parts(blocks_by(name)))

    assert held == parameters(preset(name)).total


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("attention", ["flash", "plain"])
def test_every_operator_can_be_costed(name: str, attention: str) -> None:
    for part in parts(blocks_by(name, attention)):
        for one in (*part.forward.items, *part.backward.items):
            assert isinstance(one, Operator)
            assert operation_of(one.name, one.signature).model != UNKNOWN, one.label


def test_attention_sees_a_quarter_of_the_positions_a_level_down() -> None:
    lengths = []
    for part in blocks_by(NAMES[0]).layers:
        for one in part.forward.items:
            if isinstance(one, Operator) and one.label == "attention":
                work = operation_of(one.name, one.signature)
                lengths.append(work.sizes[4])

    assert sorted(set(lengths)) == [64, 256, 1024, 4096]
    assert lengths == sorted(lengths[:7], reverse=True) + sorted(lengths[7:])


def test_attention_over_time_has_frames_over_positions_of_the_flops() -> None:
    part = blocks_by(CLIPS).layers[1]  # behind the first residual block

    spatial = one_kernel(part, "attention")
    temporal = one_kernel(part, "attention over time")

    # F sequences of S positions against S sequences of F.
    assert temporal / spatial == pytest.approx(16 / (32 * 32))


def one_kernel(part: Passes, label: str) -> int:
    chosen = [one for one in part.forward.items if one.label == label]
    assert isinstance(chosen[0], Operator)
    work = work_of(chosen[0].name, chosen[0].signature)
    assert work is not None
    return work.flops


def test_layers_alike_are_one_object() -> None:
    blocks = blocks_by(NAMES[0])

    distinct = {id(layer) for layer in blocks.layers}
    assert len(distinct) == 24
    assert len(blocks.layers) == 44


def test_recompute_repeats_the_forward_pass_of_layers() -> None:
    blocks = blocks_by(NAMES[0], recompute=Recompute.FULL)

    for part in blocks.layers:
        again = [one.label for one in part.backward.items if one.phase is Phase.RECOMPUTE]
        assert again == [one.label for one in part.forward.items]


def test_convolutions_are_classed_as_such() -> None:
    classes = {
        operator_class(one.name, one.name)
        for part in blocks_by(NAMES[0]).layers
        for one in (*part.forward.items, *part.backward.items)
        if isinstance(one, Operator) and "convolution" in one.name
    }

    assert classes == {OperatorClass.CONVOLUTION}


def test_a_plan_that_divides_the_network_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"tp is 4, and .* only dp divides"):
        blocks_of_diffusion(preset(NAMES[0]), Plan(tensor=4))
