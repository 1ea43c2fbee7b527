"""What ranks of TENSOR exchange around products, behind the embedding and in the loss.

Outputs divided over ranks ("columns"): the input is the same on all of them, so its gradients are
summed; inputs divided ("rows"): results are summed. With sequence parallelism each sum leaves a
rank its share of the tokens only (reduce-scatter), and they are gathered before the next product.

Source:
    Shoeybi et al., "Megatron-LM", arXiv:1909.08053; Korthikanti et al., arXiv:2205.05198, which
    gathers the input once more for the weights' gradient; NVIDIA/Megatron-LM,
    megatron/core/tensor_parallel/cross_entropy.py, and, for the loss in one pass,
    megatron/core/fusions/fused_cross_entropy.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from foretrace.base import CollectiveKind
from foretrace.workload.exchanges.exchange import Anchored, Exchange, Turn, exchange
from foretrace.workload.plan.plan import Group, Plan

# Into how many pieces a product and its exchange are cut where they overlap.
# Source: Transformer Engine, `initialize_ub`: `num_splits` 4.
_PIECES = 4
_WIDE = "fp32"  # of all numbers that the loss sums

Around = Callable[[Plan, str, int], tuple[Anchored, ...]]


def around_columns(
    plan: Plan, label: str, count: int, *, operands: str = ""
) -> tuple[Anchored, ...]:
    """What is exchanged around products whose outputs are divided, in the order of issue.

    Args:
        plan: of the job.
        label: of the products.
        count: numbers that go into them on every rank.
        operands: number format in which they are gathered; as the plan multiplies if left out.
    """
    if plan.tensor == 1:
        return ()
    is_beside = plan.overlap.tensor_backward
    summed = Anchored(
        exchange(f"sum of {label} input gradients", _sum_of(plan), *_made(plan, count)),
        Turn.INPUT_GRADIENT,
        is_behind=True,
        awaited_by=None if is_beside else Turn.WEIGHT_GRADIENT,
    )
    if not plan.sequence_parallel:
        return (summed,)
    size = (count, operands or plan.precision.sent_operands)
    gathered = exchange(f"gathered input of {label}", CollectiveKind.ALL_GATHER, Group.TENSOR, size)
    first = Anchored(gathered, Turn.FORWARD, is_behind=False, awaited_by=Turn.FORWARD)
    # Gathered beside the input's gradient, which is scattered beside the weights'.
    again = Anchored(
        replace(gathered, is_weight_gradient=True),
        Turn.INPUT_GRADIENT,
        is_behind=not is_beside,
        awaited_by=Turn.WEIGHT_GRADIENT,
    )
    return (first, again, summed) if is_beside else (first, summed, again)


def around_rows(plan: Plan, label: str, count: int) -> tuple[Anchored, ...]:
    """What is exchanged around a product whose inputs are divided.

    Args:
        plan: of the job.
        label: of the product.
        count: numbers that come out of it on every rank.
    """
    if plan.tensor == 1:
        return ()
    summed = exchange(f"sum of {label}", _sum_of(plan), *_made(plan, count))
    behind = Anchored(summed, Turn.FORWARD, is_behind=True)
    if not plan.sequence_parallel:
        return (behind,)
    size = (count, plan.precision.sent_operands)
    gathered = exchange(
        f"gathered gradient of {label}", CollectiveKind.ALL_GATHER, Group.TENSOR, size
    )
    turn = Turn.INPUT_GRADIENT
    return (behind, Anchored(gathered, turn, is_behind=False, awaited_by=turn))


def around_lookup(plan: Plan, label: str, count: int) -> tuple[Anchored, ...]:
    """What is exchanged around the embedding, whose rows are divided: what is not found is summed.

    Args:
        plan: of the job.
        label: of the lookup.
        count: numbers that come out of it on every rank.
    """
    if plan.tensor == 1:
        return ()
    size = (count, plan.precision.activations)
    summed = exchange(f"sum of {label}s", _sum_of(plan), Group.TENSOR, size)
    behind = Anchored(summed, Turn.FORWARD, is_behind=True)
    if not plan.sequence_parallel:
        return (behind,)
    gathered = exchange(
        f"gathered {label} gradients", CollectiveKind.ALL_GATHER, Group.TENSOR, size
    )
    awaiting = Turn.WEIGHT_GRADIENT  # of the table; it has no other
    before = Anchored(gathered, Turn.INPUT_GRADIENT, is_behind=False, awaited_by=awaiting)
    return (behind, before)


def whole_heads(
    plan: Plan, label: str, count: int
) -> tuple[tuple[Exchange, ...], tuple[Exchange, ...]]:
    """All heads of some tokens for some heads of all, and back, around a norm over all heads.

    Args:
        plan: of the job.
        label: of what is normed.
        count: numbers of it on every rank.
    """
    if plan.tensor == 1:
        return (), ()
    all_to_all, numbers = CollectiveKind.ALL_TO_ALL, _made(plan, count)
    there = exchange(f"{label} of all heads", all_to_all, *numbers)
    return (there,), (exchange(f"{label} of all tokens", all_to_all, *numbers),)


def sums_of_loss(plan: Plan, tokens: int) -> tuple[Exchange, ...]:
    """What the loss of divided logits sums, a number a token: each is waited for at once.

    In one pass over the logits the right logit and the sum of exponentials go together.
    """
    if plan.tensor == 1:
        return ()
    sums: tuple[tuple[str, int], ...] = (
        ("largest logit of all", tokens),
        ("right logit of all", tokens),
        ("sum of exponentials of all", tokens),
    )
    if plan.implementation.fuses_loss:
        sums = (sums[0], ("right logit and sum of exponentials", 2 * tokens))
    return tuple(
        exchange(label, CollectiveKind.ALL_REDUCE, Group.TENSOR, (count, _WIDE))
        for label, count in sums
    )


def num_pieces(plan: Plan, rows: int) -> int:
    """Into how many pieces of tokens a forward product is cut, to run beside its exchange."""
    is_cut = plan.tensor > 1 and plan.sequence_parallel and plan.overlap.tensor
    return _PIECES if is_cut and rows % (_PIECES * plan.tensor) == 0 else 1


def _sum_of(plan: Plan) -> CollectiveKind:
    return CollectiveKind.REDUCE_SCATTER if plan.sequence_parallel else CollectiveKind.ALL_REDUCE


def _made(plan: Plan, count: int) -> tuple[Group, tuple[int, str]]:
    return Group.TENSOR, (count, plan.precision.made)
