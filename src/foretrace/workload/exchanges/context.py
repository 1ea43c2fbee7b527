"""What ranks of CONTEXT exchange in attention: keys and values, and their gradients.

Source:
    All at once: Llama 3, arXiv:2407.21783, section 3.3.2. Round by round: Ring Attention,
    arXiv:2310.01889. Heads for tokens: Ulysses, arXiv:2309.14509.
"""

from __future__ import annotations

from foretrace.base import CollectiveKind
from foretrace.workload.exchanges.exchange import Anchored, Exchange, Turn, exchange
from foretrace.workload.plan.plan import Group, Plan


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
