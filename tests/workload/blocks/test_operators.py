"""Operators of blocks: known to cost models, fused or one by one, in the formats of the plan."""

from __future__ import annotations

from dataclasses import replace

import pytest

from foretrace.base import WorkloadError
from foretrace.cost import operation_of
from foretrace.graph import Phase
from foretrace.operators import parsed_shapes, work_of
from foretrace.workload import (
    Block,
    ContextExchange,
    Implementation,
    Plan,
    Precision,
    Recompute,
    Scales,
    Sharding,
    Transformer,
    blocks_of_model,
    load_model,
    optimizer_block,
)
from tests.models import transformer
from tests.workload.blocks.counting import (
    distinct,
    exchanges,
    first_layer,
    moved_bytes,
    operators,
)

LLAMA, MPT = transformer("llama3-8b"), transformer("mpt-7b")
# One of every make: grouped and latent attention, biases, learned positions, ALiBi, experts,
# shared ones, chunks, windows, sinks, norms of heads, prediction modules.
MODELS = (
    "llama3-8b",
    "gpt2-large",
    "bloom-176b",
    "deepseek-v3-mtp",
    "mixtral-8x7b",
    "llama4-scout",
    "gpt-oss-20b",
    "qwen3-30b-a3b",
)
EAGER = Implementation(
    fuses_norms=False,
    fuses_activations=False,
    fuses_rotary=False,
    fuses_loss=False,
    fuses_optimizer=False,
    fuses_projections=False,
    fuses_gradients=False,
    repeats_keys=True,
)
PLANS = {
    "one rank": Plan(sequence=2048),
    "eager": Plan(sequence=2048, implementation=EAGER, global_batch=2),
    "eager tensor ranks": Plan(sequence=2048, tensor=2, implementation=EAGER),
    "plain": Plan(sequence=2048, implementation=Implementation(attention="plain")),
    "residuals": Plan(
        sequence=2048,
        tensor=2,
        sequence_parallel=True,
        implementation=Implementation(fuses_residuals=True, attention="cudnn", launch="compiled"),
    ),
    "ring": Plan(sequence=2048, context=2, context_exchange=ContextExchange.RING),
    "gathered": Plan(sequence=2048, context=2, expert=2, recompute=Recompute.FULL),
    "eight bits": Plan(
        sequence=2048,
        sharding=Sharding.ZERO3,
        precision=Precision(products="fp8"),
        implementation=Implementation(copies_shards=True),
    ),
    "four bits": Plan(sequence=2048, precision=Precision(products="nvfp4")),
    "autocast": Plan(sequence=2048, precision=Precision(activations="fp32", parameters="fp32")),
}


def labels(block: Block) -> list[str]:
    return [item.label for item in block.items]


def dtype_of(block: Block, label: str) -> str:
    one = next(item for item in operators(block) if item.label == label)
    shapes = parsed_shapes(one.signature)
    assert shapes is not None
    return shapes.single[-1].dtype


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_cost_models_know_every_operator(plan: Plan) -> None:
    unknown = {
        (name, operator.label, operator.name)
        for name in MODELS
        for one in distinct(blocks_of_model(replace(transformer(name), num_layers=4), plan))
        for operator in (*operators(one.forward), *operators(one.backward))
        if not operation_of(operator.name, operator.signature).model
    }

    assert unknown == set()


@pytest.mark.parametrize("fuses", [True, False])
def test_cost_models_know_the_optimizer(fuses: bool) -> None:
    plan = Plan(
        precision=Precision(products="fp8"), implementation=Implementation(fuses_optimizer=fuses)
    )

    block = optimizer_block(1_000_000, plan)

    assert all(operation_of(one.name, one.signature).model for one in operators(block))
    assert {item.phase for item in block.items} == {Phase.OPTIMIZER}


