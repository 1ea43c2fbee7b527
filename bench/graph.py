"""From files to a graph that is ready to simulate: time, memory and growth, beside the peer's.

    python bench/graph.py                                 print, beside the stored baseline
    python bench/graph.py --store                         make this run the baseline
    python bench/graph.py --peer-python PEER/bin/python   measure `traceinsight` too

Public traces: reading without a cache, building the graph, both; the peer only reads. Generated
jobs of more and more ranks: building must cost the same per node. Replicas of one generated rank,
up to 512: reading must cost the same per file and keep its memory. One job of up to eight times as
many ranks, loaded and broken down: CPU seconds must grow as its ranks do.
Times are medians, in process, after imports and compilation; memory is counted beyond the imports;
every case has a process of its own. `FORETRACE_DATA` names the folder of public traces.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from ingest import (
    MEGABYTE,
    ROOT,
    Row,
    as_ranks,
    forget_peak,
    generated_text,
    median_s,
    memory_bytes,
    peer_row,
    print_row,
    result_of,
)

BASELINE = Path(__file__).parent / "baselines" / "graph.json"
DATA_PARALLEL = (2, 4, 8)  # replicas of 4 x 4 ranks in the generated jobs
MANY_REPEATS = 3  # of what takes seconds


def main() -> None:
    """Measure, print, and store or compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--ranks", type=int, default=512, help="replicas at most")
    parser.add_argument("--peer-python", type=Path, help="a Python that has `traceinsight`")
    parser.add_argument("--peer-repeat", type=int, default=5)
    parser.add_argument("--store", action="store_true", help="make this run the baseline")
    # Set where this script runs itself, to measure one case in a process of its own.
    parser.add_argument("--only", choices=PARTS, help=argparse.SUPPRESS)
    parser.add_argument("paths", nargs="*", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.only:
        print("RESULT", json.dumps(PARTS[arguments.only](arguments.paths, arguments.repeat)))
        return

    baseline = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    rows: dict[str, Row] = {}
    with tempfile.TemporaryDirectory(prefix="foretrace-bench-") as name:
        folder = Path(name)
        sample = folder / "sample.json.gz"
        sample.write_bytes(gzip.compress(generated_text(100), 1))
        for case, paths in public_cases(folder).items():
            rows[case] = in_own_process("pipeline", [sample, *paths], arguments.repeat)
            if arguments.peer_python:
                peer = peer_row(arguments.peer_python, paths, arguments.peer_repeat)
                rows[case] |= beside_peer(peer, rows[case])
            print_row(case, rows[case], baseline.get(case, {}))
        for case, paths in generated_jobs(folder).items():
            rows[case] = in_own_process("graph", [sample, *paths], arguments.repeat)
            print_row(case, rows[case], baseline.get(case, {}))
        paths = replicas(folder / "replicas", arguments.ranks)
        for count in (arguments.ranks // 8, arguments.ranks):
            case = f"{count} replicas"
            rows[case] = in_own_process("cached", [sample, *paths[:count]], MANY_REPEATS)
            print_row(case, rows[case], baseline.get(case, {}))
        for count in (arguments.ranks, 2 * arguments.ranks, 8 * arguments.ranks):
            case = f"{count} ranks of one job"
            paths = widened(folder / case, count)
            rows[case] = in_own_process("broken_down", [sample, paths[0].parent], 1)
            print_row(case, rows[case], baseline.get(case, {}))
    if arguments.store:
        BASELINE.parent.mkdir(exist_ok=True)
        BASELINE.write_text(json.dumps(rows, indent=2) + "\n")


def public_cases(folder: Path) -> dict[str, list[Path]]:
    """Public traces: one large file, one as 8 ranks, 8 ranks of one job."""
    data = ROOT / os.environ.get("FORETRACE_DATA", "../shared/data") / "traces"
    if not data.is_dir():
        print(f"no public traces at {data}: set FORETRACE_DATA to measure them")
        return {}
    return {
        "v100-ddp2-rank1": [data / "v100-ddp2-rank1/df_index_resolver.json.gz"],
        "a100-dlrm as 8 ranks": as_ranks(
            data / "a100-dlrm-rank3-of-8/control.json.gz", folder / "dlrm", 8
        ),
        "megatron-tp8": sorted((data / "megatron-tp8").glob("kineto_rank*.json.gz")),
    }


def generated_jobs(folder: Path) -> dict[str, list[Path]]:
    """Files of the same training job on more and more ranks."""
    sys.path.insert(0, str(ROOT))
    from tests.truth import FileStyle, JobConfig, make_job, write  # beside src, not installed

    found: dict[str, list[Path]] = {}
    for dp in DATA_PARALLEL:
        style = FileStyle(sync_events=False)
        config = JobConfig(tp=4, dp=dp, pp=4, num_layers=1, num_microbatches=4, style=style)
        job_folder = folder / f"dp{dp}"
        job_folder.mkdir()
        paths = write(make_job(config), job_folder)
        found[f"{len(paths)} ranks of a generated job"] = list(paths)
    return found


def replicas(folder: Path, count: int) -> list[Path]:
    """Files that differ in rank and clock only, 2 MB of JSON each."""
    from tests.truth import JobConfig, make_job, write_replicas  # as above

    job = make_job(JobConfig(tp=2, dp=2, pp=2, num_microbatches=4))
    return list(write_replicas(job, folder, num_ranks=count, min_bytes=2_000_000))


def widened(folder: Path, count: int) -> list[Path]:
    """Files of one job whose groups hold all its ranks, 100 kB of JSON each and their headers."""
    from tests.truth import JobConfig, make_job, write_widened  # as above

    job = make_job(JobConfig(tp=2, dp=2, num_layers=1, num_steps=1))
    return list(write_widened(job, folder, num_ranks=count))


def in_own_process(part: str, paths: list[Path], repeat: int) -> Row:
    """A case measured in a fresh process of this Python; the first path is to warm up with."""
    command = [sys.executable, __file__, "--repeat", str(repeat), "--only", part]
    return result_of([*command, *map(str, paths)])


def beside_peer(peer: Row, row: Row) -> Row:
    """What the peer took to read the same files, and how much more that is."""
    return {
        "peer seconds": peer["seconds"],
        "peer seconds / ours": peer["seconds"] / row["seconds"],
        "peer peak MB": peer["peak_bytes"] / MEGABYTE,
        "peer peak / ours": peer["peak_bytes"] / MEGABYTE / row["peak MB in all"],
    }


def pipeline(names: list[str], repeat: int) -> Row:
    """Times and memory from files to a graph, and of the cache."""
    from foretrace.graph import build_recording  # after the arguments: importing takes time
    from foretrace.trace import load_traces

    build_recording(load_traces(names[:1]))  # imports and compiles
    paths = names[1:]
    before = memory_bytes("VmRSS")
    forget_peak()
    traces = load_traces(paths)
    num_nodes = build_recording(traces).graph.num_nodes
    most = memory_bytes("VmHWM")
    json_bytes = sum(trace.meta.json_bytes for trace in traces)
    del traces
    load_s, build_s = [], []
    for _ in range(repeat):
        began = time.perf_counter()
        traces = load_traces(paths)
        loaded = time.perf_counter()
        build_recording(traces)
        build_s.append(time.perf_counter() - loaded)
        load_s.append(loaded - began)
        del traces
    with tempfile.TemporaryDirectory(prefix="foretrace-bench-cache-") as name:
        cache = Path(name)
        first_s = median_s(lambda: load_traces(paths, cache_folder=cache), 1)
        again_s = median_s(lambda: load_traces(paths, cache_folder=cache), repeat)
    return {
        "seconds": statistics.median(map(sum, zip(load_s, build_s, strict=True))),
        "seconds to load": statistics.median(load_s),
        "seconds to build": statistics.median(build_s),
        "nodes": num_nodes,
        "peak beyond imports / JSON": (most - before) / json_bytes,
        "peak MB in all": most / MEGABYTE,
        "first load / load from cache": first_s / again_s,
    }


def graph(names: list[str], repeat: int) -> Row:
    """Time of building alone, and what it leaves and needs at most."""
    from foretrace.graph import build_recording  # as above
    from foretrace.trace import load_traces

    build_recording(load_traces(names[:1]))
    traces = load_traces(names[1:])
    before = memory_bytes("VmRSS")
    forget_peak()
    num_nodes = build_recording(traces).graph.num_nodes
    peak = memory_bytes("VmHWM") - before
    seconds = median_s(lambda: build_recording(traces), repeat)
    return {
        "seconds to build": seconds,
        "nodes": num_nodes,
        "us per node": seconds / num_nodes * 1e6,
        "peak bytes per node": peak / num_nodes,
    }


def cached(names: list[str], repeat: int) -> Row:
    """Reading many ranks into the cache, and again from it."""
    from foretrace.trace import load_traces  # as above

    load_traces(names[:1])
    paths = names[1:]
    with tempfile.TemporaryDirectory(prefix="foretrace-bench-cache-") as name:
        cache = Path(name)
        before = memory_bytes("VmRSS")
        forget_peak()
        began = time.perf_counter()
        traces = load_traces(paths, cache_folder=cache)
        first_s = time.perf_counter() - began
        peak = memory_bytes("VmHWM") - before
        json_bytes = sum(trace.meta.json_bytes for trace in traces)
        again_s = median_s(lambda: load_traces(paths, cache_folder=cache), repeat)
    return {
        "seconds into the cache": first_s,
        "ms per file": 1e3 * first_s / len(paths),
        "MB of JSON per s": json_bytes / MEGABYTE / first_s,
        "peak MB beyond imports": peak / MEGABYTE,
        "peak beyond imports / JSON": peak / json_bytes,
        "first load / load from cache": first_s / again_s,
    }


def broken_down(names: list[str], repeat: int) -> Row:
    """A folder of ranks loaded without a cache and broken down once."""
    import foretrace as ft  # as above

    ft.breakdown(ft.load(names[0], cache=False))  # imports and compiles
    before = memory_bytes("VmRSS")
    forget_peak()
    began, began_cpu = time.perf_counter(), time.process_time()
    for _ in range(repeat):
        ft.breakdown(ft.load(names[1], cache=False))
    return {
        "seconds": (time.perf_counter() - began) / repeat,
        "CPU seconds": (time.process_time() - began_cpu) / repeat,
        "peak MB beyond imports": (memory_bytes("VmHWM") - before) / MEGABYTE,
    }


PARTS = {"broken_down": broken_down, "pipeline": pipeline, "graph": graph, "cached": cached}

if __name__ == "__main__":
    main()
