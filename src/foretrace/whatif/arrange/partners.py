"""With whom each rank of a new job meets: ranks of one of the plan's groups, or as recorded."""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.base import ScenarioError
from foretrace.whatif.arrange.roles import PAIR, ExchangeRole
from foretrace.whatif.arrange.source import RecordedNodes
from foretrace.whatif.recorded.program import GROUPS, NO_GROUP, NewJob
from foretrace.workload import Group, groups_of


@dataclass(frozen=True)
class Communicator:
    """Ranks that meet, and what for."""

    role: ExchangeRole  # of a transfer that of the sender
    members: tuple[int, ...]  # in the order of their numbers
    sender: int = -1  # of a transfer

    @property
    def words(self) -> str:
        """For messages: `dp group (0, 2)`, `transfers from rank 0 to rank 4`."""
        if self.role.is_transfer:
            receiver = next(rank for rank in self.members if rank != self.sender)
            way = "backward" if self.role.is_backward else "forward"
            return f"{way} transfers from rank {self.sender} to rank {receiver}"
        name = "recorded" if self.role.group == NO_GROUP else GROUPS[self.role.group].value
        return f"{name} group {shown_ranks(self.members)}"


_SHOWN = 5  # ranks named in a sentence


def shown_ranks(ranks: tuple[int, ...]) -> str:
    """`(0, 2)`, `(0, 1, 2, 3, 4 and 59 more)`."""
    shown = ", ".join(map(str, ranks[:_SHOWN]))
    return f"({shown} and {len(ranks) - _SHOWN} more)" if len(ranks) > _SHOWN else f"({shown})"


class Partners:
    """With whom the ranks of a job meet."""

    def __init__(self, source: RecordedNodes, job: NewJob) -> None:
        self._job = job
        self._groups: dict[Group, dict[int, tuple[int, ...]]] = {}
        old, new = source.program.plan, job.plan
        is_same_grid = old.places == new.places
        # Under the same degrees ranks meet whom they met, whatever the plan was read from.
        self._met = source.roles.recorded if is_same_grid else {}
        self.notes: dict[str, None] = {}

    def communicator(self, rank: int, role: ExchangeRole) -> Communicator:
        """Who meets a rank for something.

        Raises:
            ScenarioError: if the plan has nobody for it.
        """
        recorded = self._met.get((rank, role))
        if recorded is not None and rank in recorded:
            return _as_recorded(rank, role, recorded)
        if role.is_transfer:
            return self._transfer(rank, role)
        if role.group == NO_GROUP:
            return self._recorded(rank, role)
        group = GROUPS[role.group]
        members = self._members(group, rank)
        if not members:
            raise ScenarioError(
                f"rank {rank} is to take part in a collective of its {group.value} group, and the "
                "plan gives it none: leave that piece out, or give it to another stage"
            )
        return Communicator(role, members)

    def _members(self, group: Group, rank: int) -> tuple[int, ...]:
        if group not in self._groups:
            self._groups[group] = {
                member: tuple(own)
                for own in groups_of(self._job.plan, group).tolist()
                for member in own
            }
        return self._groups[group].get(rank, ())

    def _transfer(self, rank: int, role: ExchangeRole) -> Communicator:
        stages = self._members(Group.PIPELINE, rank)
        if len(stages) < PAIR:
            raise ScenarioError(
                f"rank {rank} is to send to another stage, and the plan has pipeline "
                f"{len(stages)}: leave its transfers out, or take at least 2 stages"
            )
        peer = stages[(stages.index(rank) + role.stage_offset) % len(stages)]
        sender, receiver = (rank, peer) if role.is_send else (peer, rank)
        members = (min(sender, receiver), max(sender, receiver))
        return Communicator(replace(role, is_send=True), members, sender)

    def _recorded(self, rank: int, role: ExchangeRole) -> Communicator:
        if len(role.ranks) == 1:
            return Communicator(replace(role, ranks=(rank,)), (rank,))
        if rank in role.ranks and self._job.plan.num_ranks > max(role.ranks):
            return Communicator(role, role.ranks)
        everyone = tuple(range(self._job.plan.num_ranks))
        self.notes[
            f"collectives of ranks {shown_ranks(role.ranks)}, which are no group of the plan, are "
            f"taken to be of all {len(everyone)} ranks"
        ] = None
        return Communicator(replace(role, ranks=everyone), everyone)


def _as_recorded(rank: int, role: ExchangeRole, ranks: tuple[int, ...]) -> Communicator:
    if not role.is_transfer:
        return Communicator(role, ranks)
    peer = ranks[0] if ranks[1] == rank else ranks[1]
    return Communicator(replace(role, is_send=True), ranks, rank if role.is_send else peer)
