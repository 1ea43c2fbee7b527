"""`Sweep`: many scenarios of one recording, from a file or a list, predicted, the best first.

```toml
[[scenario]]
name = "wider network"
set = { "network.pod.bandwidth" = "400Gb/s" }

[[scenario]]
name = "twice as deep"
layers = 64
pp = 4
```
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Sentences,
    Shown,
    Table,
    Told,
    Unit,
    count_text,
    duration_text,
)
from foretrace.base import (
    DescriptionKey,
    ModelError,
    ScenarioError,
    SweepEngine,
    mapped,
    parsed_toml,
    read_keys,
    read_value,
)
from foretrace.whatif.baseline import Baseline
from foretrace.whatif.edits.edit import Edit
from foretrace.whatif.edits.stated import edits_of
from foretrace.whatif.predict import predict
from foretrace.whatif.prediction import Prediction

_ENTRIES = "scenario"
_KEYS = (DescriptionKey(_ENTRIES, tuple[dict[str, Any], ...], expected="a list of tables"),)
_NAME = DescriptionKey("name", Annotated[str, Meta(pattern=r"\S")], expected="a name")


@dataclass(frozen=True)
class NamedEdits:
    """One scenario as it was written: its name, and its edits in the order in which they act."""

    name: str
    edits: tuple[Edit, ...]


def read_scenarios(path: Path, *, folders: Sequence[Path] = ()) -> tuple[NamedEdits, ...]:
    """The scenarios of a file, in its order.

    Args:
        path: a TOML file of `[[scenario]]` entries.
        folders: the user's own, where names of machines are looked up before the presets.

    Raises:
        ScenarioError: if the file cannot be read as one, naming file, entry and key.
    """
    where = f"scenario file {str(path)!r}"
    document = read_keys(parsed_toml(path, ScenarioError), _KEYS, where, error=ScenarioError)
    entries = document.get(_ENTRIES, ())
    if not entries:
        raise ScenarioError(
            f"{where} holds no scenario: write one as [[scenario]], with a name and its edits below"
        )
    found: list[NamedEdits] = []
    for number, entry in enumerate(entries, start=1):
        one = _scenario(entry, number, where, folders)
        if one.name in {other.name for other in found}:
            raise ScenarioError(f"{where} has two scenarios called {one.name!r}: rename one")
        found.append(one)
    return tuple(found)


def _scenario(
    table: Mapping[str, object], number: int, where: str, folders: Sequence[Path]
) -> NamedEdits:
    here = f"scenario {number} of {where}"
    if "name" not in table:
        raise ScenarioError(f"{here} has no name: give it one, as in name = 'wider'")
    name = read_value(table["name"], _NAME, here, error=ScenarioError).strip()
    place = f"scenario {name!r} of {where}"
    edits = edits_of({key: table[key] for key in table if key != "name"}, place, folders=folders)
    if not edits:
        raise ScenarioError(f"{place} edits nothing: state what changes, as in layers = 96")
    return NamedEdits(name, edits)


class Order(StrEnum):
    """What is best."""

    STEP = "step"  # the shortest step
    THROUGHPUT = "throughput"  # the most sequences in a second
    PER_RANK = "per-rank"  # the most sequences in a second of each rank


@dataclass(frozen=True, kw_only=True)
class SweepRow(Plain):
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


@dataclass(frozen=True, repr=False)
class Sweep(Answer):
    """Scenarios, the best first; those that were refused last, in the order of the file."""

    json_names: ClassVar = {
        "rows": "scenarios", "measured_step_ns": "measured_ns", "replayed_step_ns": "replayed_ns",
    }  # fmt: skip

    rows: tuple[SweepRow, ...]
    order: Order
    measured_step_ns: int
    replayed_step_ns: int

    @property
    def best(self) -> SweepRow | None:
        """The first, unless all were refused."""
        return None if not self.rows or self.rows[0].is_refused else self.rows[0]

    @property
    def headline(self) -> str:
        """How many scenarios there are, and what they are held against."""
        return (
            f"{count_text(len(self.rows), 'scenario')}, best {_ORDERS[self.order]} first; before: "
            f"{duration_text(self.replayed_step_ns)} replayed, "
            f"{duration_text(self.measured_step_ns)} measured"
        )

    def parts(self) -> tuple[Told, ...]:
        """The scenarios, then why some were refused."""
        refused = (f"{row.name}: {row.refusal}" for row in self.rows if row.is_refused)
        kept = [row for row in self.rows if not row.is_refused]
        return _table(kept), Sentences.of("refused", refused)

    def tables(self) -> tuple[Table, ...]:
        """All scenarios, those that were refused too."""
        return (_table(self.rows),)


_ORDERS = {
    Order.STEP: "step",
    Order.THROUGHPUT: "throughput",
    Order.PER_RANK: "throughput per rank",
}


def _table(rows: Sequence[SweepRow]) -> Table:
    # Where all have the recording's ranks, a rank does what the job does.
    has_ranks = any(row.throughput != row.throughput_per_rank for row in rows)
    ranks = Shown.EVERYWHERE if has_ranks else Shown.FILES
    return Table.of(
        "scenarios",
        rows,
        Column("name", "scenario", Unit.NAME),
        Column("sentences", value=lambda row: "; ".join(row.sentences), shown=Shown.FILES),
        Column("step_ns"),
        Column("change", unit=Unit.SIGNED_SHARE, value=_change),
        Column("change_ns", unit=Unit.SIGNED_MS, shown=Shown.FILES),
        Column("low_ns", "10 % ms"),
        Column("high_ns", "90 % ms"),
        Column("throughput", "seq/s, times", Unit.NUMBER),
        Column("throughput_per_rank", "per rank", Unit.NUMBER, shown=ranks),
        Column("num_ranks", shown=ranks),
        Column("global_batch", unit=Unit.COUNT, shown=Shown.FILES),
        Column("peak_bytes", "memory"),
        Column("method", shown=Shown.FILES),
        Column("refusal", shown=Shown.FILES),
    )


def _change(row: SweepRow) -> float:
    """How much longer a scenario's step is, as a share of the step before."""
    return row.change_ns / max(row.step_ns - row.change_ns, 1)


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
