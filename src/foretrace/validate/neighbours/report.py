"""`neighbours_report`: every run of a table, predicted from each of its neighbours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foretrace.base import ModelError
from foretrace.validate.neighbours.curves import Estimated, Estimates
from foretrace.validate.neighbours.pairs import Pair, neighbour_pairs
from foretrace.validate.neighbours.results import NeighbourPrediction, NeighboursReport
from foretrace.validate.runs.table import PublishedRun
from foretrace.whatif import scaled_along

_NS_PER_S = 1e9


def neighbours_report(
    runs: Sequence[PublishedRun], *, progress: Callable[[int, int], None] | None = None
) -> NeighboursReport:
    """Runs predicted from runs that differ in one thing, beside their estimate from scratch.

    Nothing is fitted on the table: what an estimate does not know of a site comes from the one
    neighbour.

    Args:
        runs: as `read_runs` gives them.
        progress: called with how many runs are estimated, and of how many.
    """
    pairs = neighbour_pairs(runs)
    wanted = {run.id: run for pair in pairs for run in (pair.run, pair.neighbour)}
    estimates = Estimates()
    found: dict[str, Estimated] = {}
    refused: dict[str, None] = {}
    for done, run in enumerate(wanted.values(), start=1):
        try:
            found[run.id] = estimates.of(run)
        except (ModelError, ValueError) as err:  # the latter: places outside the machine
            refused[f"{run.id}: {err}"] = None
        if progress is not None:
            progress(done, len(wanted))
    rows = tuple(
        _predicted(pair, found[pair.run.id], found[pair.neighbour.id])
        for pair in pairs
        if pair.run.id in found and pair.neighbour.id in found
    )
    return NeighboursReport(rows, num_runs=len(found), refused=tuple(refused))


def _predicted(pair: Pair, run: Estimated, neighbour: Estimated) -> NeighbourPrediction:
    measured_s, neighbour_s = pair.run.measured_s or 0.0, pair.neighbour.measured_s or 0.0
    scaled = scaled_along(neighbour_s * _NS_PER_S, neighbour.curve, run.curve)
    return NeighbourPrediction(
        id=pair.run.id,
        neighbour=pair.neighbour.id,
        dimension=pair.dimension,
        measured_s=measured_s,
        neighbour_s=neighbour_s,
        predicted_s=scaled.step_ns / _NS_PER_S,
        low_s=scaled.low_ns / _NS_PER_S,
        high_s=scaled.high_ns / _NS_PER_S,
        ratio_s=neighbour_s * run.step_s / neighbour.step_s,
        scratch_s=run.step_s,
        flops_s=neighbour_s * run.flops_per_rank / neighbour.flops_per_rank,
    )
