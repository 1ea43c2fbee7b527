"""The program `foretrace`: what is pressed while its modules are still imported ends it quietly."""

from __future__ import annotations

import gc
import os
import sys

_COLLECT_EVERY = 100_000  # new objects; a command makes few circles and many modules
_INTERRUPTED = 130  # 128 and the number of the signal, as shells have it


def main() -> None:
    """Run the process's command line."""
    gc.set_threshold(_COLLECT_EVERY, *gc.get_threshold()[1:])
    try:
        from foretrace.cli.app import main as run  # here: an interrupt while it is imported counts

        run()
    except KeyboardInterrupt:
        sys.stderr.flush()
        os._exit(_INTERRUPTED)  # threads and modules half imported have nothing to put away
    finally:
        gc.freeze()  # the process ends here: what it still holds need not be searched for circles
