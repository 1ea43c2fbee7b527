"""The program `foretrace`: what is pressed while its modules are still imported ends it quietly."""

from __future__ import annotations

import gc
import os
import signal
import sys
from types import FrameType

_COLLECT_EVERY = 1_000_000  # new objects: a command makes few circles, and 200,000 with its modules
_SIGNALLED = 128  # and the number of the signal, as shells have it
_INTERRUPTED = _SIGNALLED + signal.SIGINT


def _ended(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(_SIGNALLED + number)


def main() -> None:
    """Run the process's command line."""
    signal.signal(signal.SIGTERM, _ended)  # so that children stop and folders go, as at Ctrl-C
    gc.set_threshold(_COLLECT_EVERY, *gc.get_threshold()[1:])
    try:
        from foretrace.cli.app import main as run  # here: an interrupt while it is imported counts

        run()
    except KeyboardInterrupt:
        sys.stderr.flush()
        os._exit(_INTERRUPTED)  # threads and modules half imported have nothing to put away
    finally:
        gc.freeze()  # the process ends here: what it still holds need not be searched for circles
