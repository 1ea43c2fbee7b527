"""Graphs become Chakra execution traces."""

from __future__ import annotations

from foretrace.exchange.chakra.write import Written as Written
from foretrace.exchange.chakra.write import write_chakra as write_chakra
