"""Names for gloo's collectives: which group, which number inside it.

NCCL writes both into the trace. gloo writes neither: its calls (`c10d::allreduce_`) carry
shapes and nothing else. c10d's flight recorder knows: one entry per collective, made inside
the call, on the same clock (200 of 200 calls, torch 2.13). So the entries are laid onto the
calls by time, and added to the trace under NCCL's own keys.

Sends and receives have no entry and stay as they are, and so does everything in PyTorch
versions whose flight recorder does not follow gloo.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from foretrace.base import NS_PER_US
from foretrace.trace import FlightDump, FlightEntry, ProcessGroup

# How far an entry may lie outside its call: Kineto's clock is fitted to the wall clock that
# the flight recorder reads (entries lay 9 us or more inside, torch 2.13).
SLACK_NS = 20_000

# `c10d::` operator -> name in the flight recorder, name in NCCL's metadata.
NAMES = {
    "allreduce_": ("gloo:all_reduce", "allreduce"),
    "allreduce_coalesced_": ("gloo:all_reduce", "allreduce_coalesced"),
    "reduce_": ("gloo:reduce", "reduce"),
    "broadcast_": ("gloo:broadcast", "broadcast"),
    "allgather_": ("gloo:all_gather", "allgather"),
    "_allgather_base_": ("gloo:all_gather", "_allgather_base"),
    "allgather_coalesced_": ("gloo:all_gather", "allgather_coalesced"),
    "allgather_into_tensor_coalesced_": ("gloo:all_gather", "allgather_into_tensor_coalesced"),
    # gloo reduces everything and keeps a part.
    "reduce_scatter_": ("gloo:all_reduce", "reduce_scatter"),
    "_reduce_scatter_base_": ("gloo:all_reduce", "_reduce_scatter_base"),
    "gather_": ("gloo:gather", "gather"),
    "scatter_": ("gloo:scatter", "scatter"),
    "alltoall_": ("gloo:all_to_all", "all_to_all"),
    "alltoall_base_": ("gloo:all_to_all", "all_to_allv"),
    "barrier": ("gloo:barrier", "barrier"),
}

_CALL = re.compile(rb'"name": "c10d::(\w+)"')
_SPAN = re.compile(rb'"ts": (\d+)\.(\d{3}),\s*"dur": (\d+)(?:\.(\d{3}))?')
_ZERO = re.compile(rb'"baseTimeNanoseconds": (\d+)')


@dataclass(frozen=True)
class GlooCall:
    """A `c10d::` operator in the file."""

    line: int  # number of the line that opens its arguments
    operator: str
    start_ns: int  # since 1970
    end_ns: int


def flight_entries() -> tuple[FlightEntry, ...]:
    """Collectives that gloo ran in this process, the last 2,000 or so, in order of issue."""
    # Private, and not in every version or build: without it there is nothing to add.
    import torch.distributed as dist  # torch is optional

    if not (dist.is_available() and dist.is_initialized()):
        return ()
    from torch._C import _distributed_c10d  # torch is optional

    dump = getattr(_distributed_c10d, "_dump_fr_trace_json", None)
    if dump is None:
        return ()
    entries = msgspec.json.decode(dump(), type=FlightDump).entries
    ours = (entry for entry in entries if entry.profiling_name.startswith("gloo:"))
    return tuple(sorted(ours, key=lambda entry: entry.time_created_ns))


def calls_in(lines: Iterable[bytes]) -> Iterator[GlooCall]:
    """The `c10d::` operators of a Kineto file, as PyTorch lays it out: events over lines."""
    zero_ns = 0
    header = b""
    in_header = True
    for number, line in enumerate(lines):
        word = line.strip()
        if word == b"{":
            header, in_header = b"", True
        if not in_header:
            continue
        if not zero_ns and (found := _ZERO.search(line)):
            zero_ns = int(found[1])
        header += line
        if word == b'"args": {':
            in_header = False
            call, span = _CALL.search(header), _SPAN.search(header)
            if call and span:
                start_ns = zero_ns + int(span[1]) * NS_PER_US + int(span[2])
                duration_ns = int(span[3]) * NS_PER_US + int(span[4] or 0)
                yield GlooCall(number, call[1].decode(), start_ns, start_ns + duration_ns)


def named_calls(
    calls: Iterable[GlooCall], entries: Sequence[FlightEntry]
) -> dict[int, tuple[str, FlightEntry]]:
    """Line of each call that has an entry -> NCCL's name of it, and the entry.

    A call takes the first free entry of its kind inside its span, in order of time; a call
    without one (older than the flight recorder's memory) has no name.
    """
    found: dict[int, tuple[str, FlightEntry]] = {}
    position = 0
    for call in sorted(calls, key=lambda call: (call.start_ns, call.line)):
        if call.operator not in NAMES:
            continue
        flight_name, name = NAMES[call.operator]
        earliest_ns, latest_ns = call.start_ns - SLACK_NS, call.end_ns + SLACK_NS
        while position < len(entries) and entries[position].time_created_ns < earliest_ns:
            position += 1
        if position == len(entries):
            break
        entry = entries[position]
        if entry.time_created_ns <= latest_ns and entry.profiling_name == flight_name:
            found[call.line] = (name, entry)
            position += 1
    return found


def metadata_line(name: str, entry: FlightEntry, groups: dict[str, ProcessGroup]) -> bytes:
    """NCCL's keys and this collective's values, to stand first among an event's arguments."""
    group = groups.get(entry.process_group[0])
    values = entry.told(name)
    if group is not None:
        values["Group size"] = len(group.ranks)
        values["Process Group Ranks"] = str(list(group.ranks))
    return b"      " + json.dumps(values)[1:-1].encode() + b",\n"
