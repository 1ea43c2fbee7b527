"""Floor 5: graphs and timelines become files of other tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.exchange.analysis_tracks import cause_slices as cause_slices
    from foretrace.exchange.analysis_tracks import path_slices as path_slices
    from foretrace.exchange.anonymised import Anonymised as Anonymised
    from foretrace.exchange.anonymised import Hint as Hint
    from foretrace.exchange.anonymised import anonymise as anonymise
    from foretrace.exchange.chakra import Written as Written
    from foretrace.exchange.chakra import write_chakra as write_chakra
    from foretrace.exchange.counters import memory_counters as memory_counters
    from foretrace.exchange.drawing import MOST_NODES as MOST_NODES
    from foretrace.exchange.drawing import Choice as Choice
    from foretrace.exchange.drawing import Drawing as Drawing
    from foretrace.exchange.drawing import write_drawing as write_drawing
    from foretrace.exchange.kineto import write_kineto as write_kineto
    from foretrace.exchange.parquet import write_tables as write_tables
    from foretrace.exchange.perfetto import PROTOBUF_SUFFIXES as PROTOBUF_SUFFIXES
    from foretrace.exchange.perfetto import write_trace as write_trace
    from foretrace.exchange.perfetto import write_tracks as write_tracks
    from foretrace.exchange.rows import DEFAULT_FLOWS as DEFAULT_FLOWS
    from foretrace.exchange.rows import Flow as Flow
    from foretrace.exchange.synthesis import DEFAULT_ORDER as DEFAULT_ORDER
    from foretrace.exchange.synthesis import Closeness as Closeness
    from foretrace.exchange.synthesis import Distance as Distance
    from foretrace.exchange.synthesis import Synthesised as Synthesised
    from foretrace.exchange.synthesis import synthesise as synthesise
    from foretrace.exchange.tracks import Counter as Counter
    from foretrace.exchange.tracks import Slices as Slices
    from foretrace.exchange.tracks import Track as Track

lazily(__name__)
