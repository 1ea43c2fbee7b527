"""What some families do beside attention and products, on the ranks that divide it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import CollectiveKind, WorkloadError
from foretrace.operators import parsed_shapes
from foretrace.workload import Implementation, Plan, blocks_of_model
from tests.models import transformer
from tests.workload.blocks.counting import exchanges, first_layer, operators


def test_a_norm_over_all_heads_is_of_whole_tokens_on_every_tensor_rank() -> None:
    plan = Plan(sequence=4096, tensor=4, sequence_parallel=True)

    layer = first_layer(transformer("olmo-2-32b"), plan)

    sent = [one for one in exchanges(layer.forward) if one.collective == CollectiveKind.ALL_TO_ALL]
    # bf16; 40 heads of queries and 8 of keys over 4 ranks, there and back.
    assert [one.num_bytes for one in sent] == [2 * 4096 * heads * 128 for heads in (10, 10, 2, 2)]
    shapes = [
        parsed_shapes(one.signature).single[0].shape  # type: ignore[union-attr]
        for one in operators(layer.forward)
        if one.label in {"query norm", "key norm"}
    ]
    assert shapes == [(1024, 40 * 128), (1024, 8 * 128)]
    back = [one for one in exchanges(layer.backward) if one.collective == "alltoall"]
    assert sorted(one.num_bytes for one in back) == sorted(one.num_bytes for one in sent)


def test_a_norm_over_all_heads_needs_tokens_that_ranks_divide() -> None:
    plan = Plan(sequence=4098, tensor=4)

    with pytest.raises(WorkloadError, match="tp 4 does not divide 4,098 tokens"):
        blocks_of_model(transformer("olmo-2-32b"), plan)


def test_norms_behind_see_the_tokens_that_the_sum_leaves() -> None:
    model = transformer("gemma-3-27b")
    shapes = {}
    for is_cut in (False, True):
        plan = Plan(sequence=4096, tensor=8, sequence_parallel=is_cut)
        layer = first_layer(model, plan)
        shapes[is_cut] = [
            parsed_shapes(one.signature).single[0].shape  # type: ignore[union-attr]
            for one in operators(layer.forward)
            if one.label.startswith("norm behind")
        ]

    assert shapes == {False: [(4096, 5376)] * 2, True: [(512, 5376)] * 2}


def test_a_part_of_a_head_is_turned_and_the_rest_joined_to_it() -> None:
    eager = Plan(sequence=512, implementation=Implementation(fuses_rotary=False))
    model = transformer("glm-4.5")

    rotations = [
        parsed_shapes(one.signature).single[0].shape  # type: ignore[union-attr]
        for one in operators(first_layer(model, eager).forward)
        if one.label in {"query rotation: rotation", "query rotation: joined"}
    ]

    assert rotations == [(512, 96, 32), (512 * 96, 128)]


@pytest.mark.parametrize(("is_fused", "count"), [(True, 1), (False, 3)])
def test_caps_are_kernels_of_logits_and_of_plain_scores(is_fused: bool, count: int) -> None:
    said = Implementation(attention="plain", fuses_activations=is_fused)
    blocks = blocks_of_model(
        replace(transformer("gemma-2-27b"), num_layers=2), Plan(sequence=512, implementation=said)
    )
    assert blocks.head is not None

    for block in (blocks.layers[0].forward, blocks.head.forward):
        caps = [one for one in operators(block) if one.label.startswith("cap of")]
        assert len(caps) == count
    flash = blocks_of_model(transformer("gemma-2-27b"), Plan(sequence=512))
    assert any("soft cap" in note for note in flash.notes)
