"""Both ends of an encoder of pictures: the projection of patches, and what pools their tokens.

No rank divides them. A patch's convolution is the product that it comes to, without the gradient
of the picture; a loss is left out where nothing is classified.

Source:
    huggingface/transformers, modeling_vit.py and modeling_siglip.py; NVIDIA/Megatron-LM,
    megatron/core/models/vision/clip_vit_model.py, whose `conv1` every rank has whole.
"""

from __future__ import annotations

from foretrace.workload.blocks.calls import (
    elementwise,
    fused,
    gathered_copy,
    loss,
    loss_backward,
    product_with_bias,
    row_sum,
    softmax,
)
from foretrace.workload.blocks.linear import Weight, plain, weight_gradient
from foretrace.workload.blocks.pointwise import Joint, activation_step, norm_step, stream_norm_steps
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import array, call
from foretrace.workload.blocks.steps import Step, operator
from foretrace.workload.models.transformer import Patches, Pooling

_WIDE = "fp32"
_ALONE = Joint(sums_gradients=False)


def patch_steps(setting: Setting) -> list[Step]:
    """From pictures to the first layer's input."""
    model, patches = setting.model, _patches(setting)
    rows, dtype = setting.plan.micro_batch * patches.num_patches, setting.multiplied_wide
    weight = Weight("patch projection", patches.num_numbers, model.hidden, has_bias=True)
    projected = product_with_bias(rows, model.hidden, patches.num_numbers, dtype)
    tokens = (setting.tokens, model.hidden)
    steps = [
        Step(
            (operator(weight.label, projected),),
            weight_gradient(setting, weight, rows, dtype),
        )
    ]
    if patches.has_class_token:
        joined = operator("class token beside patches", fused(tokens, setting.kept, reads=1))
        steps.append(Step((joined,), (joined,)))
    added = elementwise("aten::add", tokens, setting.kept, reads=2)
    by_picture = (setting.plan.micro_batch, patches.num_tokens, model.hidden)
    summed = operator(
        "positions gradient", row_sum(by_picture, setting.kept, 0), is_weight_gradient=True
    )
    return [*steps, Step((operator("sum with positions", added),), (summed,))]


def pooled_steps(setting: Setting) -> list[Step]:
    """From the last layer's output to a vector of each picture, its classes and their loss."""
    model, patches = setting.model, _patches(setting)
    steps = stream_norm_steps(setting, "final norm", _ALONE)
    pictures, hidden, dtype = setting.plan.micro_batch, model.hidden, setting.multiplied_wide
    if patches.pooling is Pooling.ATTENTION:
        steps += _attended(setting, patches)
    elif patches.num_classes or patches.pooling is Pooling.CLASS:
        row = gathered_copy((pictures, hidden), setting.made, row_stride=setting.length * hidden)
        first = operator("first token of each picture", row)
        steps.append(Step((first,), (first,)))
    if patches.pooling is Pooling.CLASS:
        pooler = Weight("pooler", hidden, hidden, has_bias=True)
        steps.append(plain(setting, (pooler,), pictures, dtype))
    if patches.num_classes:
        classifier = Weight("classifier", hidden, patches.num_classes, has_bias=True)
        steps += [plain(setting, (classifier,), pictures, dtype), _loss(setting, patches)]
    return steps


def _attended(setting: Setting, patches: Patches) -> list[Step]:
    """One learned query sees all tokens of a picture; then a feed-forward part."""
    model, made = setting.model, setting.made
    hidden, pictures, said = model.hidden, setting.plan.micro_batch, model.feed_forward
    heads, dtype = model.attention.num_heads, setting.multiplied_wide
    size = hidden // heads

    def one(label: str, inputs: int, outputs: int, rows: int) -> Step:
        return plain(setting, (Weight(label, inputs, outputs, has_bias=True),), rows, dtype)

    query = array((pictures, 1, heads, size), made)
    key = array((pictures, patches.num_tokens, heads, size), made)
    statistics = array((pictures, heads, 1), _WIDE)
    lengths = (None, None, "1", str(patches.num_tokens), "0.", "False", "False")
    name = "aten::_flash_attention"
    forward = call(f"{name}_forward", query, key, key, *lengths)
    given = (query, query, key, key, query, statistics, *lengths)
    backward = call(f"{name}_backward", *given)
    gated = 2 if said.is_gated else 1
    return [
        one("pooling query projection", hidden, hidden, pictures),
        one("pooling key and value projection", hidden, 2 * hidden, setting.tokens),
        Step(
            (operator("pooling attention", forward),),
            (operator("pooling attention gradient", backward),),
        ),
        one("pooling output", hidden, hidden, pictures),
        norm_step(setting, "pooling norm", (pictures, hidden)),
        one("pooling up projection", hidden, gated * said.width, pictures),
        activation_step(setting, pictures, said.width, is_gated=said.is_gated),
        one("pooling down projection", said.width, hidden, pictures),
    ]


def _loss(setting: Setting, patches: Patches) -> Step:
    shape = (setting.plan.micro_batch, patches.num_classes)
    gradient = softmax("aten::_log_softmax_backward_data", shape, _WIDE, reads=2)
    return Step(
        (
            operator("log softmax", softmax("aten::_log_softmax", shape, _WIDE)),
            operator("loss", loss("aten::nll_loss_forward", *shape, _WIDE)),
        ),
        (
            operator("loss gradient", loss_backward(*shape, _WIDE)),
            operator("log softmax gradient", gradient),
        ),
    )


def _patches(setting: Setting) -> Patches:
    """The model's.

    Raises:
        TypeError: if it has none.
    """
    if setting.model.patches is None:
        raise TypeError(f"{setting.model.name} sees no patches")
    return setting.model.patches
