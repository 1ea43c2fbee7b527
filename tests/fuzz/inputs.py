"""Good inputs to change, and the commands that read them."""

from __future__ import annotations

import json
import pickle
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from foretrace.api import convert, load
from tests.bench.traces import ADD_, LINEAR, MM, RELU, Seen, Written
from tests.fuzz import descriptions
from tests.trace.npu_exports import export
from tests.trace.snapshots import entry, segment
from tests.truth import FileStyle, JobConfig, make_job, text


@dataclass(frozen=True)
class Input:
    """Files of which one is changed, and lines that read them.

    In a line `{in}` is the folder, `{file}` the changed file, `{out}` a folder to write to.
    """

    files: Mapping[str, Any]  # JSON trees, texts, bytes
    lines: tuple[str, ...]
    always: tuple[str, ...] = ()  # tried with every change
    num_drawn: int = 2  # of `lines`, for one change


RECORDING_LINES = (
    "replay {in}",
    "replay {in} --trace {out}/x.json.gz --report {out}/x.html",
    "replay {in} --trace {out}/x.pftrace --without rendezvous",
    "analyze {in}",
    "breakdown {in}",
    "breakdown {in} --replayed",
    "idle {in}",
    "critical-path {in}",
    "critical-path {in} --rank 0",
    "sensitivity {in}",
    "sensitivity {in} --change gemm=0.5",
    "stragglers {in}",
    "stalls {in}",
    "hang {in}",
    "operators {in} --attention",
    "operators {in} --by family --csv {out}/x.csv",
    "memory {in}",
    "compare {in}",
    "compare {in} {good}",
    "compare {good} {in} --parquet {out}/x.parquet",
    "report {in} -o {out}/x.html",
    "convert {in} --to chakra -o {out}/x",
    "convert {in} --to kineto -o {out}/x",
    "convert {in} --to perfetto -o {out}/x.pftrace",
    "convert {in} --to parquet -o {out}/x",
    "anonymise {in} -o {out}/x",
    "anonymise {file} -o {out}/x --names readable --scale-shapes 2",
    "draw {in} -o {out}/x.svg --around gemm --depth 1",
    "draw {in} -o {out}/x.dot --around gemm --depth 2",
    "synthesise {in} -o {out}/x --nodes 40 --ranks 2",
    "whatif {in} --cuda-graphs all",
    "whatif {in} --layers 3 --speed gemm=2 --report {out}/x.html",
    "whatif {in} --tp 4 --dp 2",
    "whatif {in} --machine dgx-a100 --model llama3-8b --pp 2",
    "whatif {in} --slow-rank 0=1.5 --fuse all=1.2 --trace {out}/x.json.gz",
    "whatif {in} --data-loading hidden=2 --move-sync all",
    "risk steps {in} --samples 8",
    "inspect {in} --blocks",
    "inspect {file}",
)
_ET_LINES = (
    "inspect {in} --json",
    "bench generate {file} -o {out}/x.py",
    "bench generate {file} -o {out}/x.py --mode communication",
    "bench generate {file} -o {out}/x.py --mode compute --flat",
    "bench generate {file} -o {out}/x.py --step 0",
    "anonymise {file} -o {out}/x",
    "replay {file}",
    "analyze {file}",
    "convert {file} --to chakra -o {out}/x",
)
_CHAKRA_LINES = tuple(
    line
    for line in RECORDING_LINES
    if not line.startswith(("synthesise", "whatif", "risk", "compare {good}", "anonymise {file}"))
)

_NPU_LINES = (  # what is read is like any recording; these tell what is not
    "replay {in} --report {out}/x.html",
    "idle {in}",
    "operators {in} --by family",
    "convert {in} --to kineto -o {out}/x",
    "anonymise {file} -o {out}/x",
    "inspect {file}",
)


@cache
def inputs() -> Mapping[str, Input]:
    """Every input by name."""
    return {name: make() for name, make in _MAKERS.items()} | _described()


def kinds() -> Mapping[str, tuple[str, ...]]:
    """Names of inputs, by what they are; makes none."""
    recordings = ("one rank", "two ranks", "sync events", "older", "cpu", "npu")
    graphs = ("execution trace", "chakra")
    return {
        "recordings": recordings,
        "graphs": graphs,
        "descriptions": tuple(
            name for name in (*_MAKERS, *_described()) if name not in (*recordings, *graphs)
        ),
    }


def _recording(config: JobConfig, ranks: tuple[int, ...]) -> Input:
    job = make_job(config)
    files = {f"rank{rank}.json": json.loads(text(job, rank)) for rank in ranks}
    for content in files.values():
        content["deviceProperties"] = content["deviceProperties"][:1]
        content["traceEvents"].extend(_memory_events(content["traceEvents"]))
    return Input(files, RECORDING_LINES, ("analyze {in}",))


def _memory_events(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """An allocation and a free, as the profiler writes them."""
    first = next(event for event in events if event.get("cat") == "cpu_op")
    common = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]"}
    where = {"pid": first["pid"], "tid": first["tid"], "ts": first["ts"] + 1}
    return [
        common
        | where
        | {
            "args": {
                "Total Reserved": 4_000_000,
                "Total Allocated": total,
                "Bytes": change,
                "Addr": 140_000_000,
                "Device Id": 0,
                "Device Type": 1,
            }
        }
        for total, change in ((4096, 4096), (0, -4096))
    ]


def _one_rank() -> Input:
    return _recording(
        JobConfig(num_layers=2, num_steps=2, num_optimizer_kernels=2, layer_marks="annotations"),
        (0,),
    )


def _two_ranks() -> Input:
    return _recording(
        JobConfig(tp=2, num_layers=2, num_steps=2, noise=False, layer_marks="annotations"), (0, 1)
    )


