"""Traces of jobs that never ran, made like others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.exchange.synthesis.observed import Closeness as Closeness
    from foretrace.exchange.synthesis.observed import Distance as Distance
    from foretrace.exchange.synthesis.synthesise import DEFAULT_ORDER as DEFAULT_ORDER
    from foretrace.exchange.synthesis.synthesise import Synthesised as Synthesised
    from foretrace.exchange.synthesis.synthesise import synthesise as synthesise

lazily(__name__)
