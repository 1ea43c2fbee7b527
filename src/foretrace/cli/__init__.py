"""Floor 12: a command line becomes one call and an exit code; nothing else prints or exits."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.cli.app import main as main

lazily(__name__)