def _sync_events() -> Input:
    style = FileStyle(sync_events=True)
    return _recording(
        JobConfig(dp=2, pp=2, num_layers=1, num_steps=1, cuda_graph=True, style=style), (0, 2)
    )


def _older() -> Input:
    style = FileStyle(whole_microseconds=True, collective_arguments=False, flows=False)
    return _recording(
        JobConfig(dp=2, num_layers=1, num_steps=2, ring_exchange=True, style=style), (0, 1)
    )


def _cpu() -> Input:
    """Host operators alone, with gloo's collectives on a thread of their own."""
    events: list[dict[str, Any]] = []

    def add(name: str, tid: int, at: float, length: float, **arguments: object) -> None:
        category = "user_annotation" if name.startswith(("Profiler", "gloo")) else "cpu_op"
        span = {"ph": "X", "cat": category, "name": name, "pid": 7, "tid": tid}
        events.append(span | {"ts": at, "dur": length, "args": arguments})

    for step in range(3):
        at = 1000.0 * step
        add(f"ProfilerStep#{step}", 7, at, 990)
        for number in range(4):
            add("aten::mm", 7, at + 100 * number, 80, **{"Input Dims": [[64, 64], [64, 64]]})
        add("c10d::allreduce_", 7, at + 500, 20)
        seen = {"Collective name": "allreduce", "In msg nelems": 4096, "dtype": "Float"}
        seen |= {"Process Group Ranks": "[0, 1]", "Process Group Name": "0", "Group size": 2}
        add("gloo:all_reduce", 8, at + 510, 200, **seen, Seq=step)
        add("aten::add_", 7, at + 750, 30)
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]
    info = {"backend": "gloo", "rank": 0, "world_size": 2, "pg_config": groups}
    content = {"schemaVersion": 1, "distributedInfo": info, "traceEvents": events}
    return Input({"rank0.json": content}, RECORDING_LINES, ("analyze {in}",))


def _npu() -> Input:
    return Input({"trace_view.json": export()}, _NPU_LINES, ("analyze {in}",))


def _execution_trace() -> Input:
    trace = Written()
    seen = Seen(10, 11)
    trace.add(20, LINEAR, [seen, Seen(12, 13), Seen(14, 15, (4,), (1,))], makes=[Seen(21, 22)])
    trace.add(30, RELU, [Seen(21, 22)], makes=[Seen(31, 32)], parent=20)
    trace.add(40, MM, [Seen(31, 32), seen], makes=[Seen(41, 42)])
    trace.add(50, ADD_, [Seen(41, 42), seen, 1], makes=[Seen(41, 42)])
    trace.add(3, "", name="ProfilerStep#0")
    trace.add(60, "c10d::allreduce_(Tensor[] tensors, Any group) -> (Tensor[], Any)", [[seen]])
    trace.add(61, "", parent=60, name="record_param_comms")
    trace.nodes[-1]["attrs"].append({"name": "pg_name", "type": "", "value": "0"})
    groups = [{"pg_name": "0", "ranks": [0, 1], "group_size": 2}]
    trace.add(4, "", [json.dumps(groups)], name="## process_group:init ##")
    with tempfile.TemporaryDirectory() as folder:
        content = json.loads(trace.write(Path(folder)).read_bytes())
    return Input({"et.json": content}, _ET_LINES)


def _chakra() -> Input:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, content in _two_ranks().files.items():
            (folder / path).write_text(json.dumps(content))
        convert(load(folder, cache=False), folder / "job", to="chakra")
        files = {path.name: path.read_bytes() for path in folder.glob("job.*")}
    return Input(files, _CHAKRA_LINES)


def _snapshot() -> Input:
    block = {"size": 512, "requested_size": 500, "state": "active_allocated", "address": 0}
    history = [entry("alloc", 0, 512, "forward", at_us=1), entry("free_completed", 0, 512, "x")]
    content = {
        "segments": [segment(blocks=[block])],
        "device_traces": [history],
        "allocator_settings": {},
    }
    return Input(
        {"snapshot.pickle": pickle.dumps(content), "tree": content},
        ("memory --snapshot {file}", "memory --snapshot {file} --top 3"),
    )


def _table_plan() -> Input:
    tables = {
        f"t_cat_{table}": {
            "sharding_type": ("table_wise", "row_wise", "column_wise")[table % 3],
            "compute_kernel": ("fused", "fused_uvm_caching")[table % 2],
            "ranks": [table % 2],
            "cache_params": {"load_factor": 0.1},
        }
        for table in range(26)
    }
    job = "--model dlrm-criteo-kaggle --machine dgx-a100 --gpus 2 --micro-batch 16"
    files = "--tables {in}/plan.json --ids {in}/counts.csv"
    counts = "table,row,count\n0,1,5\n3,2,7\n"
    return Input(
        {"plan.json": {"plan": {"ebc": tables}}, "counts.csv": counts},
        (f"estimate {job} --global-batch 32 {files}",),
    )


def _described() -> dict[str, Input]:
    return {
        name: Input({of.file: of.text, **of.beside}, of.lines)
        for name, of in descriptions.FILES.items()
    } | {
        f"line {at}": Input({}, (line,), num_drawn=1)
        for at, line in enumerate(descriptions.COMMANDS)
    }


_MAKERS: Mapping[str, Callable[[], Input]] = {
    "one rank": _one_rank,
    "two ranks": _two_ranks,
    "sync events": _sync_events,
    "older": _older,
    "cpu": _cpu,
    "npu": _npu,
    "execution trace": _execution_trace,
    "chakra": _chakra,
    "snapshot": _snapshot,
    "plan of tables": _table_plan,
}
