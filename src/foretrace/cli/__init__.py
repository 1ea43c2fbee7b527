"""Floor 10: a command line becomes one call and an exit code; nothing else prints or exits."""

from __future__ import annotations

from foretrace.cli.app import app as app
from foretrace.cli.app import main as main
