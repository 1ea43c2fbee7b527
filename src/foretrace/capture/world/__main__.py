"""`python -m foretrace.capture.world FOLDER DEVICE WARMUP STEPS GPU BYTES SCRIPT ...`: one rank.

A process of its own; GPU and BYTES are the name and memory that scripts are told of. `RANK` and
`WORLD_SIZE` are in the environment, as torchrun states them. An error of the script ends the
process as it would without us: with the script's own traceback.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from pathlib import Path

from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
)

from foretrace.capture.world.journal import StepsAreDone
from foretrace.capture.world.process import WorldProcess
from foretrace.capture.world.role import role_path, write_role

_OF_VALUES = (DataDependentOutputException, DynamicOutputShapeException)


def _run(script: str, arguments: list[str]) -> None:
    sys.argv = [script, *arguments]
    sys.path.insert(0, str(Path(script).resolve().parent))
    runpy.run_path(script, run_name="__main__")


def _own_frames(error: BaseException) -> str:
    """The traceback, from the script on."""
    trace = error.__traceback__
    while trace is not None and Path(trace.tb_frame.f_code.co_filename) != Path(sys.argv[0]):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))


def _next_step(error: BaseException) -> str:
    """What to do about an error that a device without memory alone has."""
    if not isinstance(error, _OF_VALUES):
        return ""
    return (
        "What this operator returns depends on values, and on the device 'fake' tensors have "
        "none: run the script with --device cpu or cuda, or give it sizes that do not depend on "
        "them.\n"
    )


def main() -> int:
    """Run it; the exit code."""
    folder, device, warmup, steps, gpu, num_bytes, script, *arguments = sys.argv[1:]
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    process = WorldProcess(
        rank,
        world_size,
        device=device,
        warmup=int(warmup),
        steps=int(steps),
        folder=Path(folder),
        gpu=(gpu, int(num_bytes)),
        num_gpus=int(os.environ["LOCAL_WORLD_SIZE"]),
    )
    with process.turn.held():
        try:
            with process.standing_for():
                _run(script, arguments)
        except StepsAreDone:
            pass
        except SystemExit as end:
            if end.code not in {None, 0}:
                raise
        except BaseException as error:  # noqa: BLE001 - whatever a script raises is told as it is
            sys.stderr.write(_own_frames(error) + _next_step(error))
            return 1
        write_role(process.role(), role_path(Path(folder), rank))
        process.leave()
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # threads of the script's loaders are not waited for
