"""A recorded program under another plan, or with other layers, becomes a new job's pieces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.whatif.rearrange.check import check as check
    from foretrace.whatif.rearrange.rearranged import rearranged as rearranged

lazily(__name__)
