"""The optimizer's states divided over data-parallel ranks, or no longer.

Divided: gradients are reduced and scattered instead of all-reduced, each rank updates its part,
and all parts are gathered behind the update (ZeRO-1, Megatron's distributed optimizer).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from foretrace.base import number_format
from foretrace.graph import NodeKind, Part, Phase
from foretrace.trace import collective_kind_of
from foretrace.whatif.rearrange.buckets import with_wait
from foretrace.whatif.rearrange.composition import NewUnit, Work
from foretrace.whatif.rearrange.library import Library
from foretrace.whatif.rearrange.making import Maker
from foretrace.whatif.rearrange.units import Role
from foretrace.whatif.recorded.program import MadeExchange, Piece, Placed
from foretrace.workload import Exchange, Group, Plan, gathered, pools_of, reduced


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

        def of(work: Iterable[Work]) -> tuple[Work, ...]:
            found = []
            for each in work:
                name, size, dtype = self._collective(each.placed)
                if each.role is not Role.BUCKET or not name:
                    found.append(each)
                elif name != "all_gather":
                    one = replace(
                        self._reduction,
                        num_bytes=round(size * each.placed.scale_bytes),
                        dtype=dtype,
                    )
                    piece = self.maker.made(one, is_awaited=False)
                    placed = replace(each.placed, piece=piece, scale_bytes=1.0)
                    found.append(replace(each, placed=placed))
            return tuple(found)

        slots = tuple(replace(slot, work=of(slot.work)) for slot in unit.slots)
        changed = replace(unit, before=of(unit.before), slots=slots, after=of(unit.after))
        return with_wait(changed, Group.DATA)

    @cached_property
    def _reduction(self) -> Exchange:
        """What a bucket is reduced by; shard ranks are all that hold the same parameters."""
        first = reduced(1, pools_of(self.plan)[0], self.plan)[0]
        return replace(first, group=Group.DATA)

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
        like = kept[updates[-1]]
        pool, _ = pools_of(self.plan)
        gathers = []
        for each in buckets[::-1]:
            if isinstance(each.piece, MadeExchange):
                # A recording that names no format has gradients in 32 bits: the default.
                form = number_format(each.piece.dtype)
                count = each.piece.num_bytes // (round(form.num_bytes) if form else 4)
                one = gathered(count, pool, self.plan, phase=Phase.OPTIMIZER)
                made = self.maker.made(replace(one, group=each.piece.group))
                gathers.append(
                    Placed(piece=made, step=like.step, part=Part.BUCKET, phase=Phase.OPTIMIZER)
                )
        place = updates[-1] + 1
        return [*kept[:place], *gathers, *kept[place:]]

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
