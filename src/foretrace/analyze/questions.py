"""The questions about a run: each is a verb of `foretrace`, a command and a section of the page.

This list is the folder's second door: `foretrace`, `api` and `cli` take the questions from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.analyze.attention import attention as attention
    from foretrace.analyze.batches import batches as batches
    from foretrace.analyze.breakdown import breakdown as breakdown
    from foretrace.analyze.critical_path import critical_path as critical_path
    from foretrace.analyze.effects import effect as effect
    from foretrace.analyze.effects import effects as effects
    from foretrace.analyze.hangs import hang as hang
    from foretrace.analyze.idle import idle as idle
    from foretrace.analyze.operators import operators as operators
    from foretrace.analyze.sensitivity import sensitivity as sensitivity
    from foretrace.analyze.stalls import stalls as stalls
    from foretrace.analyze.stragglers import stragglers as stragglers

lazily(__name__)
