"""From the folder of a live test to its report: predictions are made anew each time."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from foretrace.analyze import COMPONENTS, Breakdown, breakdown
from foretrace.base import ModelError
from foretrace.capture import TrainingSettings
from foretrace.graph import Recording, build_recording
from foretrace.trace import load_traces
from foretrace.validate.live.configurations import BASE, CONFIGURATIONS, Configuration
from foretrace.validate.live.costs import HostCosts
from foretrace.validate.live.host import LiveHost, read_host
from foretrace.validate.live.measure import BASE_NAME, LivePaths, Runs, read_live_runs, runnable
from foretrace.validate.live.results import LiveComponent, LiveReport, LiveRow
from foretrace.whatif import Baseline, Prediction, Unprofiled, baseline_of, predict, unprofiled

_PASSES = 3  # forward, and twice as much backward


def live_report(
    folder: Path,
    *,
    configurations: Sequence[Configuration] = CONFIGURATIONS,
    progress: Callable[[int, int], None] | None = None,
) -> LiveReport:
    """Every configuration, predicted from the base's recording alone, beside what was measured.

    Args:
        folder: of `measure_live`.
        configurations: to report on.
        progress: called with predictions made, and all of them.

    Raises:
        ModelError: if the folder is not that of a live test.
    """
    paths, runs = LivePaths(folder), read_live_runs(folder)
    host = read_host(paths.host)
    recorded = unprofiled(_recording(paths.base))
    baseline = _ground(recorded, host)
    listed = [Configuration(BASE_NAME, (), BASE), *configurations]
    rows = []
    for number, configuration in enumerate(listed):
        if progress is not None:
            progress(number, len(listed))
        rows.append(_row(configuration, baseline, recorded, host=host, runs=runs, paths=paths))
    return LiveReport(
        device=host.device.name,
        num_cores=host.speed.num_cores,
        base=rows[0],
        rows=tuple(rows[1:]),
        profiler_ns=recorded.profiled_step_ns - recorded.step_ns,
        event_ns=recorded.event_ns,
        unrest=host.speed.spread[0],
        is_busy=host.is_busy,
    )


def _recording(folder: Path) -> Recording:
    return build_recording(load_traces((folder,)))


def _ground(recorded: Unprofiled, host: LiveHost) -> Baseline:
    """What predictions start from: unprofiled durations, the host's cores and its collectives."""
    cores = None if host.device.is_gpu else host.cores
    costs = HostCosts(host.collectives, cores)
    baseline = baseline_of(recorded.recording, costs=costs, cores=cores)
    return replace(baseline, measured_step_ns=recorded.target_ns)


def _row(
    configuration: Configuration,
    baseline: Baseline,
    recorded: Unprofiled,
    *,
    host: LiveHost,
    runs: Runs,
    paths: LivePaths,
) -> LiveRow:
    settings = replace(configuration.settings, device=runs.device.kind)
    medians = [float(np.median(run.step_ns)) for run in runs.runs if run.name == configuration.name]
    prediction, why = _predicted(configuration, baseline)
    if not runnable(settings, runs.num_devices):
        why = f"needs {settings.num_ranks} GPUs, and there are {runs.num_devices}"
    low_ns, high_ns = _ends(prediction, host.unrest(settings.num_ranks))
    components, unread = _components(configuration.name, prediction, paths)
    return LiveRow(
        name=configuration.name,
        changes=_changes(configuration, baseline),
        num_ranks=settings.num_ranks,
        measured_ns=round(float(np.median(medians))) if medians else None,
        measured_low_ns=round(min(medians)) if medians else None,
        measured_high_ns=round(max(medians)) if medians else None,
        num_runs=len(medians),
        predicted_ns=None if prediction is None else prediction.step_ns,
        low_ns=low_ns,
        high_ns=high_ns,
        naive_ns=naive_step_ns(recorded.target_ns, BASE, settings),
        components=components,
        why=why or unread,
    )


def _predicted(configuration: Configuration, baseline: Baseline) -> tuple[Prediction | None, str]:
    try:
        return predict(baseline, configuration.edits, name=configuration.name), ""
    except ModelError as error:
        return None, str(error)


def _ends(prediction: Prediction | None, unrest: float) -> tuple[int | None, int | None]:
    """The prediction's interval on a machine that is itself not always as fast.

    Both are taken as independent, on a logarithmic scale, to whole ns.
    """
    if prediction is None:
        return None, None
    step_ns = prediction.step_ns
    low, high = (
        math.hypot(math.log(max(end_ns, 1) / step_ns), unrest)
        for end_ns in (prediction.low_ns, prediction.high_ns)
    )
    return round(step_ns * math.exp(-low)), round(step_ns * math.exp(high))


def _changes(configuration: Configuration, baseline: Baseline) -> str:
    scenario, sentences = baseline.before, []
    for edit in configuration.edits:
        sentences.append(edit.sentence(scenario))
        scenario = edit.applied(scenario)
    return ", ".join(sentences)


def _components(
    name: str, prediction: Prediction | None, paths: LivePaths
) -> tuple[dict[str, LiveComponent], str]:
    """Parts of the step, and why those of the run's own recording are missing, if they are."""
    folder = paths.base if name == BASE_NAME else paths.recording(name)
    measured, why = None, ""
    try:
        measured = _parts(breakdown(_recording(folder).measured)) if folder.is_dir() else None
    except ModelError as error:  # where processes outnumber cores, clocks may not be told
        why = f"its own recording, for components alone, cannot be read: {error}"
    predicted = None if prediction is None else _parts(breakdown(prediction.timeline))
    found = {
        part: LiveComponent(
            None if predicted is None else predicted[part],
            None if measured is None else measured[part],
        )
        for part in COMPONENTS
    }
    return found, why


def _parts(found: Breakdown) -> dict[str, int]:
    """Each component of a rank's step, mean over ranks and steps, rounded to whole ns."""
    count = max(1, len(found.rows))
    return {name: round(total_ns / count) for name, total_ns in found.overall.as_json().items()}


def step_flops(settings: TrainingSettings) -> float:
    """FLOPs of one step over all ranks: products, and scores below the diagonal.

    Source:
        Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters",
        arXiv:2104.04473, appendix, with causal attention counted as half of the full one.
    """
    hidden, sequence = settings.hidden, settings.sequence
    weights = 4 * hidden * hidden + 2 * hidden * settings.feed_forward
    scores = sequence * hidden  # queries x keys and scores x values, each half of them
    token = settings.layers * (2 * weights + 2 * scores) + 2 * hidden * settings.vocabulary
    tokens = settings.data * settings.num_microbatches * settings.micro_batch * sequence
    return float(_PASSES * token * tokens)


def naive_step_ns(base_ns: int, base: TrainingSettings, settings: TrainingSettings) -> int:
    """The base's step times the ratio of FLOPs per rank, rounded to whole ns."""
    per_rank = [step_flops(each) / each.num_ranks for each in (base, settings)]
    return round(base_ns * per_rank[1] / per_rank[0])
