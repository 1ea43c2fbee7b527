"""Speed and memory of reading traces, beside the peer's.

    python bench/ingest.py                                 print, beside the stored baseline
    python bench/ingest.py --store                         make this run the baseline
    python bench/ingest.py --peer-python PEER/bin/python   measure `traceinsight` too

Cases: one file of 54 MB of JSON; one of 35 MB as 8 ranks; and generated ranks, 64 to 512 of them,
whose cost must grow in proportion and whose memory must not. Times are medians, in process, after
imports and compilation; every case has a process of its own, so that its peak memory is its own.
`whole process` is what a user waits for: `foretrace replay --no-cache`, its start included, beside
a process of the peer's that parses once; processor seconds, which other work changes least.
`FORETRACE_DATA` names the folder of public traces; cases that need it are left out without it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
BASELINE = Path(__file__).parent / "baselines" / "ingest.json"
MEGABYTE = 1e6
MANY = 64  # files; beyond, fewer repetitions and no graph
Row = dict[str, float]

PEER_SCRIPT = """
import json, re, sys, time
from hta.trace_analysis import TraceAnalysis
files = {rank: path for rank, path in enumerate(sys.argv[2:])}
times = []
for _ in range(int(sys.argv[1])):
    began = time.perf_counter()
    TraceAnalysis(trace_files=files)
    times.append(time.perf_counter() - began)
