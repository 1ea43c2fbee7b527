"""What a live test comes to: one row per configuration, and the errors over all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Sentences,
    Table,
    Told,
    Unit,
    columns_of,
    duration_text,
    percent_text,
)
from foretrace.base import NS_PER_MS
from foretrace.validate.measures import is_inside, relative_error

_SHORT = {
    "exposed_compute": "compute",
    "overlapped": "overlapped",
    "exposed_communication": "communic.",
    "idle": "idle",
}
_HOW_TO_READ = (
    "measured: steps without the profiler, median of each run, then of runs",
    "of runs: the fastest and the slowest run's median",
    "predicted: from the base's recording and the machine's description alone",
    "interval: the middle 80 % of what it may be; errors in percent of measured",
    "naive: the error of the base's step times FLOPs over ranks",
    "profiled steps take longer than predicted ones, which have no profiler",
)


@dataclass(frozen=True)
class LiveComponent(Plain):
    """A part of a rank's step, mean over ranks and steps."""

    predicted_ns: int | None  # without the profiler
    measured_ns: int | None  # of profiled steps, which take longer; `None`: not recorded


@dataclass(frozen=True, kw_only=True)
class LiveRow(Plain):
    """One configuration, predicted from the base's recording and run."""

    json_also = ("error", "naive_error")

    name: str
    changes: str  # in words: "layers 4 -> 8"
    num_ranks: int
    measured_ns: int | None  # median over runs of their median step; `None`: not run
    measured_low_ns: int | None  # the fastest run's
    measured_high_ns: int | None  # the slowest run's
    num_runs: int
    predicted_ns: int | None  # `None`: refused
    low_ns: int | None  # 10th percentile
    high_ns: int | None  # 90th
    naive_ns: int
    components: Mapping[str, LiveComponent]
    why: str = ""  # why something is missing

    @property
    def error(self) -> float | None:
        """Predicted over measured, less 1."""
        return relative_error(self.predicted_ns, self.measured_ns)

    @property
    def naive_error(self) -> float | None:
        """The same of naive scaling."""
        return relative_error(self.naive_ns, self.measured_ns)

    @property
    def is_inside(self) -> bool | None:
        """Whether the measured step lies in the predicted interval."""
        return is_inside(self.measured_ns, self.low_ns, self.high_ns)


@dataclass(frozen=True, kw_only=True, repr=False)
class LiveReport(Answer):
    """A live test: what was predicted from one recording, and what was measured then."""

    json_also = ("mean_abs_error", "naive_mean_abs_error", "num_inside")

    device: str
    num_cores: int
    base: LiveRow  # predicted and run like the others, and not counted in the errors
    rows: tuple[LiveRow, ...]  # every configuration of the list, in its order
    profiler_ns: int  # what the profiler adds to a step of the base
    event_ns: int  # the same for each recorded host event
    unrest: float = 0.0  # how much faster one process alone was at times, while it was described
    is_busy: bool = False  # by more than a calm machine's

    @property
    def mean_abs_error(self) -> float | None:
        """Mean size of the errors of all rows that were run; `None` if one was not predicted."""
        return _mean([row.error for row in self.rows if row.measured_ns is not None])

    @property
    def naive_mean_abs_error(self) -> float | None:
        """The same of naive scaling."""
        return _mean([row.naive_error for row in self.rows if row.measured_ns is not None])

    @property
    def num_inside(self) -> int:
        """Rows whose measured step lies in the predicted interval."""
        return sum(row.is_inside is True for row in self.rows)

    @property
    def headline(self) -> str:
        """What it was run on."""
        return f"{self.device}, {self.num_cores} processor cores"

    def parts(self) -> tuple[Told, ...]:
        """Every configuration, where its time goes, the errors over all of them."""
        return (
            self._steps(),
            self._components(),
            Sentences.of("over the list", self._summary()),
            Sentences.of(
                "what is missing",
                (f"{row.name}: {row.why}" for row in (self.base, *self.rows) if row.why),
            ),
            Sentences.of("how to read it", _HOW_TO_READ),
        )

    def tables(self) -> tuple[Table, ...]:
        """One row per configuration; components are columns of their own."""
        names = dict.fromkeys(name for row in self.rows for name in row.components)
        own = columns_of(LiveRow, "error", "naive_error", without=("components",))
        parts = (
            Column(f"{name}_{side}_ns", value=_part(name, f"{side}_ns"))
            for name in names
            for side in ("predicted", "measured")
        )
        return (Table.of("rows", self.rows, *own, *parts),)

    def _steps(self) -> Table:
        return Table.of(
            "steps",
            (self.base, *self.rows),
            Column("name", "ms a step", Unit.WORD),
            Column("measured_ns", "measured"),
            Column(
                "of_runs", value=lambda row: _between(row.measured_low_ns, row.measured_high_ns)
            ),
            Column("predicted_ns", "predicted"),
            Column("interval", value=lambda row: _between(row.low_ns, row.high_ns)),
            Column("error", unit=Unit.SIGNED_SHARE),
            Column("naive_error", "naive", Unit.SIGNED_SHARE),
        )

    def _components(self) -> Table:
        return Table.of(
            "components",
            (self.base, *self.rows),
            Column("name", "configuration", Unit.WORD),
            *(Column(name, title, Unit.WORD, _both(name)) for name, title in _SHORT.items()),
            title="a rank's step, predicted | profiled, ms",
        )

    def _summary(self) -> Iterator[str]:
        if self.is_busy:
            yield (
                "this machine was busy while it was described: one process alone was up to "
                f"{_percent(self.unrest)} faster at times; intervals are wider for it, and errors "
                "say less: run it again on a calm machine"
            )
        num_run = sum(row.measured_ns is not None for row in self.rows)
        yield (
            f"mean error {_percent(self.mean_abs_error)}, of naive scaling "
            f"{_percent(self.naive_mean_abs_error)}, over {num_run} of {len(self.rows)} "
            "configurations that were run"
        )
        yield f"{self.num_inside} of {num_run} measured steps lie in their interval"
        yield (
            f"the profiler adds {duration_text(self.profiler_ns)} to a step of the base, "
            f"{duration_text(self.event_ns)} for each event, which predictions leave out"
        )


def _part(name: str, side: str) -> Callable[[LiveRow], int | None]:
    """Of a row, one side of a component."""
    return lambda row: getattr(row.components.get(name), side, None)


def _both(name: str) -> Callable[[LiveRow], str]:
    """Of a row, both sides of a component in ms."""
    sides = _part(name, "predicted_ns"), _part(name, "measured_ns")
    return lambda row: " | ".join(_ms(side(row)) for side in sides)


def _ms(time_ns: int | None) -> str:
    return "-" if time_ns is None else f"{time_ns / NS_PER_MS:.0f}"


def _between(low_ns: int | None, high_ns: int | None) -> str:
    return "" if low_ns is None else f"{_ms(low_ns)}..{_ms(high_ns)}"


def _percent(share: float | None) -> str:
    return "not known" if share is None else percent_text(100 * share)


def _mean(errors: list[float | None]) -> float | None:
    known = [abs(each) for each in errors if each is not None]
    return float(np.mean(known)) if known and len(known) == len(errors) else None
