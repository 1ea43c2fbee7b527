"""What ranks exchange around experts: tokens on their way there and home, and their gradients.

Source:
    NVIDIA/Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py.
"""

from __future__ import annotations

from dataclasses import replace

from foretrace.base import CollectiveKind, Dispatched, Library, distinct
from foretrace.workload.exchanges.exchange import Anchored, Exchange, Turn, exchange
from foretrace.workload.plan.groups import expert_tensor_size
from foretrace.workload.plan.plan import Copies, Group, Plan

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
    by = Dispatched(library, chosen, host_ranks, dispatch.most_hosts)
    return replace(found, dispatched=by)


def copies_of(plan: Plan, chosen: int) -> float:
    """How many copies of a token leave its rank or are forwarded, for so many chosen experts."""
    if plan.dispatch.copies is Copies.BY_EXPERT:
        return chosen
    return float(distinct(plan.expert, chosen))


def gathers_tokens(plan: Plan) -> bool:
    """Whether the ranks that divide an expert route different tokens, and gather them."""
    return expert_tensor_size(plan) > 1 and plan.sequence_parallel and plan.tensor > 1
