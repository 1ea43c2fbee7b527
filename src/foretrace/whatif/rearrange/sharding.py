"""The optimizer's states divided over data-parallel ranks, or no longer.

Divided: gradients are reduced and scattered instead of all-reduced, each rank updates its part,
and all parts are gathered behind the update (ZeRO-1, Megatron's distributed optimizer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.graph import NodeKind, Part, Phase
from foretrace.trace import collective_kind_of
from foretrace.whatif.rearrange.composition import NewUnit, Work
from foretrace.whatif.rearrange.library import Library
from foretrace.whatif.rearrange.making import Maker
from foretrace.whatif.rearrange.units import Role
from foretrace.whatif.recorded.program import MadeExchange, MadeWait, Piece, Placed
from foretrace.whatif.resize.collectives import width_of
from foretrace.workload import Group, Plan


@dataclass(frozen=True)
class Dividing:
    """Changes how gradients are reduced."""

    library: Library
    plan: Plan  # of the new job
    maker: Maker
    is_divided: bool  # in the new job

    def through(self, unit: NewUnit) -> NewUnit:
        """A backward pass that reduces its gradients the other way.

        Args:
            unit: of the last microbatch, with its buckets.
        """
        group = Group.DATA

        def of(work: Iterable[Work]) -> tuple[Work, ...]:
            found = []
            for each in work:
                name, size, dtype = self._collective(each.placed)
                if each.role is not Role.BUCKET or not name:
                    found.append(each)
                elif name != "all_gather":
                    made = MadeExchange(
                        collective="reduce_scatter" if self.is_divided else "all_reduce",
                        group=group,
                        num_bytes=round(size * each.placed.scale_bytes),
                        dtype=dtype,
                        host_ns=self.maker.host_ns,
                        is_awaited=False,
                    )
                    placed = replace(each.placed, piece=made, scale_bytes=1.0)
                    found.append(replace(each, placed=placed))
            return tuple(found)

        slots = tuple(replace(slot, work=of(slot.work)) for slot in unit.slots)
        changed = replace(unit, before=of(unit.before), slots=slots, after=of(unit.after))
        waits = (Role.REDUCED, Role.RETURN, Role.SEND)
        after = changed.after
        place = next((at for at, each in enumerate(after) if each.role in waits), len(after))
        wait = Placed(
            piece=MadeWait(group=group),
            step=unit.step,
            part=Part.BUCKET,
            phase=Phase.BACKWARD,
            microbatch=unit.microbatch,
        )
        return replace(changed, after=(*after[:place], Work(wait, Role.REDUCED), *after[place:]))

    def epilogue(self, placed: Sequence[Placed], buckets: Sequence[Placed]) -> list[Placed]:
        """What follows the last unit, with its parameters gathered, or no longer.

        Args:
            placed: the epilogue as recorded.
            buckets: of the step, made, whose parameters are gathered.
        """
        kept = [each for each in placed if self._collective(each)[0] != "all_gather"]
        updates = [at for at, each in enumerate(kept) if each.part is Part.OPTIMIZER]
        if not self.is_divided or not updates:
            return kept
        dtype = self.plan.precision.parameters
        size = 0.0
        for each in buckets:
            if isinstance(each.piece, MadeExchange):
                # As numbers; a recording that names no format has them in 32 bits: the default.
                size += each.piece.num_bytes / (width_of(each.piece.dtype) or 4)
        like = kept[updates[-1]]
        gather = MadeExchange(
            collective="all_gather",
            group=Group.DATA,
            num_bytes=round(size * width_of(dtype)),
            dtype=dtype,
            host_ns=self.maker.host_ns,
        )
        made = Placed(piece=gather, step=like.step, part=Part.BUCKET, phase=Phase.OPTIMIZER)
        place = updates[-1] + 1
        return [*kept[:place], made, *kept[place:]]

    def _collective(self, placed: Placed) -> tuple[str, int, str]:
        """Kind, bytes and number format of what a piece takes part in; "" of no collective."""
        graph = self.library.program.graph
        if isinstance(placed.piece, MadeExchange):
            return placed.piece.collective, placed.piece.num_bytes, placed.piece.dtype
        if not isinstance(placed.piece, Piece) or placed.part is not Part.BUCKET:
            return "", 0, ""
        finishes = placed.piece.nodes[graph.kind[placed.piece.nodes] == NodeKind.FINISH]
        found = [graph.collectives[each] for each in np.unique(graph.collective[finishes])]
        if not found:
            return "", 0, ""
        size = sum(max(each.num_bytes, 0) for each in found)
        return _NAMES.get(collective_kind_of(found[0].name), found[0].name), size, found[0].dtype


_NAMES = {"allgather": "all_gather", "allreduce": "all_reduce", "reducescatter": "reduce_scatter"}
