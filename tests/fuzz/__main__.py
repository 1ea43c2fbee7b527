"""Many hostile inputs with a fresh seed: what ended otherwise than in an answer or a sentence.

    python -m tests.fuzz                        2,000 inputs of every kind
    python -m tests.fuzz --kind recordings --count 10000 --seed 7
    python -m tests.fuzz --seed 7 --first 2000 --count 4000     go on with a seed
    python -m tests.fuzz --keep found.jsonl     also write what was found, as `corpus/` keeps it

A process of its own does the work, so that a crash or a hang ends one case and not the run.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.draw import cases
from tests.fuzz.inputs import kinds
from tests.fuzz.trial import good_recording, tried

_SAID_EVERY = 250  # inputs
PATIENCE_S = 240  # of the other process, whatever else runs on the machine
_STARTING_S = 1800  # until its first input: it may have to compile


def main() -> int:
    """Run, print what was found by place, and end with 1 if it is anything."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", choices=(*kinds(), "all"), default="all")
    parser.add_argument("--count", type=int, default=2_000, help="inputs of each kind, or the end")
    parser.add_argument("--seed", type=int, default=None, help="default: from the clock")
    parser.add_argument("--keep", type=Path, help="write one case of every place to this file")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help="input to go on from (default 0)")
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.seed, range(arguments.first, arguments.count))
        return 0
    if arguments.keep:
        arguments.keep.parent.mkdir(parents=True, exist_ok=True)
    seed = arguments.seed if arguments.seed is not None else time.time_ns() % 1_000_000
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for kind in kinds() if arguments.kind == "all" else (arguments.kind,):
        times: Counter[tuple[str, str]] = Counter()
        num_lines, began = 0, time.monotonic()
        for entry in results(kind, seed, range(arguments.first, arguments.count)):
            num_lines += entry.get("lines", 0)
            if "lines" in entry and not (entry["index"] + 1) % _SAID_EVERY:
                print(f"  {kind}: {entry['index'] + 1} inputs", flush=True)
            if "fault" in entry:
                key = (entry["fault"]["kind"], entry["fault"]["where"])
                times[key] += 1
                if key not in found:
                    found[key] = entry
                    print(f"  {key[0]} {key[1]}: {entry['fault']['text']}", flush=True)
                    if arguments.keep:
                        with arguments.keep.open("a") as file:
                            file.write(json.dumps(entry) + "\n")
        seconds = time.monotonic() - began
        print(
            f"{kind}, seed {seed}: inputs {arguments.first} to {arguments.count - 1}, "
            f"{num_lines} command lines in "
            f"{seconds:.0f} s: {sum(times.values())} faults in {len(times)} places",
            flush=True,
        )
        for key, number in times.most_common():
            print(f"    {number:5} {key[0]:10} {key[1]}", flush=True)
    return bool(found)


def results(kind: str, seed: int, places: range) -> Iterator[dict[str, Any]]:
    """What another process says of each input; a new one goes on where one ended."""
    first, count = places.start, places.stop
    while first < count:
        command = [sys.executable, "-m", "tests.fuzz", "--work", kind, "--seed", str(seed)]
        command += ["--count", str(count), "--first", str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as worker:
            assert worker.stdout is not None
            running: dict[str, Any] = {}
            while True:
                patience_s = PATIENCE_S if running else _STARTING_S
                ready, _, _ = select.select([worker.stdout], [], [], patience_s)
                raw = worker.stdout.readline() if ready else b""
                if not raw:
                    worker.kill()
                    break
                entry = json.loads(raw)
                if "begins" in entry:
                    running = entry
                    continue
                first = entry["index"] + 1 if "lines" in entry else first
                yield entry
            if first < count:
                what = "crash" if ready else "time"
                fault = {"kind": what, "where": " ".join(running.get("begins", [])[:1]), "text": ""}
                first = running.get("index", first) + 1
                yield running | {"fault": fault}


def work(kind: str, seed: int, places: range) -> None:
    """Run inputs one after the other and say of each what it left, a JSON object a line."""
    told = os.fdopen(os.dup(1), "w")
    with good_recording() as good, tempfile.TemporaryDirectory(prefix="foretrace-fuzz-") as name:
        for index in places:
            chosen = cases(kind, random.Random(f"{seed} {kind} {index}"))
            for case in chosen:
                say(told, {"begins": case.words, "index": index, "case": case.as_json()})
                fault = tried(case, good=good, folder=Path(name))
                if fault is not None:
                    say(told, {"index": index, "case": case.as_json(), "fault": vars(fault)})
            say(told, {"index": index, "lines": len(chosen)})


def say(told: Any, entry: dict[str, Any]) -> None:
    """One line for the other process."""
    told.write(json.dumps(entry) + "\n")
    told.flush()


if __name__ == "__main__":
    sys.exit(main())
