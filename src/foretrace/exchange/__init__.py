"""Floor 4: graphs and timelines become files of other tools."""

from __future__ import annotations

from foretrace.exchange.added import cause_slices as cause_slices
from foretrace.exchange.added import path_slices as path_slices
from foretrace.exchange.chakra import Written as Written
from foretrace.exchange.chakra import write_chakra as write_chakra
from foretrace.exchange.counters import memory_counters as memory_counters
from foretrace.exchange.flows import DEFAULT_FLOWS as DEFAULT_FLOWS
from foretrace.exchange.flows import Flow as Flow
from foretrace.exchange.kineto import write_kineto as write_kineto
from foretrace.exchange.perfetto import PROTOBUF_SUFFIXES as PROTOBUF_SUFFIXES
from foretrace.exchange.perfetto import write_trace as write_trace
from foretrace.exchange.tables import write_tables as write_tables
from foretrace.exchange.tracks import Counter as Counter
from foretrace.exchange.tracks import Slices as Slices
from foretrace.exchange.tracks import Track as Track
