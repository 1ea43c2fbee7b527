"""`SlowPlaces`: what a slow GPU or host costs in each place, and what replacing it brings.

Where copies of the model do the same, a place is a stage (and, for single GPUs, it does not matter
which rank of the stage's tensor group it is); a slow GPU in any copy delays all of them alike.
Every place is simulated with the same draws, so that differences are the place's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from foretrace.analyze import windows
from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Shown,
    Table,
    Told,
    Unit,
    milliseconds_text,
    signed_percent_text,
)
from foretrace.base import Float64s, RiskError
from foretrace.graph import ExecutionGraph
from foretrace.risk.steps.models import Variation
from foretrace.risk.steps.sample import SampledCell
from foretrace.risk.steps.varying import draws_of
from foretrace.simulate import (
    LANES,
    NO_GOAL,
    Scaling,
    simulate,
    simulate_batch,
    simulate_cells,
)
from foretrace.workload import stage_of

_TAIL = 0.95


@dataclass(frozen=True)
class PlacementRow(Plain):
    """One place for what is slow."""

    place: str
    ranks: tuple[int, ...]
    mean_ns: float
    p95_ns: float
    cost: float  # of the mean step, over all GPUs alike; what replacing brings
    tail_cost: float  # of the 95% quantile


@dataclass(frozen=True, repr=False)
class SlowPlaces(Answer):
    """Every place, the cheapest first."""

    json_names: ClassVar = {"rows": "places"}
    json_also: ClassVar = ("spread",)

    title: str
    slowdown: float  # of the kernels there: 0.1 is 10% longer
    unit: str  # "GPU", "host"
    mean_ns: float  # nothing slow
    p95_ns: float
    rows: tuple[PlacementRow, ...]

    @property
    def spread(self) -> float:
        """How much longer the step is with the slow thing in the worst place than in the best."""
        return self.rows[-1].mean_ns / self.rows[0].mean_ns - 1.0

    @property
    def headline(self) -> str:
        """What is slow, and the step without it."""
        return (
            f"{self.title}: one {self.unit} whose kernels take "
            f"{signed_percent_text(100 * self.slowdown)}; without it the step is "
            f"{milliseconds_text(self.mean_ns)} ms"
        )

    @property
    def note(self) -> str:
        """What it means."""
        return (
            f"The worst place costs {100 * self.spread:.2f} % more than the best; a replacement "
            "brings back the place's cost."
        )

    def parts(self) -> tuple[Told, ...]:
        """One row a place."""
        found = Table.of(
            "places",
            self.rows,
            Column("place"),
            Column("ranks", value=lambda one: str(list(one.ranks)), shown=Shown.FILES),
            Column("mean_ns", "step ms"),
            Column("cost", unit=Unit.SIGNED_SHARE),
            Column("p95_ns", "95 % ms"),
            Column("tail_cost", unit=Unit.SIGNED_SHARE),
        )
        return (found,)


def estimated_placement(
    cell: SampledCell,
    *,
    slowdown: float,
    variation: Variation,
    gpus_per_host: int | None = None,
    num_samples: int = 256,
    seed: int = 0,
    title: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> SlowPlaces:
    """What one slow GPU, or one slow host, costs in each stage of a plan.

    Args:
        cell: of the job, as `cell_of` makes it.
        slowdown: of its kernels: 0.1 is 10% longer.
        variation: of everything else.
        gpus_per_host: ask for a whole host of so many ranks; one GPU if left out.
        num_samples: jobs of each place.
        seed: of the draws, the same for every place.
        title: what it is called.
        progress: called with places done and places in all.

    Raises:
        RiskError: if the slowdown is not above -1.
    """
    _check(slowdown)
    places = _places(cell, gpus_per_host)
    lanes = -(-max(num_samples, 4 * cell.cells.num_cells) // LANES) * LANES
    base = draws_of(
        cell.graph, cell.duration_ns, variation, num_samples=lanes, seed=seed, machine=cell.machine
    )
    column = {rank: 1 + at for at, rank in enumerate(cell.graph.ranks)}
    found: list[Float64s] = []
    # Each pass carries the job without anything slow, whose cells are the others of all jobs.
    for place in [(), *(ranks for _, ranks in places)]:
        factor = np.concatenate([base.factor, base.factor])
        factor[lanes:, [column[rank] for rank in place]] *= 1.0 + slowdown
        draws = draws_of(
            cell.graph, cell.duration_ns, variation, num_samples=2 * lanes, seed=seed,
            factor=factor, machine=cell.machine,
        )  # fmt: skip
        step_ns = simulate_cells(cell.graph, draws, cell.cells, goal=cell.goal, num_variants=2)
        found.append(step_ns[0, lanes:])
        if progress is not None:
            progress(len(found), len(places) + 1)
    return _placement(
        [(name, ranks, step_ns) for (name, ranks), step_ns in zip(places, found[1:], strict=True)],
        found[0],
        slowdown=slowdown,
        unit="GPU" if gpus_per_host is None else "host",
        title=title,
    )


def recorded_placement(graph: ExecutionGraph, *, slowdown: float, title: str = "") -> SlowPlaces:
    """What it costs if one of the recorded ranks' GPUs is slower still, rank by rank.

    Nothing is drawn: durations are the recorded ones, and a rank's device work is stretched.

    Args:
        graph: of a recording.
        slowdown: of a rank's device work: 0.1 is 10% longer; on the CPU, of its operators.
        title: what it is called.

    Raises:
        RiskError: if the slowdown is not above -1, or no step is recorded.
    """
    _check(slowdown)
    fixed = simulate(graph)
    steps = windows(fixed)
    if not len(steps):
        raise RiskError("no step is marked in the recording, so nothing can be placed")
    ranks = graph.ranks
    has_device = graph.has_device
    is_host = graph.is_host
    moves = (graph.rank >= 0) & (graph.collective < 0) & (is_host != has_device)
    label = np.where(moves, np.searchsorted(ranks, graph.rank) + 1, 0).astype(np.int32)
    factor = np.ones((len(ranks) + 1, len(ranks) + 1))
    factor[np.arange(1, len(ranks) + 1), np.arange(1, len(ranks) + 1)] += slowdown
    goal = np.full(graph.num_nodes, NO_GOAL, np.int32)
    goal[graph.step == steps.step[-1]] = 0
    ends = simulate_batch(graph, Scaling(label=label, factor=factor), goal).end_ns[:, 0]
    length_ns = (ends - steps.begin_ns[0]) / len(steps)
    rows = [(f"rank {rank}", (rank,), length_ns[at + 1 : at + 2]) for at, rank in enumerate(ranks)]
    return _placement(
        rows, length_ns[:1], slowdown=slowdown, unit="GPU" if has_device else "host", title=title
    )


def _check(slowdown: float) -> None:
    if not slowdown > -1:
        raise RiskError(
            f"a slowdown of {slowdown} is no duration: expected more than -1, as 0.1 for 10% longer"
        )


def _places(cell: SampledCell, gpus_per_host: int | None) -> list[tuple[str, tuple[int, ...]]]:
    """Stages, or hosts of the first copy named by the stages that they hold."""
    ranks = cell.graph.ranks
    stage = {rank: stage_of(cell.plan, rank) for rank in ranks}
    if gpus_per_host is None:
        first: dict[int, int] = {}
        for rank in ranks:
            first.setdefault(stage[rank], rank)
        return [(f"stage {one}", (rank,)) for one, rank in sorted(first.items())]
    hosts: dict[int, list[int]] = {}
    for rank in ranks:
        hosts.setdefault(rank // gpus_per_host, []).append(rank)
    found: dict[tuple[int, ...], tuple[str, tuple[int, ...]]] = {}
    for own in hosts.values():
        stages = tuple(stage[rank] for rank in own)
        shown = sorted(set(stages))
        name = f"stage {shown[0]}" if len(shown) == 1 else f"stages {shown[0]} to {shown[-1]}"
        found.setdefault(stages, (name, tuple(own)))
    return list(found.values())


def _placement(
    places: Sequence[tuple[str, tuple[int, ...], Float64s]],
    fixed_ns: Float64s,
    *,
    slowdown: float,
    unit: str,
    title: str,
) -> SlowPlaces:
    mean, tail = float(fixed_ns.mean()), float(np.quantile(fixed_ns, _TAIL))
    rows = []
    for name, ranks, step_ns in places:
        own_mean, own_tail = float(step_ns.mean()), float(np.quantile(step_ns, _TAIL))
        cost, tail_cost = own_mean / mean - 1.0, own_tail / tail - 1.0
        rows.append(PlacementRow(name, ranks, own_mean, own_tail, cost, tail_cost))
    rows.sort(key=lambda one: one.mean_ns)
    return SlowPlaces(title, slowdown, unit, mean, tail, tuple(rows))