def test_adam_in_one_pass_reads_sixteen_bytes_and_writes_twelve() -> None:
    block = optimizer_block(1_000_000, Plan())

    adam = next(one for one in operators(block) if one.label == "Adam")
    work = work_of(adam.name, adam.signature)

    assert work is not None
    assert work.num_bytes == 28_000_000


def test_gradients_that_a_rank_holds_are_zeroed_besides_its_share() -> None:
    zeroed = operators(optimizer_block(100, Plan(), num_gradients=800))[-1]

    work = work_of(zeroed.name, zeroed.signature)

    assert work is not None
    assert (zeroed.label, work.num_bytes) == ("gradients to zero", 3200)


def test_one_kernel_moves_fewer_bytes_than_operators_one_by_one() -> None:
    for switch in ("fuses_norms", "fuses_activations", "fuses_rotary"):
        apart = Plan(sequence=2048, implementation=Implementation(**{switch: False}))  # type: ignore[arg-type]
        fused, eager = (first_layer(LLAMA, plan) for plan in (Plan(sequence=2048), apart))

        assert moved_bytes(fused.forward) < moved_bytes(eager.forward), switch
        assert len(fused.forward.items) < len(eager.forward.items), switch
        assert len(fused.backward.items) < len(eager.backward.items), switch


def test_swiglu_in_one_kernel_moves_what_it_reads_and_writes() -> None:
    layer = first_layer(LLAMA, Plan(sequence=2048))
    forward = next(one for one in operators(layer.forward) if one.label == "SwiGLU")
    backward = next(one for one in operators(layer.backward) if one.label == "SwiGLU gradient")

    found = [work_of(one.name, one.signature) for one in (forward, backward)]

    tensor = 2048 * 14336 * 2
    assert [work.num_bytes for work in found if work is not None] == [3 * tensor, 5 * tensor]


def test_a_norm_that_takes_the_residual_sum_saves_its_kernel() -> None:
    joint = Plan(
        sequence=2048, implementation=Implementation(fuses_residuals=True, launch="compiled")
    )

    found = labels(first_layer(LLAMA, joint).forward)

    assert "residual sum and feed-forward norm" in found
    assert found.count("residual sum") == 1


def test_grouped_keys_are_copied_for_every_head_where_software_does() -> None:
    plan = Plan(sequence=2048, implementation=Implementation(repeats_keys=True))
    layer = first_layer(LLAMA, plan)

    copied = next(one for one in operators(layer.forward) if one.label == "repeated keys")
    attention = next(one for one in operators(layer.forward) if one.label == "attention")

    assert operation_of(attention.name, attention.signature).sizes[:3] == (1, 32, 32)
    work = work_of(copied.name, copied.signature)
    assert work is not None
    assert work.num_bytes == 2048 * (8 + 32) * 128 * 2
    assert "repeated keys" not in labels(first_layer(MPT, plan).forward)


def test_eight_bit_products_leave_attention_and_the_last_projection_wide() -> None:
    blocks = blocks_of_model(LLAMA, Plan(sequence=2048, precision=Precision(products="fp8")))
    assert blocks.head is not None

    assert dtype_of(blocks.layers[0].forward, "qkv projection") == "fp8"
    assert dtype_of(blocks.layers[0].backward, "down projection weight gradient") == "fp8"
    assert dtype_of(blocks.layers[0].forward, "attention") == "bf16"
    assert dtype_of(blocks.head.forward, "output projection") == "bf16"


def test_eight_bit_weights_are_made_once_a_step_or_after_every_gather() -> None:
    plan = Plan(sequence=2048, precision=Precision(products="fp8"))
    gathered = replace(plan, sharding=Sharding.ZERO3)

    def has_casts(one: Plan) -> bool:
        return any(label.startswith("cast of") for label in labels(first_layer(LLAMA, one).forward))

    assert (has_casts(plan), has_casts(gathered)) == (False, True)
    assert "quantised weights" in labels(optimizer_block(100, plan))
    assert "quantised weights" not in labels(optimizer_block(100, gathered))


