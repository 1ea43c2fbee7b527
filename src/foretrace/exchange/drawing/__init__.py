"""Parts of graphs as drawings."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.exchange.drawing.drawing import Drawing as Drawing
    from foretrace.exchange.drawing.drawing import write_drawing as write_drawing
    from foretrace.exchange.drawing.subgraph import MOST_NODES as MOST_NODES
    from foretrace.exchange.drawing.subgraph import Choice as Choice

lazily(__name__)
