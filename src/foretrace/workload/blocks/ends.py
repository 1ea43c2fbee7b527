"""Both ends of a model: of tokens, embedding and loss; of pictures, patches and pooling.

Over ranks of TENSOR both tables are divided by tokens of the vocabulary: a rank finds its own
tokens, and what it does not find is summed; the loss needs the largest logit, the right one and
the sum of exponentials over all ranks.

No rank divides them. A patch's convolution is the product that it comes to, without the gradient
of the picture; a loss is left out where nothing is classified.

Source:
    huggingface/transformers, modeling_vit.py and modeling_siglip.py; NVIDIA/Megatron-LM,
    megatron/core/models/vision/clip_vit_model.py, whose `conv1` every rank has whole.
"""

from __future__ import annotations

from dataclasses import replace

from foretrace.workload.blocks.block import Operator
from foretrace.workload.blocks.calls import (
    cast,
    elementwise,
    embedding,
    fused,
    gathered_copy,
    loss,
    loss_backward,
    product_with_bias,
    row_sum,
    rows_of_table,
    softmax,
    zeros,
)
from foretrace.workload.blocks.linear import (
    Weight,
    accumulation,
    columns,
    placed,
    plain,
    weight_gradient,
)
from foretrace.workload.blocks.pointwise import (
    Joint,
    activation_step,
    norm_step,
    soft_cap_step,
    stream_norm_steps,
)
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import array, call
from foretrace.workload.blocks.steps import Step, operator
from foretrace.workload.exchanges.activations import around_lookup, sums_of_loss
from foretrace.workload.exchanges.exchange import Exchange, Turn
from foretrace.workload.models.transformer import Patches, Pooling, Positions

_WIDE = "fp32"
_ALONE = Joint(sums_gradients=False)


def embedding_steps(setting: Setting) -> list[Step]:
    """From tokens to the first layer's input."""
    model, plan = setting.model, setting.plan
    tokens, width, kept = setting.tokens, model.hidden, setting.kept
    table = setting.vocabulary
    looked_up = embedding(table, width, (plan.micro_batch, setting.length), kept)
    zeroed, *added_up = _table_gradient(setting, table, "embedding")
    gradients = {Turn.INPUT_GRADIENT: (zeroed,), Turn.WEIGHT_GRADIENT: tuple(added_up)}
    around = around_lookup(plan, "embedding", tokens * width)
    forward = placed({Turn.FORWARD: (operator("embedding", looked_up),)}, around)
    steps = [Step(forward, placed(gradients, around))]
    own = (setting.own_tokens, width)
    if model.positions is Positions.LEARNED:
        added = elementwise("aten::add", own, kept, reads=2)
        found = embedding(model.context, width, (plan.micro_batch, setting.length), kept)
        steps.append(
            Step(
                (operator("positions", found), operator("sum with positions", added)),
                _table_gradient(setting, model.context, "positions"),
            )
        )
    if model.has_embedding_norm:
        steps.append(norm_step(setting, "embedding norm", own, _ALONE))
    return steps


def _table_gradient(setting: Setting, rows: int, label: str) -> tuple[Operator, ...]:
    """Rows are added up in a table of zeros, and the table to gradients from before."""
    width, kept = setting.model.hidden, setting.kept
    found = [
        operator(f"{label} gradient zeros", zeros((rows, width), kept), is_weight_gradient=True),
        operator(
            f"{label} gradient",
            rows_of_table(rows, width, setting.tokens, kept),
            is_weight_gradient=True,
        ),
    ]
    if setting.accumulates:
        found.append(accumulation(setting, f"{label} gradient", (rows, width)))
    return tuple(found)


def head_steps(setting: Setting, *, has_branches: bool = False) -> list[Step]:
    """From the last layer's output to the loss.

    Args:
        setting: model and plan.
        has_branches: whether prediction modules take the last layer's output too.
    """
    joint = Joint(sums_gradients=has_branches)
    weight = Weight("output projection", setting.model.hidden, setting.vocabulary)
    return [
        *stream_norm_steps(setting, "final norm", joint),
        columns(setting, (weight,), is_wide=True),
        *loss_steps(setting),
    ]


