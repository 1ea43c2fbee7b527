"""`python -m foretrace.capture.training TASK RANK`: one process of a training run.

When all is done it waits for the others. It ends when its standard input does: whoever started
it has everything then, or is gone.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import msgspec

from foretrace.capture.training.settings import Task
from foretrace.capture.training.train import train

_STANDARD_INPUT = 0


def _follow_starter() -> None:
    # Not `sys.stdin`, whose lock an interpreter that ends finds taken.
    os.read(_STANDARD_INPUT, 1)
    os._exit(1)


if __name__ == "__main__":
    starter = threading.Thread(target=_follow_starter, daemon=True)
    starter.start()
    train(msgspec.json.decode(Path(sys.argv[1]).read_bytes(), type=Task), int(sys.argv[2]))
    starter.join()
