"""Both ends of a model: the embedding of tokens, and the norm, output projection and loss.

Over ranks of TENSOR both tables are divided by tokens of the vocabulary: a rank finds its own
tokens, and what it does not find is summed; the loss needs the largest logit, the right one and
the sum of exponentials over all ranks.

Source:
    NVIDIA/Megatron-LM, megatron/core/tensor_parallel/cross_entropy.py, and, for the loss in one
    pass, megatron/core/fusions/fused_cross_entropy.py.
"""

from __future__ import annotations

from dataclasses import replace

from foretrace.workload.blocks.block import Exchange, Operator
from foretrace.workload.blocks.calls import (
    cast,
    elementwise,
    embedding,
    fused,
    loss,
    loss_backward,
    rows_of_table,
    softmax,
    zeros,
)
from foretrace.workload.blocks.linear import Weight, accumulation, columns
from foretrace.workload.blocks.pointwise import Joint, norm_step, stream_norm_steps
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import array, call, num_bytes
from foretrace.workload.blocks.steps import Step, exchange, operator
from foretrace.workload.models.transformer import Positions
from foretrace.workload.plan.plan import Group

_WIDE = "fp32"
_ALONE = Joint(sums_gradients=False)


def embedding_steps(setting: Setting) -> list[Step]:
    """From tokens to the first layer's input."""
    model, plan = setting.model, setting.plan
    tokens, width, kept = setting.tokens, model.hidden, setting.kept
    table = setting.vocabulary
    looked_up = embedding(table, width, (plan.micro_batch, setting.length), kept)
    forward: list[Operator | Exchange] = [operator("embedding", looked_up)]
    backward: list[Operator | Exchange] = list(_table_gradient(setting, table, "embedding"))
    if plan.tensor > 1:
        size = (num_bytes(tokens * width, kept), kept)
        is_cut = setting.is_sequence_parallel
        collective = "reduce_scatter" if is_cut else "all_reduce"
        forward.append(exchange("sum of embeddings", collective, Group.TENSOR, size))
        if is_cut:
            gathered = exchange("gathered embedding gradients", "all_gather", Group.TENSOR, size)
            backward = [gathered, backward[0], replace(backward[1], after=(-2,)), *backward[2:]]
    steps = [Step(tuple(forward), tuple(backward))]
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
        columns(setting, (weight,), dtype=setting.multiplied_wide),
        *loss_steps(setting),
    ]


def loss_steps(setting: Setting) -> list[Step]:
    """Cross entropy of this rank's share of the logits."""
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
    return Step(
        (
            largest,
            _sum("largest logit of all", rows),
            Operator(read.label, read.name, read.signature, read.phase, after=(-1,)),
            _sum("right logit and sum of exponentials", 2 * rows),
            Operator("loss", both.name, both.signature, read.phase, after=(-1,)),
        ),
        back,
    )


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
    right = call("aten::gather", logits, "1", array((rows, 1), "int64"))
    forward += [
        operator("largest logit", call("aten::amax", logits, "[1]")),
        _sum("largest logit of all", rows),
        operator("logits below the largest", each, -1),
        operator("right logit", right),
        _sum("right logit of all", rows),
        operator("exponentials", elementwise("aten::exp", shape, _WIDE), -1),
        operator("sum of exponentials", call("aten::sum", logits, "[1]")),
        _sum("sum of exponentials of all", rows),
        operator("loss", fused((rows,), _WIDE, reads=2), -1),
        operator("softmax", call("aten::div", logits, array((rows, 1), _WIDE))),
    ]
    return Step(tuple(forward), tuple(backward))


def _sum(label: str, count: int) -> Exchange:
    return exchange(label, "all_reduce", Group.TENSOR, (num_bytes(count, _WIDE), _WIDE))
