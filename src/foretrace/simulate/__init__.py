"""Floor 3: a graph and durations become a timeline."""

from __future__ import annotations

from foretrace.simulate.static import simulate as simulate
