"""`ReplaySummary`: all steps and ranks of one replay in a few numbers."""

from __future__ import annotations

from foretrace.analyze import COMPONENTS, Parts
from foretrace.base import ModelError
from foretrace.validate.results import RankReplay, ReplaySummary, StepReplay


def summary_of(chosen_steps: tuple[StepReplay, ...]) -> ReplaySummary:
    """The errors of these steps on all their ranks.

    Raises:
        ModelError: if no rank has any of the steps.
    """
    rows = [rank for step in chosen_steps for rank in step.ranks]
    if not rows:
        raise ModelError(
            f"nothing to compare: {len(chosen_steps)} steps, and no rank has a begin mark of one. "
            "Choose other steps."
        )
    biases = [_percent(row.replayed_ns - row.measured_ns, row.measured_ns) for row in rows]
    host_biases = [
        _percent(row.host_replayed_ns - row.host_measured_ns, row.host_measured_ns) for row in rows
    ]
    by_component = _component_errors(rows)
    worst_component = max(COMPONENTS, key=lambda part: by_component[part])
    collective = _collective_errors(rows)
    return ReplaySummary(
        mean_step_error_percent=_mean_size(biases),
        worst_step_error_percent=max(map(abs, biases)),
        mean_host_error_percent=_mean_size(host_biases),
        worst_component_error_percent=by_component[worst_component],
        worst_component=worst_component,
        component_error_percent=by_component,
        median_kernel_start_error_percent=max(
            _percent(row.kernel_start_error.median_ns, row.measured_ns) for row in rows
        ),
        p95_kernel_start_error_percent=max(
            _percent(row.kernel_start_error.p95_ns, row.measured_ns) for row in rows
        ),
        worst_collective_error_percent=max(collective) if collective else None,
        mean_collective_error_percent=_mean_size(collective) if collective else None,
        mean_step_bias_percent=sum(biases) / len(biases),
        measured_parts=sum((row.measured_parts for row in rows), Parts(0, 0, 0, 0)),
        replayed_parts=sum((row.replayed_parts for row in rows), Parts(0, 0, 0, 0)),
    )


def _component_errors(rows: list[RankReplay]) -> dict[str, float]:
    """Each part's largest |error| of any row, in percent of that row's step."""
    largest = dict.fromkeys(COMPONENTS, 0.0)
    for row in rows:
        measured, replayed = row.measured_parts.as_json(), row.replayed_parts.as_json()
        for part in COMPONENTS:
            error = abs(_percent(replayed[part] - measured[part], row.measured_ns))
            largest[part] = max(largest[part], error)
    return largest


def _collective_errors(rows: list[RankReplay]) -> list[float]:
    """|error| of collective time, of every row that has any, in percent of it."""
    return [
        abs(
            _percent(
                row.collective_replayed_ns - row.collective_measured_ns, row.collective_measured_ns
            )
        )
        for row in rows
        if row.collective_measured_ns > 0
    ]


def _percent(error_ns: int, whole_ns: int) -> float:
    """Signed error in percent of `whole_ns`; of 1 ns where the whole is empty."""
    return 100.0 * error_ns / max(whole_ns, 1)


def _mean_size(values: list[float]) -> float:
    """Mean of |value|."""
    return sum(map(abs, values)) / len(values)
