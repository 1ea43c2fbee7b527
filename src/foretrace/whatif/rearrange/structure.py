"""`Structure`: what of a scenario decides which pieces run where; `Seat`: who runs them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from foretrace.base import NotShownError, ScenarioError, WorkloadError
from foretrace.whatif.rearrange.unit_index import UnitIndex
from foretrace.whatif.recorded.program import Coordinates
from foretrace.whatif.scenario import Scenario
from foretrace.workload import (
    Axis,
    Pass,
    Plan,
    Schedule,
    axis_sizes,
    chunk_layers,
    rank_at,
    schedule_of,
)

# Fields of a plan that change which work is done where; all others change sizes alone, or
# nothing that a recording shows.
_FIELDS = (
    "tensor",
    "context",
    "data",
    "pipeline",
    "expert",
    "expert_tensor",
    "order",
    "outer_data",
    "expert_stride",
    "num_microbatches",
    "schedule",
    "num_chunks",
    "contiguous",
    "layers_of_chunk",
    "sequence_parallel",
    "context_exchange",
    "sharding",
    "shard_ranks",
    "reshard_after_forward",
    "bucket_bytes",
    "recompute",
    "recompute_modules",
    "recompute_of_layer",
)
_OVERLAPS = ("gradients",)

UnitKey = tuple[Pass, int, int]  # of a new unit: which pass, microbatch and chunk
HALVES = (Pass.INPUT, Pass.WEIGHT)


def changed_fields(before: Scenario, after: Scenario) -> tuple[str, ...]:
    """Names of what differs between two scenarios' structures; none: it stays."""
    old, new = before.plan, after.plan
    found = [name for name in _FIELDS if getattr(old, name) != getattr(new, name)]
    found += [
        f"overlap.{name}"
        for name in _OVERLAPS
        if getattr(old.overlap, name) != getattr(new.overlap, name)
    ]
    if old.precision.products != new.precision.products:
        found.append("precision.products")
    if before.sizes.layers != after.sizes.layers:
        found.append("layers")
    if new.pipeline == 1 and old.pipeline == 1 and new.num_microbatches == 1:
        found = [name for name in found if name not in {"schedule", "contiguous"}]
    return tuple(found)


@dataclass(frozen=True)
class Structure:
    """The new job's order of work."""

    plan: Plan
    num_layers: int
    layers_of_chunk: dict[int, tuple[int, ...]]
    order: tuple[tuple[UnitKey, ...], ...] | None  # by stage; `None`: each rank keeps its own

    @property
    def has_halves(self) -> bool:
        """Whether backward passes are taken apart."""
        return any(key[0] in HALVES for stage in self.order or () for key in stage)

    @property
    def layers_of_stage(self) -> tuple[tuple[int, ...], ...]:
        """Layers that each stage runs, rising."""
        return tuple(
            tuple(
                layer
                for chunk, layers in sorted(self.layers_of_chunk.items())
                if chunk % self.plan.pipeline == stage
                for layer in layers
            )
            for stage in range(self.plan.pipeline)
        )


def structure_of(unit_index: UnitIndex, before: Scenario, after: Scenario) -> Structure:
    """How the new job's layers are divided, and in which order its stages work.

    Raises:
        ScenarioError: if layers cannot be divided so, or the schedule cannot run.
    """
    plan = after.plan
    changed = set(changed_fields(before, after))
    num_layers = unit_index.num_layers
    if "layers" in changed:
        num_layers = after.sizes.layers or num_layers
    divided = {"layers", "pipeline", "num_chunks", "layers_of_chunk"} & changed
    layers_of_chunk = _divided(plan, num_layers) if divided else unit_index.layers_of_chunk
    is_reordered = {"pipeline", "num_chunks", "num_microbatches", "schedule", "contiguous"}
    order = _order(plan, unit_index) if is_reordered & changed else None
    return Structure(plan, num_layers, layers_of_chunk, order)


