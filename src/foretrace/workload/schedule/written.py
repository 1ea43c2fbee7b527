"""Schedules that a user wrote: TOML with each stage's order, or PyTorch's CSV.

In TOML, `F3` is the forward pass of microbatch 3 on the stage's only chunk, `F3.1` on its second
one; `B` is a whole backward pass, `I` and `W` its two halves; `F3+B1` runs both woven together.
In PyTorch's CSV, a row is a stage's order and `8F3` the forward pass of chunk 8.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from foretrace.base import Table, WorkloadError, check_keys, parsed_toml
from foretrace.workload.schedule.legality import check_schedule
from foretrace.workload.schedule.schedule import Pass, Schedule, ScheduleUnit

_KEYS = ("kind", "title", "stages", "stage_of_chunk", "routes", "route_of_microbatch")
_KINDS = {"F": Pass.FORWARD, "B": Pass.BACKWARD, "I": Pass.INPUT, "W": Pass.WEIGHT}
_UNIT = re.compile(r"([FBIW])(\d+)(?:\.(\d+))?")
_PYTORCH_UNIT = re.compile(r"(\d+)([FBIW])(\d+)")
# Sends, receives and gathers that PyTorch writes into some of its files follow from the order.
_PYTORCH_COMMUNICATION = re.compile(
    r"\d*(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*"
)


def is_written(schedule: str) -> bool:
    """Whether a plan's `schedule` names a file rather than an order that is known by name."""
    return schedule.endswith((".toml", ".csv")) or "/" in schedule


def read_schedule(path: Path) -> Schedule:
    """The schedule in a file, checked.

    Raises:
        WorkloadError: if there is no such file, it cannot be read, or its order cannot run.
    """
    where = f"schedule file {str(path)!r}"
    if not path.is_file():
        raise WorkloadError(
            f"{where} does not exist: name a file, or one of the schedules that are known"
        )
    schedule = _of_csv(path, where) if path.suffix == ".csv" else _of_toml(path, where)
    check_schedule(schedule, where)
    return schedule


def _of_toml(path: Path, where: str) -> Schedule:
    table = parsed_toml(path, WorkloadError)
    check_keys(table, _KEYS, where, error=WorkloadError)
    if table.get("kind", "schedule") != "schedule":
        raise WorkloadError(f'{where} has kind {table["kind"]!r}: write kind = "schedule"')
    lines = table.get("stages")
    if not isinstance(lines, list) or not lines or not all(isinstance(one, str) for one in lines):
        raise WorkloadError(
            f'{where} needs stages = ["F0 F1 B0 B1", ...]: one text for each stage, found {lines!r}'
        )
    written = [list(_toml_units(line, f"stage {at} of {where}")) for at, line in enumerate(lines)]
    if "stage_of_chunk" in table:
        stage_of_chunk = _numbers(table, "stage_of_chunk", where)
    else:
        most = max((unit.chunk for units in written for unit in units), default=0)
        stage_of_chunk = tuple(range(len(written))) * (most + 1)
    units = tuple(
        tuple(_placed(unit, stage, stage_of_chunk, where) for unit in order)
        for stage, order in enumerate(written)
    )
    num_microbatches = _num_microbatches(units)
    default = (0,) * num_microbatches
    return Schedule(
        name=path.stem,
        units=units,
        stage_of_chunk=stage_of_chunk,
        routes=_routes(table, len(stage_of_chunk), where),
        route_of_microbatch=(
            _numbers(table, "route_of_microbatch", where)
            if "route_of_microbatch" in table
            else default
        ),
    )


def _toml_units(line: str, where: str) -> Iterator[ScheduleUnit]:
    """Units with the stage's own numbers of chunks."""
    for word in line.split():
        parts = word.split("+")
        for part in parts:
            match = _UNIT.fullmatch(part)
            if match is None:
                raise WorkloadError(
                    f"{where} has {word!r}, which is no unit: write F, B, I or W with a "
                    "microbatch, and a chunk where the stage has several, as in F3 or B3.1; "
                    "F3+B1 are woven together"
                )
            kind, microbatch, chunk = match.groups(default="0")
            yield ScheduleUnit(_KINDS[kind], int(microbatch), int(chunk), part is not parts[-1])


def _placed(
    unit: ScheduleUnit, stage: int, stage_of_chunk: Sequence[int], where: str
) -> ScheduleUnit:
    own = [chunk for chunk, place in enumerate(stage_of_chunk) if place == stage]
    if unit.chunk >= len(own):
        raise WorkloadError(
            f"stage {stage} of {where} works on chunk {unit.chunk} of its own, but has {len(own)}: "
            "they count from 0"
        )
    return ScheduleUnit(unit.kind, unit.microbatch, own[unit.chunk], unit.is_joined)


def _routes(table: Table, num_chunks: int, where: str) -> tuple[tuple[int, ...], ...]:
    if "routes" not in table:
        return (tuple(range(num_chunks)),)
    written = table["routes"]
    if not isinstance(written, list) or not written:
        raise WorkloadError(f"{where} has routes {written!r}, where lists of chunks are expected")
    return tuple(_whole_numbers(route, "routes", where) for route in written)


def _numbers(table: Table, key: str, where: str) -> tuple[int, ...]:
    return _whole_numbers(table[key], key, where)


def _whole_numbers(written: object, key: str, where: str) -> tuple[int, ...]:
    if isinstance(written, list) and all(type(each) is int for each in written):
        return tuple(written)
    raise WorkloadError(f"{where} has {written!r} in {key}, where whole numbers are expected")


def _num_microbatches(units: Sequence[Sequence[ScheduleUnit]]) -> int:
    return max((unit.microbatch for order in units for unit in order), default=-1) + 1


def _of_csv(path: Path, where: str) -> Schedule:
    with path.open(newline="", encoding="utf-8") as file:
        rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    units = tuple(
        tuple(unit for cell in row for unit in _csv_units(cell, f"row {at + 1} of {where}"))
        for at, row in enumerate(rows)
        if any(row)
    )
    stages = {unit.chunk: stage for stage, order in enumerate(units) for unit in order}
    num_chunks = max(stages, default=-1) + 1
    missing = [chunk for chunk in range(num_chunks) if chunk not in stages]
    if missing or not stages:
        raise WorkloadError(
            f"{where} has no unit of chunk {', '.join(map(str, missing)) or '0'}: every chunk up "
            f"to the last one ({num_chunks - 1}) needs its passes"
        )
    return Schedule(
        name=path.stem,
        units=units,
        stage_of_chunk=tuple(stages[chunk] for chunk in range(num_chunks)),
        routes=(tuple(range(num_chunks)),),
        route_of_microbatch=(0,) * _num_microbatches(units),
    )


def _csv_units(cell: str, where: str) -> Iterator[ScheduleUnit]:
    if not cell or _PYTORCH_COMMUNICATION.fullmatch(cell):
        return
    # Woven pairs: "(0F3;1B1)OVERLAP_F_B".
    parts = cell.removesuffix("OVERLAP_F_B").strip("()").split(";")
    for part in parts:
        match = _PYTORCH_UNIT.fullmatch(part)
        if match is None:
            raise WorkloadError(
                f"{where} has {cell!r}, which is no unit of PyTorch's schedules: expected are "
                "chunk, F, B, I or W, and microbatch, as in 8F3"
            )
        chunk, kind, microbatch = match.groups()
        yield ScheduleUnit(_KINDS[kind], int(microbatch), int(chunk), part is not parts[-1])
