"""`Sweep`: many scenarios of one recording, each predicted, the best first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from functools import partial
from multiprocessing import get_context
from typing import TYPE_CHECKING

from foretrace.base import ModelError
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.predict import Ground, predict
from foretrace.whatif.prediction import Prediction
from foretrace.whatif.scenario_file import NamedEdits

if TYPE_CHECKING:
    import polars as pl

_Batch = tuple[NamedEdits, ...]
_Mapped = Callable[[Callable[[_Batch], list["SweepRow"]], list[_Batch]], Iterable[list["SweepRow"]]]
# With each goes a copy of the recording: few, but enough that no worker ends long before others.
_BATCHES_PER_WORKER = 2


class Order(StrEnum):
    """What is best."""

    STEP = "step"  # the shortest step
    THROUGHPUT = "throughput"  # the most sequences in a second
    PER_RANK = "per-rank"  # the most sequences in a second of each rank


@dataclass(frozen=True, kw_only=True)
class SweepRow:
    """One scenario, without its timelines; the numbers are 0 if it was refused."""

    name: str
    sentences: tuple[str, ...]  # one per edit
    step_ns: int = 0
    low_ns: int = 0
    high_ns: int = 0
    change_ns: int = 0
    throughput: float = 0.0  # times that of the recording
    throughput_per_rank: float = 0.0
    num_ranks: int = 0
    global_batch: int = 0
    peak_bytes: int | None = None  # of the fullest rank; `None`: the model was not stated
    method: str = ""
    refusal: str = ""  # why it cannot be predicted; "" if it was

    @property
    def is_refused(self) -> bool:
        """Whether there is no prediction of it."""
        return bool(self.refusal)


@dataclass(frozen=True)
class Sweep:
    """Scenarios, the best first; those that were refused last, in the order of the file."""

    rows: tuple[SweepRow, ...]
    order: Order
    measured_step_ns: int
    replayed_step_ns: int

    @property
    def best(self) -> SweepRow | None:
        """The first, unless all were refused."""
        return None if not self.rows or self.rows[0].is_refused else self.rows[0]

    def to_frame(self) -> pl.DataFrame:
        """One row per scenario."""
        import polars as pl  # on demand: it takes longer to import than this to make

        return pl.DataFrame(
            [asdict(row) | {"sentences": list(row.sentences)} for row in self.rows],
            schema_overrides={"peak_bytes": pl.Int64},
        )

    def as_json(self) -> dict[str, object]:
        """The rows and the recording's own step; times in ns."""
        return {
            "order": self.order.value,
            "measured_ns": self.measured_step_ns,
            "replayed_ns": self.replayed_step_ns,
            "scenarios": [asdict(row) | {"sentences": list(row.sentences)} for row in self.rows],
        }

    def __str__(self) -> str:
        """A line per scenario."""
        return "\n".join(
            f"{row.name}: {row.refusal}"
            if row.is_refused
            else f"{row.name}: {row.step_ns / 1e6:,.3f} ms, x {row.throughput:.3f}"
            for row in self.rows
        )


def sweep(
    ground: Ground,
    scenarios: Sequence[NamedEdits],
    *,
    order: Order = Order.THROUGHPUT,
    workers: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> Sweep:
    """Predict every scenario; what is refused stands in the answer with its reason.

    Args:
        ground: what `ground_of` makes of the recording.
        scenarios: in any order.
        order: what is best.
        workers: processes; each holds the recording once.
        progress: called with scenarios done and scenarios in all.
    """
    workers = min(workers, len(scenarios))
    found: list[SweepRow] = []
    with _mapped(workers) as mapped:
        for rows in mapped(partial(_rows, ground), _batches(scenarios, workers)):
            found += rows
            if progress is not None:
                progress(len(found), len(scenarios))
    return Sweep(
        rows=tuple(sorted(found, key=partial(_rank, order=order))),
        order=order,
        measured_step_ns=ground.measured_step_ns,
        replayed_step_ns=ground.replayed_step_ns,
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


def _row(ground: Ground, scenario: NamedEdits) -> SweepRow:
    try:
        return row_of(predict(ground, scenario.edits, name=scenario.name))
    except ModelError as err:
        sentences = tuple(_sentences(ground, scenario.edits))
        return SweepRow(name=scenario.name, sentences=sentences, refusal=str(err))


def _sentences(ground: Ground, edits: Sequence[Edit]) -> Iterator[str]:
    """What each edit says, up to the one that cannot be applied."""
    scenario = ground.before
    for edit in edits:
        try:
            sentence, scenario = edit.sentence(scenario), edit.applied(scenario)
        except ModelError:
            return
        yield sentence


@contextmanager
def _mapped(workers: int) -> Iterator[_Mapped]:
    if workers <= 1:
        yield map
        return
    # A fork would copy the locks that numba and polars hold.
    with ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        yield pool.map


def _batches(scenarios: Sequence[NamedEdits], workers: int) -> list[_Batch]:
    """Runs of scenarios: one each for one worker, which shows how far it is."""
    size = 1 if workers <= 1 else -(-len(scenarios) // (workers * _BATCHES_PER_WORKER))
    return [tuple(scenarios[at : at + size]) for at in range(0, len(scenarios), size)]


def _rows(ground: Ground, scenarios: _Batch) -> list[SweepRow]:
    return [_row(ground, one) for one in scenarios]