def _divided(plan: Plan, num_layers: int) -> dict[int, tuple[int, ...]]:
    try:
        counts = chunk_layers(plan, num_layers)
    except WorkloadError as err:
        raise ScenarioError(str(err)) from err
    found, first = {}, 0
    for chunk, count in enumerate(counts):
        found[chunk] = tuple(range(first, first + count))
        first += count
    return found


def _order(plan: Plan, unit_index: UnitIndex) -> tuple[tuple[UnitKey, ...], ...]:
    # Whether backward passes may be taken apart was checked.
    schedule = schedule_or_refusal(plan, has_layers=True)
    return tuple(
        tuple(
            (unit.kind, unit.microbatch, unit.chunk)
            for unit in units
            if unit.kind is Pass.FORWARD or unit_index.has_backward
        )
        for units in schedule.units
    )


def schedule_or_refusal(plan: Plan, *, has_layers: bool) -> Schedule:
    """The plan's schedule.

    Args:
        plan: of the new job.
        has_layers: layers of a model are there, whose backward passes have two halves.

    Raises:
        ScenarioError: if it cannot run with these numbers, or takes backward passes apart that
            were recorded whole.
    """
    try:
        schedule = schedule_of(plan)
    except WorkloadError as err:
        raise ScenarioError(str(err)) from err
    units = [unit for stage in schedule.units for unit in stage]
    is_apart = any(unit.kind in HALVES for unit in units)
    if (is_apart and not has_layers) or any(unit.is_joined for unit in units):
        raise NotShownError(
            f"schedule {plan.schedule!r} takes backward passes apart (gradients of inputs, then of "
            "weights) or weaves them with forward ones, which a recording of whole ones cannot "
            "show: choose gpipe, 1f1b or interleaved"
        )
    return schedule


@dataclass(frozen=True)
class Seat:
    """One rank of the new job, with the recorded coordinates whose work it repeats."""

    rank: int
    coordinates: Coordinates
    like: Coordinates  # its stage is the new one's: which recorded stage that is, layers tell


def seats(unit_index: UnitIndex, plan: Plan) -> Iterator[Seat]:
    """All ranks that the new job simulates: as many copies of each stage as were recorded.

    Copies keep their recorded number along each axis where the new plan has it.
    """
    recorded = list(unit_index.program.coordinates_by_rank.values())
    axes = (Axis.TENSOR, Axis.CONTEXT, Axis.DATA)
    after = axis_sizes(plan)
    kept = {
        axis: _kept(sorted({each.along(axis) for each in recorded}), after[axis]) for axis in axes
    }
    found = []
    for stage in range(plan.pipeline):
        for places in product(*(kept[axis] for axis in axes)):
            (tensor, like_tensor), (context, like_context), (data, like_data) = places
            coordinates = Coordinates(tensor, context, data, stage)
            like = Coordinates(like_tensor, like_context, like_data, stage)
            found.append(Seat(rank_of(plan, coordinates), coordinates, like))
    yield from sorted(found, key=lambda seat: seat.rank)


def _kept(recorded: Sequence[int], after: int) -> list[tuple[int, int]]:
    """New numbers along an axis, each with the recorded one it is like."""
    kept = [(number, number) for number in recorded if number < after]
    return kept or [(0, recorded[0])]


def rank_of(plan: Plan, coordinates: Coordinates) -> int:
    """The number of the rank at a place of the grid: it counts along the plan's order."""
    return rank_at(plan, {axis: coordinates.along(axis) for axis in Axis})


def divides_layers(before: Scenario, after: Scenario) -> bool:
    """Whether layers are divided by other kinds of ranks than any that were recorded."""
    pairs = (
        (before.plan.context, after.plan.context),
        (before.plan.expert, after.plan.expert),
    )
    return any(old != new and 1 in {old, new} for old, new in pairs)


def casts_layers(before: Scenario, after: Scenario) -> bool:
    """Whether layers multiply in another number format than the recorded one."""
    return before.plan.precision.products != after.plan.precision.products
