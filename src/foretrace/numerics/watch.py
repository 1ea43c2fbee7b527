"""`WatchedRun`: what a monitor's lines, or a plain table of losses, say of a run."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import msgspec
import numpy as np

from foretrace.answer import (
    Answer,
    Chart,
    ChartKind,
    Column,
    Series,
    Table,
    Told,
    Unit,
    count_text,
)
from foretrace.base import TraceError
from foretrace.numerics.alarms import FEWEST_OBSERVATIONS, Alarm, AlarmRule, Watchman
from foretrace.numerics.monitor import OPTIMIZER_RULES, STATISTICS, Observation, rule_values

_STEP = ("step", "iteration", "iter", "global_step", "_step")
_JUMP = "is far above what it was"

_RULES_OF_TABLES = (AlarmRule(statistic="value", deviations=8.0, factor=1.2, says=_JUMP),)


@dataclass(frozen=True, kw_only=True)
class WatchedLayer:
    """What one layer, or one column of a table, was over the run."""

    layer: str
    num_observations: int
    last: Mapping[str, float | None]
    largest: Mapping[str, float | None]


@dataclass(frozen=True, repr=False)
class WatchedRun(Answer):
    """Alarms, then every layer."""

    json_names: ClassVar = {"rows": "layers"}

    alarms: tuple[Alarm, ...]
    rows: tuple[WatchedLayer, ...]
    num_steps: int  # observations
    expected_std: float | None
    series: tuple[tuple[int, float], ...]  # largest of the main statistic over layers, by step

    @property
    def headline(self) -> str:
        """Whether anything is wrong."""
        layers = count_text(len(self.rows), "layer")
        seen = f"{count_text(self.num_steps, 'observation')} of {layers}"
        if self.num_steps < FEWEST_OBSERVATIONS:
            return f"too short to judge: {seen}, where an alarm needs {FEWEST_OBSERVATIONS}"
        if not self.alarms:
            return f"no alarm in {seen}"
        first = self.alarms[0]
        return (
            f"{count_text(len(self.alarms), 'alarm')} in {seen}, the first at step {first.step}: "
            f"{first.layer}, {first.says}"
        )

    def parts(self) -> tuple[Told, ...]:
        """Alarms, layers, and the run."""
        alarms = Table.of(
            "alarms",
            self.alarms,
            Column("step", unit=Unit.IDENTIFIER),
            Column("layer", unit=Unit.NAME),
            Column("statistic", unit=Unit.WORD),
            Column("value", unit=Unit.NUMBER),
            Column("limit", unit=Unit.NUMBER),
            Column("says"),
            title="alarms",
        )
        keys = list(dict.fromkeys(key for one in self.rows for key in one.last))
        layers = Table.of(
            "layers",
            self.rows,
            Column("layer", "layer", Unit.NAME),
            Column("num_observations"),
            *(_column("last", key) for key in keys),
            *(_column("largest", key) for key in keys[:1]),
            title="layers",
        )
        chart = Chart(
            ChartKind.CURVES,
            "The largest of the main statistic over all layers, by step",
            "step",
            (Series("largest", "largest", "compute"),),
            Unit.NUMBER,
            category_unit=Unit.COUNT,
        )
        columns = (Column("step", unit=Unit.COUNT), Column("largest", unit=Unit.NUMBER))
        return alarms, layers, Table("by_step", "over the run", columns, self.series, chart=chart)


def _column(side: str, key: str) -> Column:
    def value(one: WatchedLayer) -> float | None:
        found: Mapping[str, float | None] = getattr(one, side)
        return found.get(key)

    name = key if side == "last" else f"{side}_{key}"
    return Column(name, name.replace("_", " "), Unit.NUMBER, value)


def watch(path: str | Path) -> WatchedRun:
    """What a file says: lines of `OptimizerMonitor`, or a CSV with a column of steps.

    Raises:
        TraceError: if it cannot be read, or is neither.
    """
    place = Path(path)
    text = _text_of(place)
    found = list(_observations(place, text) if text.startswith("{") else _table(place, text))
    if not found:
        raise TraceError(f"{place} holds no observation: nothing was watched, or the file is empty")
    return watched(found, OPTIMIZER_RULES if text.startswith("{") else _RULES_OF_TABLES)


def logs_beside(paths: Iterable[Path]) -> dict[int | None, tuple[Observation, ...]]:
    """Logs of monitors in the folders of these files, by the rank that wrote them.

    Raises:
        TraceError: if one cannot be read.
    """
    found: dict[int | None, tuple[Observation, ...]] = {}
    for folder in sorted({path.parent for path in paths}):
        for place in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
            with place.open("rb") as file:
                try:
                    first = msgspec.json.decode(file.readline(), type=Observation)
                except msgspec.DecodeError:  # of another tool
                    continue
            found.setdefault(first.rank, tuple(_observations(place, _text_of(place))))
    return found


def _text_of(place: Path) -> str:
    try:
        return place.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = str(getattr(error, "strerror", None) or error).lower()
        raise TraceError(f"{place} cannot be read: {reason}; give a log of a monitor") from error


def _observations(place: Path, text: str) -> Iterator[Observation]:
    """Lines of JSON; the last may be cut off."""
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        try:
            yield msgspec.json.decode(line, type=Observation)
        except msgspec.DecodeError as error:
            if number == len(lines) and not text.endswith("\n"):
                return
            raise TraceError(
                f"{place}, line {number}: {error}; expected a line of OptimizerMonitor"
            ) from error


def _table(place: Path, text: str) -> Iterator[Observation]:
    """Rows of a CSV; every column of numbers is a layer of its own."""
    rows = csv.DictReader(text.splitlines())
    names = [name for name in rows.fieldnames or [] if name]
    step = next((name for name in names if name.strip().lower() in _STEP), None)
    if step is None:
        raise TraceError(
            f"{place} has the columns {', '.join(names) or 'none'}: expected lines of JSON, or one "
            f"of {', '.join(_STEP)} beside losses and norms"
        )
    for number, row in enumerate(rows, 2):
        values = {name: _parsed(row[name]) for name in names if name != step}
        at = _parsed(row[step])
        if at is None or not math.isfinite(at):
            raise TraceError(f"{place}, line {number}: the step {row[step]!r} is no number")
        layers = {name: {"value": value} for name, value in values.items()}
        yield Observation(step=int(at), time_ns=0, layers=layers)


def _parsed(text: str | None) -> float | None:
    try:
        return float(text or "")
    except ValueError:
        return None


def watched(
    found: Sequence[Observation], rules: Sequence[AlarmRule] = OPTIMIZER_RULES
) -> WatchedRun:
    """What observations, one or more, say of a run."""
    is_table = rules[0].statistic == "value"
    watchman = Watchman(rules)
    alarms: list[Alarm] = []
    series: list[tuple[int, float]] = []
    keys = ("value",) if is_table else STATISTICS
    for one in found:
        layers, values = rule_values(one) if not is_table else _values(one)
        alarms += watchman.observe(one.step, layers, values)
        known = [value for row in one.layers.values() if (value := row.get(keys[0])) is not None]
        series.append((one.step, max(filter(math.isfinite, known), default=math.nan)))
    last = found[-1]
    rows = tuple(
        WatchedLayer(
            layer=name,
            num_observations=len(found),
            last={key: last.layers[name].get(key) for key in keys},
            largest={key: _largest(found, name, key) for key in keys},
        )
        for name in last.layers
    )
    rows = tuple(sorted(rows, key=lambda one: -(one.largest[keys[0]] or 0.0)))
    return WatchedRun(tuple(alarms), rows, len(found), last.expected_std, tuple(series))


def _values(of: Observation) -> tuple[list[str], np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    # A loss that is no number is as far above as can be.
    rows = [[math.inf if _is_lost(row["value"]) else row["value"]] for row in of.layers.values()]
    return list(of.layers), np.array(rows, np.float64)


def _is_lost(value: float | None) -> bool:
    return value is not None and math.isnan(value)


def _largest(found: Sequence[Observation], layer: str, key: str) -> float | None:
    known = (one.layers.get(layer, {}).get(key) for one in found)
    return max((one for one in known if one is not None), default=None)
