"""Chakra files become graphs."""

from __future__ import annotations

from foretrace.graph.chakra.build import chakra_recording as chakra_recording
