"""`swept`: many scenarios of one recording become a `Sweep`, in several processes if asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from foretrace.base import ModelError, SweepEngine, mapped
from foretrace.whatif.baseline import Baseline
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.predict import predict
from foretrace.whatif.prediction import Prediction
from foretrace.whatif.scenario_file import NamedEdits
from foretrace.whatif.sweep import Order, Sweep, SweepRow


def swept(
    baseline: Baseline,
    scenarios: Sequence[NamedEdits],
    *,
    order: Order = Order.THROUGHPUT,
    workers: int = 1,
    engine: SweepEngine = SweepEngine.PROCESSES,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Predict every scenario; what is refused stands in the answer with its reason.

    Args:
        baseline: what `baseline_of` makes of the recording.
        scenarios: in any order.
        order: what is best.
        workers: processes; each holds the recording once.
        engine: where they run.
        progress: called with scenarios done and scenarios in all.
    """
    workers = min(workers, len(scenarios))
    found: list[SweepRow] = []
    with mapped(workers, engine) as over:
        for row in over(partial(_row, baseline), scenarios):
            found.append(row)
            if progress is not None:
                progress(len(found), len(scenarios))
    return Sweep(
        rows=tuple(sorted(found, key=partial(_rank, order=order))),
        order=order,
        measured_step_ns=baseline.measured_step_ns,
        replayed_step_ns=baseline.replayed_step_ns,
    )


def _rank(row: SweepRow, order: Order) -> tuple[bool, float]:
    """Sorts the best first; equal ones keep their order."""
    by_order = {
        Order.STEP: float(row.step_ns),
        Order.THROUGHPUT: -row.throughput,
        Order.PER_RANK: -row.throughput_per_rank,
    }
    return (row.is_refused, 0.0 if row.is_refused else by_order[order])


def row_of(found: Prediction) -> SweepRow:
    """A prediction without its timelines."""
    return SweepRow(
        name=found.name,
        sentences=tuple(one.sentence for one in found.effects),
        step_ns=found.step_ns,
        low_ns=found.low_ns,
        high_ns=found.high_ns,
        change_ns=found.change_ns,
        throughput=found.throughput,
        throughput_per_rank=found.throughput_per_rank,
        num_ranks=found.after.plan.num_ranks,
        global_batch=found.after.plan.global_batch,
        peak_bytes=None if found.memory is None else found.memory.after.peak.total,
        method=found.method,
    )


def _row(baseline: Baseline, scenario: NamedEdits) -> SweepRow:
    try:
        return row_of(predict(baseline, scenario.edits, name=scenario.name))
    except ModelError as err:
        sentences = tuple(_sentences(baseline, scenario.edits))
        return SweepRow(name=scenario.name, sentences=sentences, refusal=str(err))


def _sentences(baseline: Baseline, edits: Sequence[Edit]) -> Iterator[str]:
    """What each edit says, up to the one that cannot be applied."""
    scenario = baseline.before
    for edit in edits:
        try:
            sentence, scenario = edit.sentence(scenario), edit.applied(scenario)
        except ModelError:
            return
        yield sentence
