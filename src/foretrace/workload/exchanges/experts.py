"""What ranks exchange around experts: tokens on their way there and home, and their gradients.

Source:
    NVIDIA/Megatron-LM, megatron/core/transformer/moe/token_dispatcher.py.
"""

from __future__ import annotations

from foretrace.base import CollectiveKind, distinct
from foretrace.workload.exchanges.exchange import Anchored, Turn, exchange
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
_SUMMED: tuple[_Row, ...] = (("sum of experts", CollectiveKind.ALL_REDUCE, Turn.FORWARD, True),)


def around_experts(plan: Plan, *, sent: int, total: int) -> tuple[Anchored, ...]:
    """What is exchanged around the experts' products: over EXPERT, and inside over EXPERT_TENSOR.

    Args:
        plan: of the job.
        sent: numbers of the tokens that a rank sends.
        total: numbers of the tokens of all experts of a rank.
    """
    rows = _TOKENS if plan.expert > 1 else ()
    shared: tuple[_Row, ...] = ()
    if expert_tensor_size(plan) > 1:
        shared = _GATHERED if gathers_tokens(plan) else _SUMMED
    both = ((rows, Group.EXPERT, sent), (shared, Group.EXPERT_TENSOR, total))
    return tuple(
        Anchored(exchange(label, name, group, (count, _sent_as(label, plan))), turn, is_behind)
        for found, group, count in both
        for label, name, turn, is_behind in found
    )


def _sent_as(label: str, plan: Plan) -> str:
    """Number format of what is sent: tokens may be quantised before they leave."""
    is_narrow = plan.dispatch.quantised and label == _TO_EXPERTS
    return plan.precision.sent_operands if is_narrow else plan.precision.made


def copies_of(plan: Plan, chosen: int) -> float:
    """How many copies of a token leave its rank, for so many chosen experts.

    Of copies by host those count that the network carries: hosts forward them over links that are
    many times as fast.
    """
    dispatch = plan.dispatch
    if dispatch.copies is Copies.BY_EXPERT:
        return chosen
    if dispatch.copies is Copies.BY_RANK or plan.expert <= dispatch.host_ranks:
        return float(distinct(plan.expert, chosen))
    hosts = float(distinct(plan.expert // dispatch.host_ranks, chosen))
    return min(hosts, dispatch.most_hosts) if dispatch.most_hosts else hosts


def gathers_tokens(plan: Plan) -> bool:
    """Whether the ranks that divide an expert route different tokens, and gather them."""
    return expert_tensor_size(plan) > 1 and plan.sequence_parallel and plan.tensor > 1
