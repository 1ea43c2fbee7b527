"""What ranks exchange of activations and their gradients: in layers, at both ends, between stages.

Outputs divided over ranks ("columns"): the input is the same on all of them, so its gradients are
summed; inputs divided ("rows"): results are summed. With sequence parallelism each sum leaves a
rank its share of the tokens only (reduce-scatter), and they are gathered before the next product.

Source:
    Shoeybi et al., "Megatron-LM", arXiv:1909.08053; Korthikanti et al., arXiv:2205.05198, which
    gathers the input once more for the weights' gradient; NVIDIA/Megatron-LM,
    megatron/core/tensor_parallel/cross_entropy.py, and, for the loss in one pass,
    megatron/core/fusions/fused_cross_entropy.py.

Source:
    All at once: Llama 3, arXiv:2407.21783, section 3.3.2. Round by round: Ring Attention,
    arXiv:2310.01889. Heads for tokens: Ulysses, arXiv:2309.14509.

Source:
    NVIDIA/Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from foretrace.base import CollectiveKind, Dispatched, Library
from foretrace.workload.exchanges.exchange import Anchored, Exchange, Turn, exchange
from foretrace.workload.plan.groups import expert_tensor_size
from foretrace.workload.plan.plan import Copies, Group, Plan

# Into how many pieces a product and its exchange are cut where they overlap.
# Source: Transformer Engine, `initialize_ub`: `num_splits` 4.
_PIECES = 4
_WIDE = "fp32"  # of all numbers that the loss sums

Around = Callable[[Plan, str, int], tuple[Anchored, ...]]

# Label, collective, products before or behind which it stands.
_Row = tuple[str, CollectiveKind, Turn, bool]
_TO_EXPERTS = "tokens to experts"
_TOKENS: tuple[_Row, ...] = (
    (_TO_EXPERTS, CollectiveKind.ALL_TO_ALL, Turn.FORWARD, False),
    ("tokens home", CollectiveKind.ALL_TO_ALL, Turn.FORWARD, True),
    ("gradients to experts", CollectiveKind.ALL_TO_ALL, Turn.INPUT_GRADIENT, False),
    ("token gradients home", CollectiveKind.ALL_TO_ALL, Turn.INPUT_GRADIENT, True),
)
_GATHERED: tuple[_Row, ...] = (
    ("gathered tokens", CollectiveKind.ALL_GATHER, Turn.FORWARD, False),
    ("sum of experts", CollectiveKind.REDUCE_SCATTER, Turn.FORWARD, True),
    ("gathered gradients", CollectiveKind.ALL_GATHER, Turn.INPUT_GRADIENT, False),
    ("sum of token gradients", CollectiveKind.REDUCE_SCATTER, Turn.INPUT_GRADIENT, True),
)
_LIBRARIES = {Copies.BY_RANK: Library.HYBRID_EP, Copies.BY_HOST: Library.DEEP_EP}
_SUMMED: tuple[_Row, ...] = (("sum of experts", CollectiveKind.ALL_REDUCE, Turn.FORWARD, True),)


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


def whole_keys(plan: Plan, width: int) -> tuple[Exchange, Exchange]:
    """Keys and values of whole sequences are gathered; their gradients are summed and scattered.

    The first stands before attention, awaited by it, in either direction; the second behind its
    gradient.

    Args:
        plan: of the job.
        width: numbers of one token's keys and values on a rank.
    """
    size = (plan.micro_batch * plan.sequence * width, plan.precision.made)
    return (
        exchange("gathered keys and values", CollectiveKind.ALL_GATHER, Group.CONTEXT, size),
        exchange(
            "sum of key and value gradients", CollectiveKind.REDUCE_SCATTER, Group.CONTEXT, size
        ),
    )


def passed_on(plan: Plan, width: int) -> tuple[Exchange, Exchange]:
    """A rank's keys and values go to its neighbour, round by round; backwards gradients too.

    There are as many rounds as ranks. Keys and values go on behind each round but the last, in
    both directions; gradients behind every round.

    Args:
        plan: of the job.
        width: numbers of one token's keys and values on a rank.
    """
    size = (plan.micro_batch * plan.sequence // plan.context * width, plan.precision.made)
    return (
        exchange("keys and values passed on", CollectiveKind.SEND_RECV, Group.CONTEXT, size),
        exchange(
            "key and value gradients passed on", CollectiveKind.SEND_RECV, Group.CONTEXT, size
        ),
    )


def heads_for_tokens(plan: Plan, given: int, results: int) -> tuple[Anchored, ...]:
    """Ranks get whole sequences of some heads for their tokens of all, and give results back.

    Args:
        plan: of the job.
        given: numbers of one token's queries, keys and values on a rank.
        results: numbers that attention makes of one token on a rank.
    """
    tokens, dtype = plan.micro_batch * plan.sequence // plan.context, plan.precision.made
    rows = (
        ("heads of all tokens", given, Turn.FORWARD, False),
        ("tokens of all heads", results, Turn.FORWARD, True),
        ("gradients of heads of all tokens", results, Turn.INPUT_GRADIENT, False),
        ("gradients of tokens of all heads", given, Turn.INPUT_GRADIENT, True),
    )
    return tuple(
        Anchored(
            exchange(label, CollectiveKind.ALL_TO_ALL, Group.CONTEXT, (tokens * width, dtype)),
            turn,
            is_behind,
            awaited_by=None if is_behind else turn,
        )
        for label, width, turn, is_behind in rows
    )


def around_experts(plan: Plan, chosen: int, *, sent: int, total: int) -> tuple[Anchored, ...]:
    """What is exchanged around the experts' products: over EXPERT, and inside over EXPERT_TENSOR.

    Args:
        plan: of the job.
        chosen: experts of a token.
        sent: numbers of the tokens that a rank sends.
        total: numbers of the tokens of all experts of a rank.
    """
    rows = _TOKENS if plan.expert > 1 else ()
    shared: tuple[_Row, ...] = ()
    if expert_tensor_size(plan) > 1:
        shared = _GATHERED if gathers_tokens(plan) else _SUMMED
    both = ((rows, Group.EXPERT, sent), (shared, Group.EXPERT_TENSOR, total))
    return tuple(
        Anchored(_sent(label, (name, group), count, plan=plan, chosen=chosen), turn, is_behind)
        for found, group, count in both
        for label, name, turn, is_behind in found
    )


def _sent(
    label: str, what: tuple[CollectiveKind, Group], count: int, *, plan: Plan, chosen: int
) -> Exchange:
    """So many numbers; tokens may be quantised before they leave, and sent by a library."""
    kind, group = what
    is_narrow = plan.dispatch.quantised and label == _TO_EXPERTS
    dtype = plan.precision.sent_operands if is_narrow else plan.precision.made
    found = exchange(label, kind, group, (count, dtype))
    dispatch = plan.dispatch
    library = _LIBRARIES.get(dispatch.copies)
    if library is None or group is not Group.EXPERT:
        return found
    host_ranks = dispatch.host_ranks if library is Library.DEEP_EP else 0
    by = replace(_dispatched(plan, chosen), host_ranks=host_ranks)
    return replace(found, dispatched=by)


def copies_of(plan: Plan, chosen: int) -> float:
    """How many copies of a token leave its rank or are forwarded, for so many chosen experts."""
    if plan.dispatch.copies is Copies.BY_EXPERT:
        return chosen
    return float(_dispatched(plan, chosen).copies(plan.expert))


def _dispatched(plan: Plan, chosen: int) -> Dispatched:
    """How many places a token goes to."""
    dispatch = plan.dispatch
    most = {"most_hosts": dispatch.most_hosts, "most_ranks": dispatch.most_ranks}
    return Dispatched(_LIBRARIES[dispatch.copies], chosen, **most)


def gathers_tokens(plan: Plan) -> bool:
    """Whether the ranks that divide an expert route different tokens, and gather them."""
    return expert_tensor_size(plan) > 1 and plan.sequence_parallel and plan.tensor > 1


def handed_over(plan: Plan, count: int) -> Exchange:
    """Activations of one microbatch on their way to the next stage, or their gradients back.

    Args:
        plan: of the job.
        count: numbers that pass from layer to layer, of all ranks of TENSOR.
    """
    own = count // (plan.tensor if plan.sequence_parallel else 1)
    size = (own, plan.precision.activations)
    return exchange("activations", CollectiveKind.SEND_RECV, Group.PIPELINE, size)
