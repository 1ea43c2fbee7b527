"""Floor 4: graphs and timelines become files of other tools."""

from __future__ import annotations

from foretrace.exchange.perfetto import write_trace as write_trace
