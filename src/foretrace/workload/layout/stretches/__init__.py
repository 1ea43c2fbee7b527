"""Stretches of parts, run by themselves: many in one call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.workload.layout.stretches._compiled import run_stretches as run_stretches

lazily(__name__)
