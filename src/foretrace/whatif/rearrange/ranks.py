"""Ranks of a new job: where each stands, and which recorded rank it is like."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from foretrace.whatif.rearrange.library import Library
from foretrace.whatif.recorded.program import Coordinates
from foretrace.workload import Axis, Plan, axis_sizes


@dataclass(frozen=True)
class Seat:
    """One rank of the new job, with the recorded coordinates whose work it repeats."""

    rank: int
    coordinates: Coordinates
    like: Coordinates  # its stage is the new one's: which recorded stage that is, layers tell


def seats(library: Library, plan: Plan) -> Iterator[Seat]:
    """All ranks that the new job simulates: as many copies of each stage as were recorded.

    Copies keep their recorded number along each axis where the new plan has it.
    """
    recorded = list(library.program.coordinates_by_rank.values())
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
    sizes: Mapping[Axis, int] = axis_sizes(plan)
    rank, stride = 0, 1
    for axis in plan.order:
        rank += stride * coordinates.along(axis)
        stride *= sizes[axis]
    return rank