def loss_steps(setting: Setting) -> list[Step]:
    """Cross entropy of this rank's share of the logits, which may have a cap."""
    shape = (setting.tokens, setting.vocabulary)
    cap = [soft_cap_step(setting, "logits", shape)] if setting.model.caps_logits else []
    return [*cap, *_cross_entropy(setting)]


def _cross_entropy(setting: Setting) -> list[Step]:
    if setting.plan.implementation.fuses_loss:
        return [_fused_loss(setting)]
    return [_parallel_loss(setting)] if setting.plan.tensor > 1 else [_plain_loss(setting)]


def _fused_loss(setting: Setting) -> Step:
    """Logits are read once each way; their gradient takes their place."""
    rows, columns_here, kept = setting.tokens, setting.vocabulary, setting.made
    read = operator("cross entropy", loss("aten::cross_entropy_loss", rows, columns_here, kept))
    gradient = softmax("aten::_log_softmax_backward_data", (rows, columns_here), kept)
    back = (operator("cross entropy gradient", gradient),)
    if setting.plan.tensor == 1:
        return Step((read,), back)
    largest = operator(
        "largest logit", call("aten::amax", array((rows, columns_here), kept), "[1]")
    )
    both = call("aten::add", array((rows,), _WIDE), array((rows,), _WIDE))
    first, second = sums_of_loss(setting.plan, rows)
    forward = (
        largest,
        first,
        replace(read, after=(-1,)),
        second,
        operator("loss", both, -1),
    )
    return Step(forward, back)


def _plain_loss(setting: Setting) -> Step:
    """PyTorch's cross entropy of logits in fp32: logarithms of a softmax, then the loss."""
    rows, kept = setting.tokens, setting.made
    shape = (rows, setting.vocabulary)
    gradient = softmax("aten::_log_softmax_backward_data", shape, _WIDE, reads=2)
    forward = [
        operator("log softmax", softmax("aten::_log_softmax", shape, _WIDE)),
        operator("loss", loss("aten::nll_loss_forward", *shape, _WIDE)),
    ]
    backward = [
        operator("loss gradient", loss_backward(*shape, _WIDE)),
        operator("log softmax gradient", gradient),
    ]
    if kept != _WIDE:
        forward.insert(0, operator("cast of logits", cast(shape, kept, _WIDE)))
        backward.append(operator("cast of logits' gradient", cast(shape, _WIDE, kept)))
    return Step(tuple(forward), tuple(backward))


def _parallel_loss(setting: Setting) -> Step:
    """Megatron's operators one by one, in fp32."""
    rows, kept = setting.tokens, setting.made
    shape = (rows, setting.vocabulary)
    logits = array(shape, _WIDE)
    forward: list[Operator | Exchange] = []
    backward: list[Operator | Exchange] = [
        operator("copy of softmax", elementwise("aten::clone", shape, _WIDE)),
        operator("gradient of each loss", call("aten::mul", logits, array((rows, 1), _WIDE))),
    ]
    if kept != _WIDE:
        forward.append(operator("cast of logits", cast(shape, kept, _WIDE)))
        backward.append(operator("cast of logits' gradient", cast(shape, _WIDE, kept)))
    each = call("aten::sub", logits, array((rows, 1), _WIDE))
    largest, right_logit, exponentials = sums_of_loss(setting.plan, rows)
    right = call("aten::gather", logits, "1", array((rows, 1), "int64"))
    forward += [
        operator("largest logit", call("aten::amax", logits, "[1]")),
        largest,
        operator("logits below the largest", each, -1),
        operator("right logit", right),
        right_logit,
        operator("exponentials", elementwise("aten::exp", shape, _WIDE), -1),
        operator("sum of exponentials", call("aten::sum", logits, "[1]")),
        exponentials,
        operator("loss", fused((rows,), _WIDE, reads=2), -1),
        operator("softmax", call("aten::div", logits, array((rows, 1), _WIDE))),
    ]
    return Step(tuple(forward), tuple(backward))


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
