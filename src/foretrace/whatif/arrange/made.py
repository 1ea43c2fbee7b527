"""Communication that no rank recorded: the nodes it takes, and whom it is for."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.base import CollectiveKind
from foretrace.graph import NodeKind, Phase
from foretrace.whatif.arrange.roles import ExchangeRole
from foretrace.whatif.recorded.program import (
    GROUPS,
    NO_GROUP,
    MadeExchange,
    MadeOperator,
    MadeWait,
    Placed,
)
from foretrace.workload import Group

_EXCHANGE = (NodeKind.LAUNCH, NodeKind.ARRIVE, NodeKind.FINISH)


@dataclass(frozen=True)
class Made:
    """A made exchange, operator or wait at its place."""

    placed: Placed
    role: ExchangeRole
    rank: int  # position among the job's ranks
    first: int  # its first node; of a wait without nodes: the node that follows
    num_nodes: int

    @property
    def what(self) -> MadeExchange | MadeOperator | MadeWait:
        """What was made."""
        return _made(self.placed)


def kinds_of(
    what: MadeExchange | MadeOperator | MadeWait, *, has_device: bool
) -> tuple[NodeKind, ...]:
    """The nodes that something made takes, in issue order.

    On a device the launch returns at once and streams wait; without one the calling thread does.
    """
    if isinstance(what, MadeWait):
        return () if has_device else (NodeKind.THREAD_WAIT,)
    if isinstance(what, MadeOperator):
        return (NodeKind.LAUNCH, NodeKind.KERNEL) if has_device else (NodeKind.OPERATOR,)
    is_thread_held = what.is_awaited and not has_device
    return (*_EXCHANGE, NodeKind.THREAD_WAIT) if is_thread_held else _EXCHANGE


def made_role(placed: Placed) -> ExchangeRole:
    """Whom something made is for; of a transfer the phase tells the direction."""
    what = _made(placed)
    if isinstance(what, MadeOperator):
        return ExchangeRole(NO_GROUP)
    group = GROUPS.index(what.group)
    kind = what.collective if isinstance(what, MadeExchange) else CollectiveKind.UNKNOWN
    if what.group is Group.PIPELINE and kind.is_transfer:
        return ExchangeRole(
            group,
            is_transfer=True,
            is_send=kind is CollectiveKind.SEND,
            is_backward=placed.phase == Phase.BACKWARD,
        )
    return ExchangeRole(group)


def _made(placed: Placed) -> MadeExchange | MadeOperator | MadeWait:
    what = placed.piece
    if not isinstance(what, MadeExchange | MadeOperator | MadeWait):
        raise TypeError(f"expected something made, got {type(what).__name__}")
    return what
