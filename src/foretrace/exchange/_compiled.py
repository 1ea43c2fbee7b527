"""Compiled loops of the exchange floor; they check no lengths.

See `rows` and `protobuf` for the safe ways in.
"""

from __future__ import annotations

import numpy as np

from foretrace.base import Int64s, UInt8s, njit

# Most bytes of one event without arguments and flows: see `events_into`.
MOST_EVENT_BYTES = 64
MOST_ARGUMENT_BYTES = 32
FLOW_BYTES = 10


@njit
def sublanes(lane: Int64s, start_ns: Int64s, end_ns: Int64s, sublane: Int64s) -> None:
    """Give each span the first sublane of its lane that is free, in `sublane` (*out*).

    Spans come by lane, then by start. A sublane is free once its last span has ended.
    """
    free_ns = np.zeros(1, np.int64)
    num_used = 0
    for row in range(len(lane)):
        if row == 0 or lane[row] != lane[row - 1]:
            num_used = 0
        found = num_used
        for candidate in range(num_used):
            if free_ns[candidate] <= start_ns[row]:
                found = candidate
                break
        if found == num_used:
            if num_used == len(free_ns):
                wider = np.zeros(2 * num_used, np.int64)
                wider[:num_used] = free_ns
                free_ns = wider
            num_used += 1
        free_ns[found] = end_ns[row]
        sublane[row] = found


@njit(_nrt=False, forceinline=True)
def varint_into(buffer: UInt8s, at: int, value: int) -> int:
    """Write a number as protobuf does, in 7 bits a byte; returns where the next byte goes."""
    rest = np.uint64(value)
    while rest >= np.uint64(0x80):
        buffer[at] = np.uint8(rest & np.uint64(0x7F)) | np.uint8(0x80)
        rest >>= np.uint64(7)
        at += 1
    buffer[at] = np.uint8(rest)
    return at + 1


@njit
def fixed_into(buffer: UInt8s, at: int, value: int) -> int:
    """Write a number in eight bytes, lowest first; returns where the next byte goes."""
    rest = np.uint64(value)
    for _ in range(8):
        buffer[at] = np.uint8(rest & np.uint64(0xFF))
        rest >>= np.uint64(8)
        at += 1
    return at


@njit
def length_into(buffer: UInt8s, at: int, length: int) -> int:
    """Write a length into three bytes that were kept free, so that nothing has to move."""
    buffer[at] = np.uint8(length & 0x7F) | np.uint8(0x80)
    buffer[at + 1] = np.uint8((length >> 7) & 0x7F) | np.uint8(0x80)
    buffer[at + 2] = np.uint8((length >> 14) & 0x7F)
    return at + 3


@njit
def events_into(
    buffer: UInt8s,
    events: Int64s,
    argument: Int64s,
    argument_of_event: Int64s,
    flow: Int64s,
    flow_of_event: Int64s,
) -> int:
    """Write one TracePacket per row of `events`; returns the number of bytes written.

    Args:
        buffer: *out*, uint8[enough]: MOST_EVENT_BYTES per event, MOST_ARGUMENT_BYTES per argument
            and FLOW_BYTES per flow are.
        events: int64[events, 5]: timestamp, type (1 begin, 2 end, 4 counter), track's uuid,
            name's interning id (0: none), and the bits of a counter's value as a double.
        argument: int64[arguments, 3]: key's interning id, whether the value is text, and the
            value or the text's interning id.
        argument_of_event: int64[events, 2], from and up to which argument each event has them.
        flow: int64[flows, 2]: flow's id and whether it ends here.
        flow_of_event: int64[events, 2], the same of flows.
    """
    at = 0
    for row in range(len(events)):
        buffer[at] = 0x0A  # Trace.packet
        packet_at = at + 1
        at += 4
        buffer[at] = 0x40  # TracePacket.timestamp
        at = varint_into(buffer, at + 1, events[row, 0])
        buffer[at] = 0x50  # .trusted_packet_sequence_id
        buffer[at + 1] = 1
        buffer[at + 2] = 0x68  # .sequence_flags
        buffer[at + 3] = 2  # SEQ_NEEDS_INCREMENTAL_STATE
        buffer[at + 4] = 0x5A  # .track_event
        event_at = at + 5
        at += 8
        kind = events[row, 1]
        buffer[at] = 0x48  # TrackEvent.type
        buffer[at + 1] = np.uint8(kind)
        buffer[at + 2] = 0x58  # .track_uuid
        at = varint_into(buffer, at + 3, events[row, 2])
        if events[row, 3] != 0:
            buffer[at] = 0x50  # .name_iid
            at = varint_into(buffer, at + 1, events[row, 3])
        if kind == 4:
            buffer[at] = 0xE1  # .double_counter_value
            buffer[at + 1] = 0x02
            at = fixed_into(buffer, at + 2, events[row, 4])
        for position in range(argument_of_event[row, 0], argument_of_event[row, 1]):
            buffer[at] = 0x22  # .debug_annotations
            length_at = at + 1
            at += 4
            buffer[at] = 0x08  # DebugAnnotation.name_iid
            at = varint_into(buffer, at + 1, argument[position, 0])
            if argument[position, 1] != 0:
                buffer[at] = 0x88  # .string_value_iid
                buffer[at + 1] = 0x01
                at = varint_into(buffer, at + 2, argument[position, 2])
            else:
                buffer[at] = 0x20  # .int_value
                at = varint_into(buffer, at + 1, argument[position, 2])
            length_into(buffer, length_at, at - length_at - 3)
        for position in range(flow_of_event[row, 0], flow_of_event[row, 1]):
            # .terminating_flow_ids or .flow_ids, both fixed64
            buffer[at] = 0x81 if flow[position, 1] != 0 else 0xF9
            buffer[at + 1] = 0x03 if flow[position, 1] != 0 else 0x02
            at = fixed_into(buffer, at + 2, flow[position, 0])
        length_into(buffer, event_at, at - event_at - 3)
        length_into(buffer, packet_at, at - packet_at - 3)
    return at
