"""The program `foretrace`: what is pressed while its modules are still imported ends it quietly."""

from __future__ import annotations

import os
import sys

_INTERRUPTED = 130  # 128 and the number of the signal, as shells have it


def main() -> None:
    """Run the process's command line."""
    try:
        from foretrace.cli.app import main as run  # here: an interrupt while it is imported counts

        run()
    except KeyboardInterrupt:
        sys.stderr.flush()
        os._exit(_INTERRUPTED)  # threads and modules half imported have nothing to put away
