"""Rewriting shapes: operators of a model under one plan become those of another, to the letter."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from foretrace.base import ScenarioError
from foretrace.graph import Part, Phase
from foretrace.whatif.resize.named import DimensionKind, Dimensions, Sizes
from foretrace.whatif.resize.of_model import sizes_of
from foretrace.whatif.resize.rewriting import Context, RecordedOperator, rewritten_block
from foretrace.whatif.resize.tensors import strided
from foretrace.workload import Implementation, Plan, Transformer
from tests.models import transformer
from tests.whatif.resize.models import PARTS, known_of, operators, rewritten, with_sizes

SHORT = Plan(tensor=2, micro_batch=2, sequence=1024)
PLANS = {
    "divided": SHORT,
    "with sequence parallel": replace(SHORT, sequence_parallel=True),
    "alone": Plan(micro_batch=1, sequence=2048),
}
SOFTWARE = {
    "fused": Implementation(),
    "plain attention": Implementation(attention="plain"),
    "operator by operator": Implementation(
        fuses_projections=False,
        fuses_norms=False,
        fuses_activations=False,
        fuses_rotary=False,
        fuses_loss=False,
    ),
    "cudnn": Implementation(attention="cudnn", repeats_keys=True, fuses_gradients=False),
}
# Of these no reading of the shapes alone can be right: a pair of gradients beside each other looks
# like two sequences, and a square matrix like itself turned.
TWO_WAYS = ("norm parameters' gradient", "accumulation of attention output weight gradient")


def edited(sizes: Sizes, plan: Plan, edit: str) -> tuple[Sizes, Plan]:
    """Sizes and plan of one edit."""
    doubled = {
        "hidden": {"hidden": 2 * (sizes.hidden or 0)},
        "feed-forward": {"feed_forward": 2 * (sizes.feed_forward or 0)},
        "vocabulary": {"vocabulary": (sizes.vocabulary or 0) // 2},
        "heads": {
            "heads": 2 * (sizes.heads or 0),
            "key_value_heads": 2 * (sizes.key_value_heads or 0),
        },
    }
    plans = {
        "sequence": replace(plan, sequence=2 * plan.sequence),
        "microbatch": replace(plan, micro_batch=2 * plan.micro_batch),
        "tensor": replace(plan, tensor=2 * plan.tensor),
    }
    return replace(sizes, **doubled.get(edit, {})), plans.get(edit, plan)


def differing(
    model: Transformer, plan: Plan, after: tuple[Sizes, Plan], known: Dimensions
) -> list[str]:
    """Labels of operators whose rewritten signature is not that of the edited model's own."""
    found = []
    for part in PARTS:
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            wanted = operators(with_sizes(model, after[0]), after[1], part, phase)
            got = rewritten(model, plan, known, part=part, phase=phase)
            assert len(wanted) == len(got)
            found += [
                one.label
                for one, other in zip(wanted, got, strict=True)
                if json.loads(one.signature) != json.loads(other.signature)
            ]
    return found


@pytest.mark.parametrize(
    ("name", "plan", "software"),
    [
        *(("llama3-8b", plan, software) for plan in PLANS for software in SOFTWARE),
        *(("gpt3-175b", plan, "fused") for plan in PLANS),
        ("gpt3-175b", "divided", "plain attention"),
    ],
)
def test_operators_become_those_of_the_edited_model(name: str, plan: str, software: str) -> None:
    model, base = transformer(name), replace(PLANS[plan], implementation=SOFTWARE[software])
    sizes = sizes_of(model)

    for edit in ("hidden", "feed-forward", "vocabulary", "heads", "sequence", "microbatch"):
        after = edited(sizes, base, edit)
        wrong = differing(model, base, after, known_of((sizes, base), after))

        assert [label for label in wrong if not label.endswith(TWO_WAYS)] == [], edit


@pytest.mark.parametrize("software", SOFTWARE)
@pytest.mark.parametrize("is_cut", [False, True])
def test_more_tensor_ranks_divide_what_they_divide(software: str, is_cut: bool) -> None:
    model = transformer("llama3-8b")
    base = replace(SHORT, sequence_parallel=is_cut, implementation=SOFTWARE[software])
    sizes = sizes_of(model)
    after = (sizes, replace(base, tensor=4))

    assert differing(model, base, after, known_of((sizes, base), after)) == []


@pytest.mark.parametrize("plan", PLANS)
def test_the_recorded_sizes_give_the_recorded_signatures_themselves(plan: str) -> None:
    model, base = transformer("llama3-8b"), PLANS[plan]
    sizes = sizes_of(model)
    known = known_of((sizes, base), (sizes, base))

    for part in PARTS:
        for phase in (Phase.FORWARD, Phase.BACKWARD):
            found = rewritten(model, base, known, part=part, phase=phase)
            wanted = operators(model, base, part, phase)
            assert [one.signature for one in found] == [one.signature for one in wanted]
            assert all(one.is_known for one in found)


