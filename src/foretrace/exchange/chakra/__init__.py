"""Graphs become Chakra execution traces."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.exchange.chakra.write import Written as Written
    from foretrace.exchange.chakra.write import write_chakra as write_chakra

lazily(__name__)
