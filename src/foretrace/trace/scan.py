"""Text pieces become tables: allocates, feeds and enlarges what the compiled loop writes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from foretrace.base import Int64s, TraceError, UInt8s
from foretrace.trace._compiled import Counts, Known, scan
from foretrace.trace.fields import (
    CATEGORY_TEXTS,
    COLLECTIVE_FIELDS,
    DROP_TEXTS,
    FLOW_FIELDS,
    HALF_FIELDS,
    LANE_FIELDS,
    MEMORY_FIELDS,
    SIGNATURE_MEMBERS,
    SYNC_FIELDS,
    Drop,
    RecordKey,
    Row,
    ScanPhase,
    ScanState,
    ScanStatus,
    key_table,
)
from foretrace.trace.record._compiled import RecordTables, Scratch, fill_lane_slots
from foretrace.trace.source import CutShortError, OpenFile
from foretrace.trace.texts._compiled import Pool, fill_slots, text_at

_Array = TypeVar("_Array", Int64s, UInt8s)
_MAX_SHOWN = 5
_TAIL = 64  # zeros that the compiled loop may read behind the text
_SCRATCH_ROOM = 256  # what a signature's labels add to the text of one record
# Bytes of text per record: 224 to 840 in the public traces seen; below the low end, so that
# tables are rarely enlarged. Room that is never written to costs no memory.
_BYTES_PER_RECORD = 150

_KEYS = key_table()
_WORDS = (np.frombuffer(b"traceEvents", np.uint8), np.frombuffer(b"nodes", np.uint8))
_LABELS = np.frombuffer("".join(label for label, _ in SIGNATURE_MEMBERS).encode(), np.uint8)
_LABEL_BEGINS = np.cumsum([0, *(len(label) for label, _ in SIGNATURE_MEMBERS)], dtype=np.int64)


@dataclass(frozen=True)
class Scanned:
    """What stands in a file, in the order of the file."""

    rows: Int64s  # int64[rows, len(Row)]; Row.DURATION is -1 where only a beginning was seen
    collectives: Int64s  # int64[rows, COLLECTIVE_FIELDS]
    syncs: Int64s  # int64[rows, SYNC_FIELDS]
    memory: Int64s  # int64[rows, MEMORY_FIELDS]
    flows: Int64s  # int64[rows, FLOW_FIELDS]
    halves: Int64s  # int64[rows, HALF_FIELDS]
    lanes: Int64s  # int64[lanes, LANE_FIELDS]
    arena: UInt8s  # uint8[bytes], all strings one after the other
    begins: Int64s  # int64[strings + 1], into `arena`
    members: dict[str, bytes]  # the file's other members, as text
    dropped: dict[str, int]
    num_events: int
    num_negative: int  # negative durations, taken as 0
    json_bytes: int
    cut: str | None  # why the file ends early, in words
    notes: tuple[str, ...]


@dataclass
class _Work:
    """Everything the compiled loop writes; replaced piece by piece as it grows."""

    buffer: UInt8s
    filled: int
    scratch: Scratch
    tables: RecordTables
    pool: Pool
    known: Known
    counts: Counts
    state: Int64s
    members: dict[str, bytes]


def scanned(source: OpenFile) -> Scanned:
    """Everything a file says, read once and in bounded memory beside the tables.

    Raises:
        TraceError: if the text is not JSON, or no list of trace events.
    """
    work = _new_work(source.likely_json_bytes)
    json_bytes = 0
    cut = None
    needed = 0
    pieces = _until_cut(source.pieces)
    for piece in pieces:
        if isinstance(piece, CutShortError):
            cut = str(piece)
            break
        _append(work, piece)
        json_bytes += len(piece)
        if work.filled < needed:
            continue
        rest = _scan_buffer(work, source, json_bytes)
        # What is left is the beginning of one record or member. Twice as much is read before
        # it is looked at again, so a member of any length is read in linear time.
        needed = rest * 2
    if work.filled:
        _scan_buffer(work, source, json_bytes)
    _check_is_trace(work, source, cut)
    phase = work.state[ScanState.PHASE]
    notes: tuple[str, ...] = ()
    if phase == ScanPhase.AFTER and work.filled:
        notes = ("text after the end of the JSON is ignored",)
    if phase != ScanPhase.AFTER and cut is None:
        cut = "the text ends inside its JSON"
    return _result(work, json_bytes, cut, notes)


def _check_is_trace(work: _Work, source: OpenFile, cut: str | None) -> None:
    state, by_reason = work.state, work.counts.by_reason
    if not state[ScanState.HAS_LIST]:
        if cut is not None or state[ScanState.PHASE] != ScanPhase.AFTER:
            reason = cut or "the text ends"
            raise TraceError(
                f"cannot read {source.path}: {reason} before any event; record or copy it again"
            )
        names = ", ".join(repr(name) for name in list(work.members)[:_MAX_SHOWN]) or "nothing"
        raise TraceError(
            f"cannot read {source.path}: found JSON with the members {names}, expected a list "
            "'traceEvents'; name the file that torch.profiler's export_chrome_trace wrote"
        )
    num_events = int(state[ScanState.NUM_EVENTS])
    num_odd = int(by_reason[Drop.NOT_AN_OBJECT] + by_reason[Drop.NO_PHASE])
    if num_events and num_odd == num_events:
        raise TraceError(
            f"cannot read {source.path}: none of its {num_events:,} records has a phase 'ph', "
            "as trace events have; name the file that torch.profiler's export_chrome_trace wrote"
        )


def _until_cut(pieces: Iterator[bytes]) -> Iterator[bytes | CutShortError]:
    try:
        yield from pieces
    except CutShortError as err:
        yield err


def _new_work(likely_json_bytes: int) -> _Work:
    """Tables for a file of this size; memory that is not written to is not used."""
    num_rows = min(max(likely_json_bytes // _BYTES_PER_RECORD, 1024), 1 << 22)
    first, known = _first_texts()
    num_texts = int(first.size[0])
    num_bytes = int(first.begins[num_texts])
    pool = _pool()
    pool.arena[:num_bytes] = first.arena[:num_bytes]
    pool.begins[: num_texts + 1] = first.begins[: num_texts + 1]
    pool.hashes[:num_texts] = first.hashes[:num_texts]
    pool.slots[:] = first.slots
    pool.size[:] = first.size
    state = np.zeros(len(ScanState), np.int64)
    tables = RecordTables(
        rows=np.empty((num_rows, len(Row)), np.int64),
        collectives=np.empty((1024, COLLECTIVE_FIELDS), np.int64),
        syncs=np.empty((1024, SYNC_FIELDS), np.int64),
        memory=np.empty((1024, MEMORY_FIELDS), np.int64),
        flows=np.empty((1024, FLOW_FIELDS), np.int64),
        halves=np.empty((256, HALF_FIELDS), np.int64),
        lanes=np.empty((256, LANE_FIELDS), np.int64),
        lane_slots=np.full(512, -1, np.int32),
    )
    size = 1 << 20
    return _Work(
        buffer=np.zeros(size, np.uint8),
        filled=0,
        scratch=Scratch(
            number=np.zeros(len(RecordKey), np.int64),
            known=np.zeros(len(RecordKey), np.uint8),
            begin=np.zeros(len(RecordKey), np.int64),
            end=np.zeros(len(RecordKey), np.int64),
            text=np.empty(size + _SCRATCH_ROOM, np.uint8),
        ),
        tables=tables,
        pool=pool,
        known=known,
        counts=Counts(
            by_reason=np.zeros(len(DROP_TEXTS), np.int64),
            by_category=np.zeros(len(pool.hashes), np.int64),
            by_phase=np.zeros(256, np.int64),
        ),
        state=state,
        members={},
    )


def _pool() -> Pool:
    """One without texts."""
    return Pool(
        arena=np.empty(1 << 20, np.uint8),
        begins=np.zeros((1 << 14) + 1, np.int64),
        hashes=np.empty(1 << 14, np.int64),
        slots=np.full(1 << 15, -1, np.int32),
        size=np.zeros(1, np.int64),
    )


@cache
def _first_texts() -> tuple[Pool, Known]:
    """A pool that holds the texts that every file is asked for, and their places in it."""
    pool = _pool()
    texts = [text for text, _ in CATEGORY_TEXTS]
    for text in (*texts, "Trace", "fwdbwd", ""):
        raw = np.frombuffer(text.encode(), np.uint8)
        text_at(raw, 0, len(raw), pool)
    known = Known(
        categories=np.array([int(category) for _, category in CATEGORY_TEXTS], np.int64),
        trace=len(texts),
        forward_backward=len(texts) + 1,
        empty=len(texts) + 2,
    )
    return pool, known


def _append(work: _Work, piece: bytes) -> None:
    """Put a piece behind what is left of the text before it."""
    end = work.filled + len(piece)
    if end + _TAIL > len(work.buffer):
        larger = np.zeros(max(2 * len(work.buffer), end + _TAIL), np.uint8)
        larger[: work.filled] = work.buffer[: work.filled]
        work.buffer = larger
        work.scratch = work.scratch._replace(text=np.empty(len(larger) + _SCRATCH_ROOM, np.uint8))
    work.buffer[work.filled : end] = np.frombuffer(piece, np.uint8)
    work.buffer[end : end + _TAIL] = 0
    work.filled = end


def _scan_buffer(work: _Work, source: OpenFile, json_bytes: int) -> int:
    """Scan what is buffered and move the rest to the front; the length of the rest."""
    while True:
        status = scan(
            work.buffer,
            work.filled,
            _KEYS,
            _WORDS,
            _LABELS,
            _LABEL_BEGINS,
            work.known,
            work.scratch,
            work.tables,
            work.pool,
            work.counts,
            work.state,
        )
        if status == ScanStatus.FULL:
            _enlarge(work)
        elif status == ScanStatus.MEMBER:
            _take_member(work)
        else:
            break
    position = int(work.state[ScanState.POSITION])
    if status == ScanStatus.NODES:
        raise TraceError(
            f"cannot read {source.path}: it is an execution trace (a list of nodes, without "
            "timestamps), which cannot be replayed by itself; name the Kineto file of the same "
            "run, the one that torch.profiler's export_chrome_trace wrote"
        )
    if status == ScanStatus.MALFORMED:
        at = json_bytes - work.filled + position
        found = work.buffer[position : position + 24].tobytes().rstrip(b"\0")
        raise TraceError(
            f"cannot read {source.path}: not JSON at byte {at:,} of the text, after "
            f"{int(work.state[ScanState.NUM_EVENTS]):,} events: found {found!r}; record or copy "
            "the file again"
        )
    rest = work.filled - position
    work.buffer[:rest] = work.buffer[position : work.filled].copy()
    work.buffer[rest : rest + _TAIL] = 0
    work.filled = rest
    work.state[ScanState.POSITION] = 0
    return rest


def _take_member(work: _Work) -> None:
    begin, value, end = (
        int(work.state[at])
        for at in (ScanState.KEY_BEGIN, ScanState.VALUE_BEGIN, ScanState.VALUE_END)
    )
    text = work.buffer[begin:end].tobytes()
    key = text[1 : text.index(b'"', 1)].decode("utf-8", "replace")
    work.members[key] = text[value - begin :]


def _enlarge(work: _Work) -> None:
    """Double every table that is more than half full; the arena if none is."""
    state = work.state
    tables = work.tables
    counts = {
        "rows": ScanState.NUM_ROWS,
        "collectives": ScanState.NUM_COLLECTIVES,
        "syncs": ScanState.NUM_SYNCS,
        "memory": ScanState.NUM_MEMORY,
        "flows": ScanState.NUM_FLOWS,
        "halves": ScanState.NUM_HALVES,
        "lanes": ScanState.NUM_LANES,
    }
    grown = {
        name: _doubled(getattr(tables, name), int(state[count]))
        for name, count in counts.items()
        if 2 * state[count] >= len(getattr(tables, name))
    }
    lane_slots = tables.lane_slots
    if "lanes" in grown:
        lane_slots = np.full(2 * len(lane_slots), -1, np.int32)
        fill_lane_slots(lane_slots, tables.lanes, int(state[ScanState.NUM_LANES]))
    work.tables = RecordTables(**{**tables._asdict(), **grown, "lane_slots": lane_slots})
    num_strings = int(work.pool.size[0])
    is_pool_full = 2 * num_strings >= len(work.pool.hashes)
    if is_pool_full:
        slots = np.full(2 * len(work.pool.slots), -1, np.int32)
        fill_slots(slots, work.pool.hashes, num_strings)
        work.pool = work.pool._replace(
            begins=_doubled(work.pool.begins, num_strings + 1),
            hashes=_doubled(work.pool.hashes, num_strings),
            slots=slots,
        )
        by_category = work.counts.by_category
        work.counts = work.counts._replace(by_category=np.append(by_category, 0 * by_category))
    used = int(work.pool.begins[num_strings])
    if 2 * used >= len(work.pool.arena) or not (grown or is_pool_full):
        work.pool = work.pool._replace(arena=_doubled(work.pool.arena, used))


def _doubled(array: _Array, used: int) -> _Array:
    larger = np.empty((2 * len(array), *array.shape[1:]), array.dtype)
    larger[:used] = array[:used]
    return larger


def _result(work: _Work, json_bytes: int, cut: str | None, notes: tuple[str, ...]) -> Scanned:
    state = work.state
    num_strings = int(work.pool.size[0])
    dropped = {text: int(work.counts.by_reason[reason]) for reason, text in DROP_TEXTS.items()}
    for phase in np.flatnonzero(work.counts.by_phase):
        dropped[f"records of phase {chr(phase)!r}"] = int(work.counts.by_phase[phase])
    begins = work.pool.begins
    for string in np.flatnonzero(work.counts.by_category):
        text = work.pool.arena[begins[string] : begins[string + 1]].tobytes()
        reason = f"category {text.decode('utf-8', 'replace')!r}"
        dropped[reason] = dropped.get(reason, 0) + int(work.counts.by_category[string])
    tables = work.tables
    return Scanned(
        rows=tables.rows[: state[ScanState.NUM_ROWS]],
        collectives=tables.collectives[: state[ScanState.NUM_COLLECTIVES]],
        syncs=tables.syncs[: state[ScanState.NUM_SYNCS]],
        memory=tables.memory[: state[ScanState.NUM_MEMORY]],
        flows=tables.flows[: state[ScanState.NUM_FLOWS]],
        halves=tables.halves[: state[ScanState.NUM_HALVES]],
        lanes=tables.lanes[: state[ScanState.NUM_LANES]],
        arena=work.pool.arena[: begins[num_strings]],
        begins=begins[: num_strings + 1],
        members=work.members,
        dropped={reason: count for reason, count in dropped.items() if count},
        num_events=int(state[ScanState.NUM_EVENTS]),
        num_negative=int(state[ScanState.NUM_NEGATIVE]),
        json_bytes=json_bytes,
        cut=cut,
        notes=notes,
    )