status = open("/proc/self/status").read()
peak = int(re.search(r"VmHWM:\\s+(\\d+)", status).group(1)) * 1024
print("RESULT", json.dumps({"seconds": sorted(times)[len(times) // 2], "peak_bytes": peak}))
"""


REPLAY = (
    sys.executable,
    "-c",
    "from foretrace.cli.entry import main; main()",
    "replay",
    "--no-cache",
)


def main() -> None:
    """Measure, print, and store or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=512, help="generated ranks at most")
    parser.add_argument("--peer-python", type=Path, help="a Python that has `traceinsight`")
    parser.add_argument("--peer-repeat", type=int, default=3)
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    # Set where this script runs itself, to measure one case in a process of its own.
    parser.add_argument("--only", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        row = PARTS[arguments.only](arguments.paths, arguments.repeat)
        print("RESULT", json.dumps(row))
        return

    rows = {}
    with tempfile.TemporaryDirectory(prefix="foretrace-bench-") as name:
        for case, paths in cases(Path(name), arguments.ranks).items():
            rows[case] = {}
            for part in PARTS:
                rows[case] |= in_own_process(part, paths, arguments.repeat)
            if "generated" not in case:
                rows[case] |= whole_process("whole process", [*REPLAY, *paths], arguments.repeat)
            if arguments.peer_python and "generated" not in case:
                alone = [arguments.peer_python, "-c", PEER_SCRIPT, "1", *paths]
                rows[case] |= whole_process("peer process", alone, arguments.peer_repeat)
                peer = peer_row(arguments.peer_python, paths, arguments.peer_repeat)
                rows[case] |= {
                    "peer seconds": peer["seconds"],
                    "peer seconds / ours": peer["seconds"] / rows[case]["seconds"],
                    "peer seconds / ours with graph": peer["seconds"]
                    / rows[case]["seconds with graph"],
                    "peer peak MB": peer["peak_bytes"] / MEGABYTE,
                }
            print_row(case, rows[case], stored().get(case, {}))
    print_growth(rows)
    if arguments.store:
        BASELINE.parent.mkdir(exist_ok=True)
        BASELINE.write_text(json.dumps(rows, indent=2) + "\n")


def cases(folder: Path, max_ranks: int) -> dict[str, list[Path]]:
    """The files of each case."""
    data = ROOT / os.environ.get("FORETRACE_DATA", "../shared/data") / "traces"
    found: dict[str, list[Path]] = {}
    if data.is_dir():
        found["v100-ddp2-rank1"] = [data / "v100-ddp2-rank1/df_index_resolver.json.gz"]
        source = data / "a100-dlrm-rank3-of-8/control.json.gz"
        found["a100-dlrm as 8 ranks"] = as_ranks(source, folder / "dlrm", 8)
    else:
        print(f"no public traces at {data}: set FORETRACE_DATA to measure the other cases")
    sample = folder / "sample.json.gz"
    sample.write_bytes(gzip.compress(generated_text(), 1))
    count = max_ranks
    paths = as_ranks(sample, folder / "generated", max_ranks)
    while count >= max(max_ranks // 8, 1):
        found[f"{count} generated ranks"] = paths[:count]
        count //= 2
    return found


def generated_text(num_launches: int = 4000) -> bytes:
    """One rank of a made-up training run: operators, launches and kernels, about 3.5 MB."""
    events = []
    for number in range(num_launches):
        at = number * 40
        common = f'"pid": 100, "tid": 100, "ts": {at}.{number % 1000:03d}'
        types = '"Input type": ["c10::Half", "c10::Half"]'
        shapes = f'"Input Dims": [[{number % 64}, 4096], [4096, 4096]], {types}'
        ids = f'"External id": {number}, "Record function id": {number}, "Ev Idx": {number}'
        launch = f'"External id": {number}, "cbid": 211, "correlation": {number}'
        place = f'"device": 0, "stream": 7, "correlation": {number}'
        grid = f'"grid": [{number % 50}, 1, 1], "block": [128, 1, 1]'
        stream = f'"pid": 0, "tid": 7, "ts": {at + 12}.500, "dur": 25.750'
        spans = (
            (
                f'"cpu_op", "name": "aten::op{number % 97}", {common}, "dur": 30.125',
                f"{ids}, {shapes}",
            ),
            (f'"cuda_runtime", "name": "cudaLaunchKernel", {common}, "dur": 5.000', launch),
            (f'"kernel", "name": "kernel{number % 97}<float>(int)", {stream}', f"{place}, {grid}"),
        )
        events += [
            f'{{"ph": "X", "cat": {span}, "args": {{{arguments}}}}}' for span, arguments in spans
        ]
    info = '"distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 512}'
    return f'{{"schemaVersion": 1, {info}, "traceEvents": [{",".join(events)}]}}'.encode()


def as_ranks(source: Path, folder: Path, count: int) -> list[Path]:
    """Copies of a trace that state ranks 0 to `count` - 1."""
    folder.mkdir()
    text = gzip.decompress(source.read_bytes())
    stated = re.compile(rb'("rank": )\d+(, "world_size": )\d+')
    paths = [folder / f"rank{rank}.json.gz" for rank in range(count)]
    for rank, path in enumerate(paths):
        changed = stated.sub(rb"\g<1>%d\g<2>%d" % (rank, count), text, count=1)
        path.write_bytes(gzip.compress(changed, 1))
    return paths


def in_own_process(part: str, paths: list[Path], repeat: int) -> Row:
    """A case measured in a fresh process of this Python."""
    command = [sys.executable, __file__, "--repeat", str(repeat), "--only", part]
    return result_of([*command, *map(str, paths)])


def peer_row(python: Path, paths: list[Path], repeat: int) -> Row:
    """The same files parsed by `traceinsight`, in a fresh process."""
    return result_of([str(python), "-c", PEER_SCRIPT, str(repeat), *map(str, paths)])


def whole_process(name: str, command: Sequence[str | Path], repeat: int) -> Row:
    """Processor seconds and peak memory of a command from its start to its end, medians."""
    seconds, peaks = [], []
    for _ in range(repeat):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise subprocess.CalledProcessError(child.returncode, child.args)
        seconds.append(used.ru_utime + used.ru_stime)
        peaks.append(used.ru_maxrss * 1024 / MEGABYTE)
    return {f"{name} seconds": statistics.median(seconds), f"{name} MB": statistics.median(peaks)}


def result_of(command: list[str]) -> Row:
    """What a command that measures printed last."""
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    line = next(line for line in done.stdout.splitlines() if line.startswith("RESULT "))
    row: Row = json.loads(line.removeprefix("RESULT "))
    return row


def measured(names: list[str], repeat: int) -> Row:
    """Times and memory of these files in this process."""
    from foretrace.graph import build_recording  # after the arguments: importing takes time
    from foretrace.trace import load_traces

    load_traces(names[:1])  # imports and compiles
    build_recording(load_traces(names[:1]))
    before = memory_bytes("VmRSS")
    forget_peak()
    traces = load_traces(names)
    most = memory_bytes("VmHWM")
    peak = most - before
    json_bytes = sum(trace.meta.json_bytes for trace in traces)
    num_events = sum(trace.meta.num_events for trace in traces)
    repeat = repeat if len(names) < MANY else min(repeat, 3)
    del traces
    seconds = median_s(lambda: load_traces(names), repeat)
    row = {
        "seconds": seconds,
        "MB of JSON per s": json_bytes / MEGABYTE / seconds,
        "events per s": num_events / seconds,
        "peak / JSON": peak / json_bytes,
        "peak MB in all": most / MEGABYTE,
    }
    if len(names) < MANY:
        row["seconds with graph"] = median_s(
            lambda: build_recording(load_traces(names)), min(repeat, 3)
        )
    return row


def cached(names: list[str], repeat: int) -> Row:
    """Times with a cache: the first load, which fills it, and the next ones."""
    from foretrace.trace import load_traces  # as above

    load_traces(names[:1])  # imports and compiles
    repeat = repeat if len(names) < MANY else min(repeat, 3)
    folder = Path(tempfile.mkdtemp(prefix="foretrace-bench-cache-"))
    try:
        before = memory_bytes("VmRSS")
        forget_peak()
        first_s = median_s(lambda: load_traces(names, cache_folder=folder), 1)
        peak = memory_bytes("VmHWM") - before
        again_s = median_s(lambda: load_traces(names, cache_folder=folder), repeat)
    finally:
        shutil.rmtree(folder)
    return {
        "seconds into the cache": first_s,
        "seconds from the cache": again_s,
        "first load / load from cache": first_s / again_s,
        "peak MB into the cache": peak / MEGABYTE,
    }


def median_s(action: Callable[[], object], repeat: int) -> float:
    """Median time of an action."""
    times = []
    for _ in range(repeat):
        began = time.perf_counter()
        action()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def memory_bytes(name: str) -> int:
    """A line of Linux' account of this process: VmRSS now, VmHWM at most."""
    status = Path("/proc/self/status").read_text()
    match = re.search(rf"{name}:\s+(\d+)", status)
    return int(match.group(1)) * 1024 if match else 0


def forget_peak() -> None:
    """Let VmHWM begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def stored() -> dict[str, Row]:
    """The baseline; empty if there is none."""
    if not BASELINE.exists():
        return {}
    rows: dict[str, Row] = json.loads(BASELINE.read_text())
    return rows


def print_row(case: str, row: Row, baseline: Row) -> None:
    """One case, beside its baseline."""
    print(case)
    for name, value in row.items():
        beside = f"{value / baseline[name]:8.2f} x baseline" if baseline.get(name) else ""
        print(f"  {name:34} {value:14,.3f} {beside}")


def print_growth(rows: dict[str, Row]) -> None:
    """How cost and memory grow with the number of generated ranks."""
    counts = {int(case.split()[0]): row for case, row in rows.items() if "generated" in case}
    few, many = min(counts), max(counts)
    for name in ("seconds", "seconds into the cache", "peak MB into the cache"):
        grown = counts[many][name] / max(counts[few][name], 1e-9)
        print(f"{few} -> {many} ranks ({many / few:.0f} x): {name} {grown:.2f} x")


PARTS = {"memory": measured, "cache": cached}

if __name__ == "__main__":
    main()