@st.composite
def jobs(draw: st.DrawFn) -> tuple[Transformer, Plan, Sizes, Plan]:
    """A model under a plan, and both after an edit of anything."""
    model = transformer("llama3-8b")
    pairs = []
    tensors = draw(st.sampled_from([[1], [2, 4]]))  # from one rank to two the operators differ
    for _ in range(2):
        keys = draw(st.sampled_from([8, 12]))  # more than one on each rank
        sizes = Sizes(
            layers=1,
            hidden=draw(st.integers(9, 40)) * 104,
            feed_forward=draw(st.integers(20, 60)) * 184,
            heads=keys * draw(st.sampled_from([2, 3])),
            key_value_heads=keys,
            head_width=draw(st.sampled_from([72, 80, 112])),
            vocabulary=draw(st.integers(200, 900)) * 88,
        )
        plan = Plan(
            tensor=draw(st.sampled_from(tensors)),
            micro_batch=draw(st.sampled_from([1, 3, 5])),
            sequence=draw(st.integers(5, 30)) * 76,
        )
        pairs.append((sizes, plan))
    (before, plan), (after, new_plan) = pairs
    return with_sizes(model, before), plan, after, new_plan


@settings(max_examples=15)
@given(jobs())
def test_any_sizes_become_any_others_where_no_two_are_equal(
    job: tuple[Transformer, Plan, Sizes, Plan],
) -> None:
    model, plan, after, new_plan = job
    known = known_of((sizes_of(model), plan), (after, new_plan))
    widths = [one.before for one in known.by_name.values() if one.kind is DimensionKind.WIDTH]
    tokens = {one.before for one in known.by_name.values() if one.kind is DimensionKind.TOKENS}
    assume(len(set(widths)) == len(widths))
    assume(not tokens & set(widths))

    wrong = differing(model, plan, (after, new_plan), known)

    assert [label for label in wrong if not label.endswith(TWO_WAYS)] == []


@settings(max_examples=15)
@given(jobs())
def test_there_and_back_again_is_where_it_began(
    job: tuple[Transformer, Plan, Sizes, Plan],
) -> None:
    model, plan, after, new_plan = job
    there = known_of((sizes_of(model), plan), (after, new_plan))
    back = known_of((after, new_plan), (sizes_of(model), plan))
    widths = [one.after for one in there.by_name.values() if one.kind is DimensionKind.WIDTH]
    tokens = {one.after for one in there.by_name.values() if one.kind is DimensionKind.TOKENS}
    assume(len(set(widths)) == len(widths))
    assume(not tokens & set(widths))

    for phase in (Phase.FORWARD, Phase.BACKWARD):
        block = operators(model, plan, Part.LAYER, phase)
        gone = rewritten(model, plan, there, part=Part.LAYER, phase=phase)
        moved = [
            RecordedOperator(one.name, new.signature) for one, new in zip(block, gone, strict=True)
        ]
        found = rewritten_block(moved, Context(Part.LAYER, phase, back))

        pairs = zip(block, gone, found, strict=True)
        sure = [(one, last) for one, new, last in pairs if not new.is_ambiguous]
        assert all(json.loads(one.signature) == json.loads(last.signature) for one, last in sure)


def test_ranks_that_do_not_divide_a_size_are_refused_with_the_arithmetic() -> None:
    model = transformer("llama3-8b")
    sizes = sizes_of(model)
    known = known_of((sizes, SHORT), (sizes, replace(SHORT, tensor=3)))

    with pytest.raises(ScenarioError, match=r"14,336 / 3|14,336|is not whole"):
        rewritten(model, SHORT, known, part=Part.LAYER, phase=Phase.FORWARD)


