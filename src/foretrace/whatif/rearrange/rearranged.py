"""`rearranged`: a recorded program under another plan, or with other layers, as a `NewJob`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from foretrace.base import NotShownError, WorkloadError, check_fits
from foretrace.cost import CostModel
from foretrace.graph import NO_LAYER, NO_MICROBATCH, Part
from foretrace.whatif.rearrange.buckets import Buckets, Filling, StageWeights
from foretrace.whatif.rearrange.check import check, rearrangement_notes
from foretrace.whatif.rearrange.new_exchanges import Dropped, Maker, of_groups, of_layers_and_ends
from foretrace.whatif.rearrange.new_units import Composer, NewUnit, at_place, without_reductions
from foretrace.whatif.rearrange.recompute import Recomputing
from foretrace.whatif.rearrange.recorded_parameters import Weights, weights_of
from foretrace.whatif.rearrange.sharding import Dividing, Gathering
from foretrace.whatif.rearrange.structure import (
    HALVES,
    Seat,
    UnitKey,
    casts_layers,
    changed_fields,
    divides_layers,
    seats,
    structure_of,
)
from foretrace.whatif.rearrange.tensor import TensorExchanges, divides_vocabulary
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import (
    Coordinates,
    MadeExchange,
    NewJob,
    NewRank,
    Placed,
    Program,
    RecordedPiece,
)
from foretrace.whatif.scenario import Scenario
from foretrace.workload import Group, Pass, Recompute, Sharding, shard_size

if TYPE_CHECKING:
    from foretrace.whatif.rearrange.model_layers import ModelLayers
    from foretrace.workload import Transformer

_BYTES_PER_NODE = 1_000  # of an arranged graph, with the pieces that it is made of


def rearranged(
    program: Program,
    before: Scenario,
    after: Scenario,
    *,
    model: Transformer | None = None,
    costs: CostModel | None = None,
) -> NewJob | None:
    """The new job's ranks, each with recorded pieces in the order in which it issues them.

    Args:
        program: what was recorded.
        before: the recorded job.
        after: the job to predict.
        model: what was trained; its layers take the place of recorded ones that ranks are to
            divide as none of the recording do.
        costs: what predicts its operators; the machine's, if left out.

    Returns:
        `None` where every piece stays at its place: only widths, microbatch size, sequence,
        machine or durations differ.

    Raises:
        ScenarioError: for what cannot run, and for what this recording cannot show.
    """
    has_model, has_costs = model is not None, costs is not None
    check(program, before, after, has_model=has_model, has_costs=has_costs)
    if not changed_fields(before, after):
        return None
    try:
        return _made(program, before, after, model, costs)
    except WorkloadError as err:  # what the recording shows is none of what plans know
        raise NotShownError(str(err)) from err


def _made(
    program: Program,
    before: Scenario,
    after: Scenario,
    model: Transformer | None,
    costs: CostModel | None,
) -> NewJob:
    grown = after.plan.num_microbatches / max(before.plan.num_microbatches, 1)
    num_nodes = int(program.graph.num_nodes * max(grown, 1.0))
    check_fits(
        num_nodes * _BYTES_PER_NODE,
        f"a step of about {num_nodes:,} operations",
        advice="take fewer or larger microbatches",
    )
    unit_index = program.once(UnitIndex)
    structure = structure_of(unit_index, before, after)
    composer = Composer(unit_index, structure, before.plan.num_microbatches)
    weights = weights_of(unit_index, before)
    maker = Maker.of(unit_index, after, weights)
    is_divided = after.plan.sharding is not Sharding.NONE
    old, new = before.plan.sharding, after.plan.sharding
    is_deep = new is not old and new in {Sharding.ZERO2, Sharding.ZERO3}
    # What is gathered part by part is not gathered behind the update.
    is_gathered_once = is_divided and new is not Sharding.ZERO3
    divides = (old in {Sharding.ZERO1, Sharding.ZERO2}) != is_gathered_once
    is_gone = of_groups(program, _gone_groups(before, after))
    is_replaced = np.zeros(len(program.graph.collectives), bool)
    if _swaps_sums(before, after):
        is_replaced = of_layers_and_ends(program, Group.TENSOR)
    adds_tensor = after.plan.tensor > 1 and (before.plan.tensor == 1 or _swaps_sums(before, after))
    making = _Making(
        before=before,
        after=after,
        composer=composer,
        weights=weights,
        buckets=Buckets.of(unit_index, _reduction_group(before)),
        dropped=Dropped(program, is_gone | is_replaced),
        maker=maker,
        recomputing=Recomputing.of(unit_index),
        dividing=Dividing(unit_index, after.plan, maker, is_gathered_once) if divides else None,
        layers=_model_layers(maker, before, after, model, costs)
        if divides_layers(before, after) or casts_layers(before, after) or structure.has_halves
        else None,
        gathering=Gathering(maker, before.plan.tensor / after.plan.tensor) if is_deep else None,
        tensor=TensorExchanges(
            unit_index, before, after, maker, divides_vocabulary(unit_index, before, after)
        )
        if adds_tensor
        else None,
    )
    ranks = tuple(making.rank(seat) for seat in seats(unit_index, after.plan))
    if making.adds_reductions and unit_index.has_backward:
        _check_reduced(ranks)
    return NewJob(
        plan=after.plan,
        layers_of_stage=structure.layers_of_stage,
        ranks=ranks,
        notes=rearrangement_notes(unit_index, structure, weights, (before, after)),
        gone=frozenset(np.flatnonzero(is_replaced).tolist()),
    )


def _model_layers(
    maker: Maker,
    before: Scenario,
    after: Scenario,
    model: Transformer | None,
    costs: CostModel | None,
) -> ModelLayers:
    # Here: few plans need them, and models are much to load.
    from foretrace.whatif.rearrange.model_layers import ModelLayers

    return ModelLayers.of(maker, before, after, model, costs)


def _check_reduced(ranks: Sequence[NewRank]) -> None:
    for rank in ranks:
        made = (each for each in rank.placed if isinstance(each.piece, MadeExchange))
        if not any(each.part is Part.BUCKET for each in made):
            raise NotShownError(
                f"gradients would be reduced that the recording does not reduce, and rank "
                f"{rank.source_rank} shows no backward pass of a step's last microbatch, in which "
                "they become whole: load whole steps, or correct the blocks (see `inspect "
                "--blocks`)"
            )


def _gone_groups(before: Scenario, after: Scenario) -> tuple[Group, ...]:
    """Groups that had several ranks, and have one."""
    old, new = before.plan, after.plan
    found: list[Group] = []
    if old.tensor > 1 and new.tensor == 1:
        found.append(Group.TENSOR)
    if old.data * old.context > 1 and new.data * new.context == 1:
        found += [Group.DATA, Group.SHARD, Group.REPLICA]
    if old.context > 1 and new.context == 1:
        found.append(Group.CONTEXT)
    if old.pipeline > 1 and new.pipeline == 1:
        found += [Group.PIPELINE, Group.EMBEDDING]
    if old.num_ranks > 1 and new.num_ranks == 1:
        found.append(Group.ALL)
    return tuple(found)


def _swaps_sums(before: Scenario, after: Scenario) -> bool:
    """Whether tensor-parallel ranks sum in one scenario, and scatter sums in the other."""
    old, new = before.plan, after.plan
    is_between = old.tensor > 1 and new.tensor > 1
    return is_between and old.sequence_parallel != new.sequence_parallel


def _reduction_group(scenario: Scenario) -> Group:
    return Group.DATA if scenario.plan.sharding is Sharding.NONE else Group.SHARD


@dataclass(frozen=True)
class _Making:
    """Everything that the ranks of a new job are made with."""

    before: Scenario
    after: Scenario
    composer: Composer
    weights: Weights
    buckets: Buckets
    dropped: Dropped
    maker: Maker
    recomputing: Recomputing
    tensor: TensorExchanges | None  # where they are to be added
    dividing: Dividing | None  # where the optimizer's states are divided otherwise
    layers: ModelLayers | None  # where ranks divide them otherwise
    gathering: Gathering | None  # where gradients or parameters are, and were not

    @property
    def adds_reductions(self) -> bool:
        """Whether gradients are reduced that were not."""
        old, new = self.before.plan, self.after.plan
        return old.data * old.context == 1 and new.data * new.context > 1

    def rank(self, seat: Seat) -> NewRank:
        """One rank's work."""
        composer, unit_index = self.composer, self.composer.unit_index
        stage = composer.source_stage(seat.coordinates.pipeline)
        source = unit_index.rank_at(stage, seat.like)
        run = unit_index.runs[source]
        update = self.stage_weights(seat.coordinates.pipeline, stage).factor * self._shard_factor()
        placed = list(_kept(run.opening))
        for step in run.steps:
            placed += _kept(step.prologue, update)
            units = [self.unit(seat, step.step, key) for key in composer.order(seat, step.step)]
            inside = [each.placed for unit in units for each in unit.work]
            epilogue = list(_kept(step.epilogue, update))
            if self.dividing is not None:
                last = [
                    each.placed for unit in units if unit.is_last_microbatch for each in unit.work
                ]
                buckets = [each for each in last if each.part is Part.BUCKET]
                epilogue = self.dividing.epilogue(epilogue, buckets)
            placed += [*inside, *epilogue]
        placed += _kept(run.closing)
        return NewRank(seat.rank, seat.coordinates, source, tuple(self._without_gone(placed)))

    def unit(self, seat: Seat, step: int, key: UnitKey) -> NewUnit:
        """One unit with everything that the new job adds, and without what it has not."""
        unit = self.composer.unit(seat, step, key)
        old, new = self.before.plan, self.after.plan
        if not unit.is_forward and old.recompute is not new.recompute:
            if new.recompute is Recompute.NONE:
                unit = self.recomputing.without(unit)
            else:
                forward = self.composer.unit(seat, step, (Pass.FORWARD, *key[1:]))
                unit = self.recomputing.with_forward(unit, forward)
        unit = self.maker.with_transfers(unit)
        if self.layers is not None and (self.layers.are_all or unit.kind in HALVES):
            unit = self.layers.through(unit)
        elif self.tensor is not None:
            unit = self.tensor.through(unit)
        return self.reduced(unit, seat)

    def reduced(self, unit: NewUnit, seat: Seat) -> NewUnit:
        """A unit with the gradients' communication of the new job."""
        old, new = self.before.plan, self.after.plan
        if self.gathering is not None:
            return self.gathering.through(unit)
        if not (unit.makes_gradients and unit.is_last_microbatch):
            return unit
        was_reduced, is_reduced = old.data * old.context > 1, new.data * new.context > 1
        if was_reduced and is_reduced:
            stage = self.composer.unit_index.stage_of(unit.frame.chunk)
            weights = self.stage_weights(seat.coordinates.pipeline, stage)
            unit = self.buckets.carried(unit, weights, self.filling)
            return unit if self.dividing is None else self.dividing.through(unit)
        if is_reduced:
            return self.maker.with_buckets(unit, is_first=unit.chunk == 0)
        return without_reductions(unit) if was_reduced else unit

    @property
    def filling(self) -> Filling:
        """How buckets are filled, before and after."""
        old, new = self.before.plan, self.after.plan
        is_resized = old.bucket_bytes != new.bucket_bytes
        was_beside, is_beside = old.overlap.gradients, new.overlap.gradients
        return Filling(
            is_anew=is_resized or (is_beside and not was_beside),
            full_bytes=new.bucket_bytes if is_resized else None,
            is_put_off=was_beside and not is_beside,
        )

    def stage_weights(self, stage: int, like: int) -> StageWeights:
        """Parameters of a new stage and of a recorded one."""
        structure, unit_index, weights = (
            self.composer.structure,
            self.composer.unit_index,
            self.weights,
        )
        is_first, is_last = stage == 0, stage == structure.plan.pipeline - 1
        forward = self.composer.sources(Coordinates()).forward
        recorded = unit_index.program.layers_of_stage
        return StageWeights(
            own=weights.of_stage(
                [forward[each] for each in structure.layers_of_stage[stage]],
                is_first=is_first,
                is_last=is_last,
            ),
            recorded=weights.of_stage(
                recorded[like] if recorded else (),
                is_first=like == 0,
                is_last=like == unit_index.num_stages - 1,
            ),
            of_layer=weights.of_layer,
            of_first=weights.of_first if is_first else 0.0,
            of_last=weights.of_last if is_last else 0.0,
        )

    def _shard_factor(self) -> float:
        """A rank's share of the optimizer's states, over what it was."""

        def share(scenario: Scenario) -> float:
            plan = scenario.plan
            return 1.0 if plan.sharding is Sharding.NONE else 1 / shard_size(plan)

        return share(self.after) / share(self.before)

    def _without_gone(self, placed: Sequence[Placed]) -> Iterator[Placed]:
        for each in placed:
            if not isinstance(each.piece, RecordedPiece):
                yield each
                continue
            piece = self.dropped.without(each.piece)
            if piece is not None:
                yield each if piece is each.piece else replace(each, piece=piece)


def _kept(pieces: Sequence[RecordedPiece], factor: float = 1.0) -> Iterator[Placed]:
    """Pieces as they were; work on parameters takes `factor` times as long."""
    for piece in pieces:
        placed = at_place(piece, piece.step, layer=NO_LAYER, microbatch=NO_MICROBATCH)
        yield replace(placed, scale=factor) if piece.part is Part.OPTIMIZER else placed
