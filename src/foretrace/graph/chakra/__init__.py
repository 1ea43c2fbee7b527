"""Chakra files become graphs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.graph.chakra.build import chakra_recording as chakra_recording

lazily(__name__)