def test_a_feed_forward_share_as_wide_as_the_model_is_told_by_its_place() -> None:
    """Four ranks of a GPT: hidden size, share of the feed-forward width: 512 both."""
    sizes = Sizes(hidden=512, feed_forward=2048, heads=8, key_value_heads=8, head_width=64)
    plan = Plan(tensor=4, micro_batch=2, sequence=96)
    known = known_of((sizes, plan), (replace(sizes, feed_forward=4096), plan))
    shapes = {
        "qkv": [[192, 512], [512, 384]],
        "output": [[192, 128], [128, 512]],
        "up": [[192, 512], [512, 512]],
        "down": [[192, 512], [512, 512]],
    }
    attention = [[2, 2, 96, 64]] * 3
    activation, residual = [[192, 512]], [[192, 512], [192, 512]]
    block = [
        _ran("aten::mm", shapes["qkv"]),
        _ran("aten::_scaled_dot_product_flash_attention", attention),
        _ran("aten::mm", shapes["output"]),
        _ran("aten::add", residual),
        _ran("aten::mm", shapes["up"]),
        _ran("aten::gelu", activation),
        _ran("aten::mm", shapes["down"]),
        _ran("aten::add", residual),
    ]

    found = rewritten_block(block, Context(Part.LAYER, Phase.FORWARD, known))

    dims = [json.loads(one.signature)["dims"] for one in found]
    assert dims[4] == [[192, 512], [512, 1024]]
    assert dims[5] == [[192, 1024]]
    assert dims[6] == [[192, 1024], [1024, 512]]
    assert [dims[at] for at in (0, 1, 2, 3)] == [
        shapes["qkv"],
        attention,
        shapes["output"],
        residual,
    ]


def _ran(operator: str, dims: list[list[int]]) -> RecordedOperator:
    signature = {"dims": dims, "types": ["c10::BFloat16"] * len(dims)}
    return RecordedOperator(operator, json.dumps(signature, separators=(",", ":")))


def test_a_kernel_that_clears_a_products_output_is_part_of_the_product() -> None:
    sizes = Sizes(hidden=512, feed_forward=2048, heads=8, key_value_heads=8, head_width=64)
    plan = Plan(micro_batch=2, sequence=96)
    known = known_of((sizes, plan), (sizes, replace(plan, sequence=192)))
    product = _ran("aten::mm", [[192, 512], [512, 1536]])
    kernels = ("Memset (Device)", "sm90_xmma_gemm", "cublasLt::splitKreduce_kernel")
    block = [replace(product, kernel=kernel) for kernel in kernels]

    found = rewritten_block(block, Context(Part.LAYER, Phase.FORWARD, known))

    assert {one.role for one in found} == {found[1].role}
    assert found[1].role is not None


def test_what_no_size_explains_is_named_unknown_and_left_as_it_is() -> None:
    sizes = Sizes(hidden=512, feed_forward=2048, heads=8, key_value_heads=8, head_width=64)
    plan = Plan(micro_batch=2, sequence=96)
    known = known_of((sizes, plan), (replace(sizes, hidden=1024), plan))
    odd = _ran("aten::mul", [[7, 331]])

    (found,) = rewritten_block([odd], Context(Part.LAYER, Phase.FORWARD, known))

    assert not found.is_known
    assert found.signature == odd.signature


def test_of_images_the_batch_alone_is_known_and_kernels_have_none() -> None:
    """As many images as channels: 64."""
    plan = Plan(micro_batch=64, sequence=1)
    known = known_of((Sizes(), plan), (Sizes(), replace(plan, micro_batch=128)))
    images, kernel = [64, 64, 56, 56], [64, 64, 3, 3]
    block = [
        _ran("aten::cudnn_convolution", [images, kernel]),
        _ran("aten::convolution_backward", [images, images, kernel]),
        _ran("aten::relu", [images]),
        _ran("aten::cudnn_batch_norm", [images, [256]]),
    ]

    found = rewritten_block(block, Context(Part.LAYER, Phase.UNKNOWN, known))

    doubled = [128, 64, 56, 56]
    assert [json.loads(one.signature)["dims"] for one in found] == [
        [doubled, kernel],
        [doubled, doubled, kernel],
        [doubled],
        [doubled, [256]],
    ]


def test_logits_as_wide_as_both_feed_forward_matrices_are_told_by_the_part_they_are_in() -> None:
    """Vocabulary 2,048, feed-forward width 1,024."""
    sizes = Sizes(
        hidden=256, feed_forward=1024, heads=8, key_value_heads=8, head_width=32, vocabulary=2048
    )
    plan = Plan(micro_batch=4, sequence=128)
    known = known_of((sizes, plan), (replace(sizes, feed_forward=4096), plan))
    logits = _ran("aten::_log_softmax", [[512, 2048]])

    (loss,) = rewritten_block([logits], Context(Part.LOSS, Phase.FORWARD, known))
    (layer,) = rewritten_block([logits], Context(Part.LAYER, Phase.FORWARD, known))

    assert json.loads(loss.signature)["dims"] == [[512, 2048]]
    assert not loss.is_ambiguous
    assert json.loads(layer.signature)["dims"] == [[512, 8192]]


def test_a_dimension_without_elements_lies_in_memory_as_one_of_a_single_element() -> None:
    assert strided([3, 1], [0, 3], [0, 6], {}) == [6, 1]
    assert strided([0, 1], [2, 0], [4, 0], {}) == [0, 1]
    assert strided([4, 4, 1], [2, 0, 4], [2, 0, 8], {}) == [8, 8, 1]
