"""A command that is ended puts away what it made."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest


@pytest.mark.skipif(sys.platform == "win32", reason="Windows ends processes without asking")
def test_a_command_that_is_ended_removes_its_folders(tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    code = "from foretrace.cli.entry import main; main()"
    command = [sys.executable, "-c", code, "breakdown", "-"]  # waits for its standard input
    environment = {**os.environ, "TMPDIR": str(scratch)}

    with subprocess.Popen(command, stdin=subprocess.PIPE, env=environment) as process:
        until = time.monotonic() + 60
        while not list(scratch.iterdir()) and time.monotonic() < until:
            time.sleep(0.05)
        made = list(scratch.iterdir())
        process.send_signal(signal.SIGTERM)
        code_of_end = process.wait(60)

    assert made
    assert code_of_end == 128 + signal.SIGTERM
    assert list(scratch.iterdir()) == []