def test_operands_are_quantised_once_for_all_products_of_them() -> None:
    plan = Plan(sequence=2048, precision=Precision(products="fp8"))
    layer = first_layer(LLAMA, plan)

    made = [one for one in operators(layer.forward) if one.label.endswith("quantised")]
    assert [one.label for one in made] == [
        "input of qkv projection quantised",
        "input of attention output quantised",
        "input of up projection quantised",
        "input of down projection quantised",
    ]
    work = work_of(made[0].name, made[0].signature)
    assert work is not None
    assert work.num_bytes == 2048 * 4096 * (2 + 1 + 1)  # read, and written along both sides
    gradients = [one for one in labels(layer.backward) if one.endswith("quantised")]
    assert len(gradients) == 4


@pytest.mark.parametrize(("products", "is_turned"), [("fp8", True), ("mxfp8", False)])
def test_a_share_of_the_tokens_is_quantised_before_they_are_gathered(
    products: str, is_turned: bool
) -> None:
    plan = Plan(
        sequence=2048, tensor=4, sequence_parallel=True, precision=Precision(products=products)
    )
    layer = first_layer(LLAMA, plan)

    own = next(one for one in operators(layer.forward) if "input of qkv" in one.label)
    whole = next(one for one in operators(layer.forward) if "input of down" in one.label)
    shapes = [parsed_shapes(one.signature) for one in (own, whole)]
    assert [one.single[-1].shape for one in shapes if one is not None] == [
        (512, 4096),
        (2048, 14336 // 4),
    ]
    # One scale for all numbers: what was gathered is transposed; blocks' are gathered both ways.
    assert ("gathered input of qkv projection transposed" in labels(layer.backward)) == is_turned


def test_scales_that_are_measured_cost_a_reading_of_every_operand() -> None:
    plan = Plan(sequence=2048, sharding=Sharding.ZERO3, precision=Precision(products="fp8"))
    measured = replace(plan, implementation=Implementation(measures_scales=True))
    known, looked = (first_layer(LLAMA, one).forward for one in (plan, measured))

    difference = moved_bytes(looked) - moved_bytes(known)

    inputs = 2048 * (4096 + 4096 + 4096 + 14336)
    weights = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336
    assert difference == pytest.approx(2 * (inputs + weights), rel=1e-4)
    assert all(operation_of(one.name, one.signature).model for one in operators(looked))


def test_scales_of_rows_quantise_both_sides_of_what_was_gathered_whole() -> None:
    by_rows = Precision(products="fp8", scales=Scales.ROW)
    plan = Plan(
        sequence=2048,
        tensor=4,
        sequence_parallel=True,
        sharding=Sharding.ZERO3,
        precision=by_rows,
    )
    wide = replace(plan, precision=replace(by_rows, wide_weight_gradients=True))
    layer, other = first_layer(LLAMA, plan), first_layer(LLAMA, wide)

    gathered = exchanges(layer.forward)[0]
    own = next(one for one in operators(layer.forward) if one.label.startswith("input of qkv"))
    assert gathered.num_bytes == 2048 * 4096 * 2  # in 16 bits
    assert own.label == "input of qkv projection quantised by rows"
    shapes = parsed_shapes(own.signature)
    assert shapes is not None
    assert [one.shape for one in shapes.single] == [(2048, 4096)] * 2
    found = labels(layer.backward)
    for what in ("input", "gradient"):
        assert f"{what} of qkv projection transposed" in found
        assert f"{what} of qkv projection quantised by columns" in found
    assert "qkv projection weight quantised by columns" in found
    assert not any("largest" in one for one in labels(layer.forward))
    assert all(operation_of(one.name, one.signature).model for one in operators(layer.backward))
    assert dtype_of(layer.backward, "qkv projection weight gradient") == "fp8"
    assert dtype_of(other.backward, "qkv projection weight gradient") == "bf16"
    assert not any("by columns" in one for one in labels(other.backward))


def test_scaled_rotations_and_clamps_are_kernels_of_their_own_where_nothing_joins_them() -> None:
    model = transformer("gpt-oss-20b")
    apart = Implementation(fuses_scaled_rotary=False)

    def found(model: Transformer, implementation: Implementation) -> list[str]:
        layer = first_layer(model, Plan(sequence=2048, implementation=implementation))
        return [*labels(layer.forward), *labels(layer.backward)]

    here, captured = found(model, apart), found(model, replace(apart, launch="graph"))

    assert here.count("query rotation: times cosines") == 2
    assert "query rotation" not in here
    assert here.count("clamped gate") == here.count("clamped gate gradient") == 1
    assert "query rotation: sum" in captured  # no graph changes what is run
    assert not any("clamped" in one for one in captured)
    assert "query rotation" in found(model, Implementation())
    assert "query rotation" in found(LLAMA, apart)
    joined = found(model, Implementation(fuses_clamps=True))
    assert not any("clamped" in one for one in joined)
    assert "SwiGLU" in joined


def test_views_of_one_product_s_result_are_read_across_and_their_gradients_joined() -> None:
    eager = replace(EAGER, fuses_projections=True, rotates_halves=True)
    joint, apart = (
        first_layer(LLAMA, Plan(sequence=2048, implementation=one)) for one in (eager, EAGER)
    )

    def access(block: Block, label: str) -> str:
        (one,) = {each for each in operators(block) if each.label == label}
        return operation_of(one.name, one.signature).kind

    for label in ("SiLU", "gate times up", "query rotation: half negated"):
        assert access(joint.forward, label) == "uneven"
    for label in ("gate gradient", "SiLU gradient", "qkv gradients joined"):
        assert access(joint.backward, label) == "uneven"
    assert access(joint.backward, "up gradient") == "stream"
    assert access(apart.forward, "SiLU") == access(apart.backward, "SiLU gradient") == "stream"
    joined = {"qkv gradients joined", "gate and up gradients joined"}
    assert joined <= set(labels(joint.backward))
    assert not joined & set(labels(apart.backward))
    # The halves of a head, turned: no complex number, no cast, and no rest to be joined.
    turned = [one for one in labels(joint.forward) if one.startswith("query rotation")]
    assert [one.partition(": ")[2] for one in turned] == [
        "times cosines",
        "half negated",
        "halves joined",
        "times sines",
        "sum",
    ]
    assert "query rotation: rotation" in labels(apart.forward)


def test_without_copies_in_fp32_the_optimizer_updates_parameters_as_they_are() -> None:
    plan = Plan(precision=Precision(optimizer_bytes=4.0))
    alone, beside = optimizer_block(1_000_000, plan), optimizer_block(1_000_000, Plan())

    adam, copied = (
        next(one for one in operators(block) if one.label == "Adam") for block in (alone, beside)
    )

    # Parameters, gradient and two moments are read, all but the gradient written: 2 bytes each.
    work, known = (work_of(one.name, one.signature) for one in (adam, copied))
    assert work is not None
    assert known is not None
    assert (work.num_bytes, known.num_bytes) == (7 * 2 * 1_000_000, 7 * 4 * 1_000_000)
    assert "cast of parameters" in labels(beside)
    assert "cast of parameters" not in labels(alone)


def test_gradients_are_set_to_zero_where_products_add_to_them() -> None:
    apart = Plan(implementation=Implementation(fuses_gradients=False))

    assert "gradients to zero" in labels(optimizer_block(100, Plan()))
    assert "gradients to zero" not in labels(optimizer_block(100, apart))


def test_autocast_casts_activations_and_weights_and_their_gradients_back() -> None:
    plan = Plan(sequence=2048, precision=Precision(activations="fp32", parameters="fp32"))
    layer = first_layer(LLAMA, plan)

    assert labels(layer.forward).count("cast of activations") == 2
    assert "cast of qkv projection weight" in labels(layer.forward)
    assert "cast of qkv projection weight gradient" in labels(layer.backward)
    assert dtype_of(layer.forward, "qkv projection") == "bf16"
    assert dtype_of(layer.forward, "attention norm") == "bf16"
    assert dtype_of(layer.forward, "residual sum") == "fp32"
    assert labels(layer.backward)[-2:] == [
        "cast of activations' gradient",
        "residual gradient sum",
    ]


def test_weight_gradients_are_added_by_their_product_or_by_a_kernel() -> None:
    plan = Plan(sequence=2048)
    apart = replace(plan, implementation=Implementation(fuses_gradients=False))
    scattered = replace(apart, sharding=Sharding.ZERO3)

    def is_added(one: Plan) -> bool:
        found = labels(first_layer(LLAMA, one).backward)
        return "accumulation of qkv projection weight gradient" in found

    gradient = next(
        one
        for one in operators(first_layer(LLAMA, plan).backward)
        if one.label == "qkv projection weight gradient"
    )
    assert [is_added(one) for one in (plan, apart, scattered)] == [False, True, False]
    assert gradient.name == "aten::addmm"


def test_gathered_parameters_are_copied_before_each_pass() -> None:
    plan = Plan(
        sequence=2048,
        sharding=Sharding.ZERO3,
        recompute=Recompute.FULL,
        implementation=Implementation(copies_shards=True),
    )
    layer = first_layer(LLAMA, plan)
    kept = first_layer(LLAMA, replace(plan, reshard_after_forward=False))

    assert labels(layer.forward)[0] == labels(layer.backward)[0] == "copy of gathered parameters"
    assert labels(layer.backward)[-1] == "copy of gradients to be reduced"
    assert labels(layer.backward).count("copy of gathered parameters") == 1
    assert "copy of gathered parameters" not in labels(kept.backward)


def test_loss_one_by_one_works_on_logits_in_fp32() -> None:
    plan = Plan(sequence=2048, implementation=Implementation(fuses_loss=False))
    fused, apart = (blocks_of_model(LLAMA, one).head for one in (Plan(sequence=2048), plan))
    assert fused is not None
    assert apart is not None

    assert dtype_of(apart.forward, "log softmax") == "fp32"
    difference = moved_bytes(apart.forward) - moved_bytes(fused.forward)
    # Logits: bf16 read and fp32 written; read and written again; only one of each row after.
    assert difference == pytest.approx(2048 * 128256 * (2 + 4 + 4 + 4 - 2), rel=1e-3)


def test_unknown_attention_is_refused_with_the_known_ones() -> None:
    plan = Plan(implementation=Implementation(attention="magic"))

    with pytest.raises(WorkloadError, match=r"'magic' is not known.*flash, cudnn, plain"):
        blocks_of_model(LLAMA, plan)


def test_unknown_number_formats_are_refused_with_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match=r"'int3' is unknown.*bf16"):
        blocks_of_model(LLAMA, Plan(precision=Precision(activations="int3")))


def test_plain_attention_over_context_ranks_is_refused() -> None:
    plan = Plan(context=2, implementation=Implementation(attention="plain"))

    with pytest.raises(WorkloadError, match="whole sequences, found cp 2"):
        blocks_of_model(LLAMA, plan)


def test_models_known_by_totals_alone_are_refused() -> None:
    with pytest.raises(WorkloadError, match="llama4-behemoth"):
        blocks_of_model(load_model("llama4-behemoth"), Plan())


def test_attention_in_eight_bits_quantises_what_it_multiplies() -> None:
    wide = Plan(sequence=2048, precision=Precision(products="fp8"))
    narrow = replace(wide, precision=replace(wide.precision, attention="fp8"))

    found = {item.label: item for item in operators(first_layer(LLAMA, narrow).forward)}
    usual = {item.label for item in operators(first_layer(LLAMA, wide).forward)}

    assert set(found) - usual == {"queries, keys, values in fp8"}
    costed = operation_of(found["attention"].name, found["attention"].signature)
    assert (costed.model, costed.dtype) == ("attention", "fp8")
