"""What a file says about itself: the members beside its list of events."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from foretrace.base import MOST_RANKS
from foretrace.trace.columns import ProcessGroup, TraceMeta
from foretrace.trace.fields import Row
from foretrace.trace.scan import Scanned

_LARGEST_BASE_NS = 4 * 10**18  # year 2096; more would not leave room for a timestamp
_MOST_DIGITS = 20  # of a number written as text: more is in none of the fields
_MAX_NOTES = 20

KEPT_OF_CUT = "before that are kept"  # says of a file that was cut off what is left


@dataclass(frozen=True)
class DescribedFile:
    """What the members say."""

    rank: int | None
    world_size: int | None
    backend: str | None
    process_groups: tuple[ProcessGroup, ...]
    device_names: tuple[str, ...]
    base_ns: int  # what timestamps are relative to
    notes: tuple[str, ...]


def described(members: dict[str, bytes]) -> DescribedFile:
    """The members that are read, decoded; whatever has an unexpected form counts as absent."""
    notes: list[str] = []
    wanted = ("distributedInfo", "deviceProperties", "baseTimeNanoseconds")
    decoded = {name: _decoded(members, name, notes) for name in wanted}
    distributed = decoded["distributedInfo"]
    info = distributed if isinstance(distributed, dict) else {}
    groups = info.get("pg_config")
    devices = decoded["deviceProperties"]
    return DescribedFile(
        rank=_count(info, "rank", notes),
        world_size=_count(info, "world_size", notes),
        backend=_text(info.get("backend")),
        process_groups=tuple(
            _group(entry)
            for entry in (groups if isinstance(groups, list) else ())
            if isinstance(entry, dict)
        ),
        device_names=tuple(
            _text(entry.get("name")) or ""
            for entry in (devices if isinstance(devices, list) else ())
            if isinstance(entry, dict)
        ),
        base_ns=_base_ns(decoded["baseTimeNanoseconds"], notes),
        notes=tuple(notes),
    )


def _decoded(members: dict[str, bytes], name: str, notes: list[str]) -> object:
    """A member's value; None, with a note, if it is not JSON, or nested too deep to be read."""
    if name not in members:
        return None
    try:
        value: object = msgspec.json.decode(members[name])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as err:
        notes.append(f"member {name!r} cannot be read and is ignored ({err})")
        return None
    return value


def _base_ns(value: object, notes: list[str]) -> int:
    if value is None:
        return 0
    base = _integer(value)
    if base is None or not 0 <= base < _LARGEST_BASE_NS:
        notes.append(f"baseTimeNanoseconds is {value!r}, expected nanoseconds since 1970; ignored")
        return 0
    return base


def _count(info: dict[object, object], name: str, notes: list[str]) -> int | None:
    """A rank or a number of ranks; None, with a note, if no job has so many."""
    count = _integer(info.get(name))
    if count is not None and not 0 <= count <= MOST_RANKS:
        notes.append(f"{name} is {count}, expected 0 to {MOST_RANKS}; ignored")
        return None
    return count


def _integer(value: object) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) <= _MOST_DIGITS:
        with suppress(ValueError):
            return int(value)
    return None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _group(entry: dict[object, object]) -> ProcessGroup:
    name = entry.get("pg_name")
    ranks = entry.get("ranks")
    return ProcessGroup(
        name=name if isinstance(name, str) else "" if name is None else str(name),
        description=_text(entry.get("pg_desc")) or "",
        ranks=_ranks(ranks),
    )


def _ranks(value: object) -> tuple[int, ...]:
    if not isinstance(value, list):
        return ()
    if set(map(type, value)) == {int}:  # told at once: every file lists all ranks
        return tuple(value)
    ranks = [_integer(entry) for entry in value]
    return tuple(rank for rank in ranks if rank is not None) if None not in ranks else ()


def trace_meta(scan: Scanned, told: DescribedFile, *, path: Path, file_bytes: int) -> TraceMeta:
    """The record that goes with a trace's columns."""
    notes = [*told.notes, *scan.notes]
    if scan.cut is not None:
        notes.append(
            f"{scan.cut}: {scan.num_events:,} whole events {KEPT_OF_CUT}, "
            "the record that was cut is not"
        )
    if scan.num_negative:
        notes.append(f"{scan.num_negative:,} negative durations are taken as 0")
    is_whole = not (
        np.any(scan.rows[:, Row.START] % 1000) or np.any(scan.rows[:, Row.DURATION] % 1000 > 0)
    )
    return TraceMeta(
        path=path,
        content_key="",
        file_bytes=file_bytes,
        json_bytes=scan.json_bytes,
        rank=told.rank,
        world_size=told.world_size,
        backend=told.backend,
        process_groups=told.process_groups,
        device_names=told.device_names,
        timestamp_unit_ns=1000 if is_whole else 1,
        is_truncated=scan.cut is not None,
        num_events=scan.num_events,
        dropped=scan.dropped,
        notes=tuple(notes[:_MAX_NOTES]),
    )
