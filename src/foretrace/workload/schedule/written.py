"""Schedules that a user wrote: TOML with each stage's order, or PyTorch's CSV.

In TOML, `F3` is the forward pass of microbatch 3 on the stage's only chunk, `F3.1` on its second
one; `B` is a whole backward pass, `I` and `W` its two halves; `F3+B1` runs both woven together.
In PyTorch's CSV, a row is a stage's order and `8F3` the forward pass of chunk 8.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta

from foretrace.answer import count_text
from foretrace.base import DescriptionKey, Text, Whole, WorkloadError, parsed_toml, read_keys
from foretrace.workload.schedule.legality import check_schedule
from foretrace.workload.schedule.schedule import Orders, Pass, Schedule, ScheduleUnit

_WHOLES = tuple[Whole, ...]
_KEYS = (
    DescriptionKey("kind", Literal["schedule"]),
    DescriptionKey("title", str),
    DescriptionKey(
        "stages",
        Annotated[tuple[Text, ...], Meta(min_length=1)],
        is_required=True,
        expected='one text for each stage, as in ["F0 F1 B0 B1", ...],',
    ),
    DescriptionKey("stage_of_chunk", _WHOLES, expected="a list of whole numbers"),
    DescriptionKey(
        "routes",
        Annotated[tuple[_WHOLES, ...], Meta(min_length=1)],
        expected="a list of lists of chunks",
    ),
    DescriptionKey("route_of_microbatch", _WHOLES, expected="a list of whole numbers"),
)
_KINDS = {"F": Pass.FORWARD, "B": Pass.BACKWARD, "I": Pass.INPUT, "W": Pass.WEIGHT}
_LETTERS = {kind: letter for letter, kind in _KINDS.items()}
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


def pytorch_csv(schedule: Schedule) -> str:
    """A schedule as PyTorch's pipeline runtime reads it: a row for each stage.

    Raises:
        WorkloadError: if its microbatches take several ways, which that format has no place for.
    """
    if len(schedule.routes) > 1 or schedule.routes[0] != tuple(range(len(schedule.stage_of_chunk))):
        raise WorkloadError(
            f"schedule {schedule.name!r} has routes {[list(one) for one in schedule.routes]}, and "
            "PyTorch's table has one, chunk after chunk: no other order can be written as one"
        )
    return "".join(",".join(_csv_words(order)) + "\n" for order in schedule.units)


def _csv_words(order: Sequence[ScheduleUnit]) -> Iterator[str]:
    units = iter(order)
    for unit in units:
        words = [_csv_word(unit)]
        if unit.is_joined:
            words += [_csv_word(other) for other in islice(units, 1)]
        yield f"({';'.join(words)})OVERLAP_F_B" if len(words) > 1 else words[0]


def _csv_word(unit: ScheduleUnit) -> str:
    return f"{unit.chunk}{_LETTERS[unit.kind]}{unit.microbatch}"


def _of_toml(path: Path, where: str) -> Schedule:
    stated = read_keys(parsed_toml(path, WorkloadError), _KEYS, where, error=WorkloadError)
    written = [
        list(_toml_units(line, f"stage {at} of {where}"))
        for at, line in enumerate(stated["stages"])
    ]
    _check_numbers(written, where)
    most = max((unit.chunk for order in written for unit in order), default=0)
    stage_of_chunk = stated.get("stage_of_chunk", tuple(range(len(written))) * (most + 1))
    units = tuple(
        tuple(_placed(unit, stage, stage_of_chunk, where) for unit in order)
        for stage, order in enumerate(written)
    )
    return Schedule(
        name=path.stem,
        orders=Orders.of_units(units),
        stage_of_chunk=stage_of_chunk,
        routes=stated.get("routes", (tuple(range(len(stage_of_chunk))),)),
        route_of_microbatch=stated.get("route_of_microbatch", (0,) * _num_microbatches(units)),
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


def _check_numbers(units: Sequence[Sequence[ScheduleUnit]], where: str) -> None:
    """Refuse numbers beyond the units there are, before anything is made for each number below."""
    num_units = sum(map(len, units))
    for what in ("microbatch", "chunk"):
        last = max((getattr(unit, what) for order in units for unit in order), default=-1)
        if last >= num_units:
            raise WorkloadError(
                f"{where} works on {what} {last}, but has {count_text(num_units, 'unit')} in all: "
                "they count from 0, and each one up to the last needs its passes"
            )


def _num_microbatches(units: Sequence[Sequence[ScheduleUnit]]) -> int:
    return max((unit.microbatch for order in units for unit in order), default=-1) + 1


def _of_csv(path: Path, where: str) -> Schedule:
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = [[cell.strip() for cell in row] for row in csv.reader(file)]
    except (UnicodeDecodeError, csv.Error) as err:
        raise WorkloadError(f"cannot read {where}: it is no table of text ({err})") from err
    units = tuple(
        tuple(unit for cell in row for unit in _csv_units(cell, f"row {at + 1} of {where}"))
        for at, row in enumerate(rows)
        if any(row)
    )
    _check_numbers(units, where)
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
        orders=Orders.of_units(units),
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
