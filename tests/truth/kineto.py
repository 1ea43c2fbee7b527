"""A job's ranks as Kineto files, as PyTorch's profiler writes them on NVIDIA GPUs.

Key names, their order, metadata events and the grouping of events in the file follow the public
traces: nanosecond style as a 2024 A100 ResNet trace, whole-microsecond style as Megatron's, and
`cuda_sync` events as small A100 traces made for them.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path

from tests.truth.job import Job, process_id, thread_id
from tests.truth.names import NCCL_INTERNAL, annotation, collective_arguments
from tests.truth.structure import Call, Operation, Span

BASE_TIME_NS = 1_750_000_000_000_000_000  # `baseTimeNanoseconds`; timestamps count from it
_BEFORE_NS, _AFTER_NS = 28_000_000, 15_000_000  # profiler window around the first and last event
_CALLBACK_IDS = {
    "cudaLaunchKernel": 211,
    "cudaLaunchKernelExC": 430,
    "cudaGraphLaunch": 311,
    "cudaMemcpyAsync": 41,
    "cudaMemsetAsync": 51,
    "cudaEventRecord": 135,
    "cudaStreamWaitEvent": 147,
    "cudaStreamSynchronize": 131,
    "cudaEventSynchronize": 137,
    "cudaDeviceSynchronize": 165,
    "cudaEventQuery": 138,
    "cudaMalloc": 20,
    "cudaFree": 22,
    "cudaStreamIsCapturing": 317,
    "cudaStreamGetCaptureInfo_v2": 409,
    "cudaFuncSetAttribute": 200,
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": 251,
}
_SYNC_KINDS = {
    "cudaStreamWaitEvent": "Stream Wait Event",
    "cudaStreamSynchronize": "Stream Sync",
    "cudaDeviceSynchronize": "Context Sync",
    "cudaEventSynchronize": "Event Sync",
    "cudaEventQuery": "Event Sync",  # seen: a query leaves the same mark, though it waits for none
}
_NUM_DEVICES = 8


class Renderer:
    """One rank's events as JSON text; `shift` moves a copy to a later time with other ids."""

    def __init__(
        self, job: Job, rank: int, *, shift_ns: int = 0, shift_id: int = 0, shift_step: int = 0
    ) -> None:
        self.job = job
        self.rank = rank
        self.style = job.config.style
        self.items = job.structure.ranks[rank]
        self.clock = job.clocks[rank]
        self.pid = process_id(rank)
        self.device = rank % _NUM_DEVICES
        self.shift_ns = shift_ns
        self.shift_id = shift_id
        self.shift_step = shift_step
        self.end_ns = job.ends_ns
        self.start_ns = job.starts_ns

    # -- moments -------------------------------------------------------------------------------

    def written_ns(self, true_ns: int) -> int:
        """A true moment as this rank's clock has it."""
        return self.clock.written_ns(true_ns + self.shift_ns)

    def at(self, true_ns: int) -> str:
        """`ts` of a moment."""
        return self._text(self.written_ns(true_ns))

    def during(self, begin_ns: int, end_ns: int) -> str:
        """`"ts": ..., "dur": ...` of a stretch."""
        begin, end = self.written_ns(begin_ns), self.written_ns(end_ns)
        if self.style.whole_microseconds:
            return f'"ts": {self._text(begin)}, "dur": {end // 1000 - begin // 1000}'
        length = end - begin
        return f'"ts": {self._text(begin)}, "dur": {length // 1000}.{length % 1000:03d}'

    def _text(self, written_ns: int) -> str:
        if self.style.whole_microseconds:
            return str((BASE_TIME_NS + written_ns) // 1000)
        return f"{written_ns // 1000}.{written_ns % 1000:03d}"

    # -- events --------------------------------------------------------------------------------

    def events(self) -> Iterator[str]:
        """Operators, then runtime calls each with what it caused."""
        yield from self.spans()
        by_call: dict[int, list[Operation]] = {}
        for each in self.items.operations:
            by_call.setdefault(each.call, []).append(each)
        for index, call in enumerate(self.items.calls):
            yield from self.call(call)
            for each in by_call.get(index, ()):
                yield from self.operation(each)
        if self.style.device_annotations:
            yield from self.device_annotations()

    def spans(self) -> Iterator[str]:
        """Operators and annotations, with the arrows from forward to backward."""
        moment = self.job.moment_ns
        for index, span in enumerate(self.items.spans):
            when = self.during(moment(span.begin, span.begin_part), moment(span.end, span.end_part))
            name = span.name
            if self.shift_step and name.startswith("ProfilerStep#"):
                name = f"ProfilerStep#{int(name.removeprefix('ProfilerStep#')) + self.shift_step}"
            if not self.style.annotations and _is_hidden(span):
                continue
            external = span.external + self.shift_id
            sequence = (
                f', "Sequence number": {span.sequence}, "Fwd thread id": {int(span.is_backward)}'
                if span.sequence >= 0 and self.style.autograd_numbers
                else ""
            )
            yield (
                f'{{"ph": "X", "cat": "{span.category}", "name": "{name}", "pid": {self.pid}, '
                f'"tid": {thread_id(self.rank, span.thread)}, {when}, "args": '
                f'{{"External id": {external}, "Record function id": {external}'
                f'{sequence}{span.arguments}, "Ev Idx": {index}}}}}'
            )
        if self.style.flows:
            for number, (forward, backward) in enumerate(self.items.flows):
                yield self.arrow("s", number + 1 + self.shift_id, forward)
                yield self.arrow("f", number + 1 + self.shift_id, backward)

    def arrow(self, phase: str, number: int, span: Span) -> str:
        """One end of a forward-backward arrow."""
        binding = ', "bp": "e"' if phase == "f" else ""
        at = self.at(self.job.moment_ns(span.begin, span.begin_part))
        return (
            f'{{"ph": "{phase}", "id": {number}, "pid": {self.pid}, "tid": '
            f'{thread_id(self.rank, span.thread)}, "ts": {at}, "cat": "fwdbwd", '
            f'"name": "fwdbwd"{binding}}}'
        )

    def call(self, call: Call) -> Iterator[str]:
        """A runtime call, its arrow, and with sync events what it waits for."""
        begin, end = self.job.call_begin_ns(call.node), self.end_ns[call.node]
        correlation = call.correlation + self.shift_id
        external = self.external(call.external, correlation)
        tid = thread_id(self.rank, call.thread)
        yield (
            f'{{"ph": "X", "cat": "cuda_runtime", "name": "{call.name}", "pid": {self.pid}, '
            f'"tid": {tid}, {self.during(begin, end)}, "args": {{"External id": {external}, '
            f'"cbid": {_CALLBACK_IDS[call.name]}, "correlation": {correlation}}}}}'
        )
        if self.style.flows:
            phase, binding = ("s", "") if call.operation >= 0 else ("f", ', "bp": "e"')
            yield (
                f'{{"ph": "{phase}", "id": {correlation}, "pid": {self.pid}, "tid": {tid}, '
                f'"ts": {self.at(begin)}, "cat": "ac2g", "name": "ac2g"{binding}}}'
            )
        if self.style.sync_events and call.name in _SYNC_KINDS:
            yield self.sync(call, external, begin, end)

    def external(self, operator: int, correlation: int) -> int:
        """The `External id` of a runtime call or of what it caused."""
        if self.style.external_is_correlation or operator == 0:
            return correlation
        return operator + self.shift_id

    def sync(self, call: Call, external: int, begin: int, end: int) -> str:
        """A `cuda_sync` event, a little inside its call."""
        kind = _SYNC_KINDS[call.name]
        correlation = call.correlation + self.shift_id
        waits = ""
        if kind in ("Stream Wait Event", "Event Sync"):
            record = call.record_correlation
            waits = (
                f'"wait_on_stream": {call.record_stream}, "wait_on_cuda_event_record_corr_id": '
                f"{record if record < 0 else record + self.shift_id}, "
                f'"wait_on_cuda_event_id": {call.event}, '
            )
        inset = (end - begin) // 4
        return (
            f'{{"ph": "X", "cat": "cuda_sync", "name": "{kind}", "pid": {self.device}, '
            f'"tid": {call.stream}, {self.during(begin + inset, end)}, "args": {{"External id": '
            f'{external}, "cuda_sync_kind": "{kind}", {waits}"stream": {call.stream}, '
            f'"correlation": {correlation}, "device": {self.device}, "context": 1}}}}'
        )

    def operation(self, each: Operation) -> Iterator[str]:
        """A kernel, copy or fill, with its arrow."""
        begin, end = self.start_ns[each.arrive], self.end_ns[each.node]
        correlation = each.correlation + self.shift_id
        where = f'"pid": {self.device}, "tid": {each.stream}'
        common = (
            f'"External id": {self.external(each.external, correlation)}, "device": {self.device}'
            f', "context": 1, "stream": {each.stream}, "correlation": {correlation}'
        )
        yield (
            f'{{"ph": "X", "cat": "{each.category}", "name": "{each.name}", {where}, '
            f'{self.during(begin, end)}, "args": {{{common}{self.details(each, end - begin)}}}}}'
        )
        if self.style.flows:
            yield (
                f'{{"ph": "f", "id": {correlation}, {where}, "ts": {self.at(begin)}, '
                '"cat": "ac2g", "name": "ac2g", "bp": "e"}'
            )

    def details(self, each: Operation, duration_ns: int) -> str:
        """The arguments that only kernels, or only copies and fills, have."""
        if each.category != "kernel":
            rate = each.num_bytes / max(duration_ns, 1)
            return f', "bytes": {each.num_bytes}, "memory bandwidth (GB/s)": {rate:.6f}'
        x, y, z = each.grid
        text = (
            ', "queued": 0, "registers per thread": 64, "shared memory": 16384'
            f', "blocks per SM": {x * y * z / 108:.6f}, "grid": [{x}, {y}, {z}]'
            f', "block": {list(each.block)}, "est. achieved occupancy %": 25'
        )
        if each.collective >= 0 and self.style.collective_arguments:
            text += self.collective_details(each.collective)
        return text

    def collective_details(self, index: int) -> str:
        """NCCL metadata of a kernel."""
        collective = self.job.structure.collectives[index]
        return collective_arguments(collective, self.part(index), self.job.config)

    def part(self, index: int) -> str:
        """What this rank calls a communication: its side, of a transfer."""
        collective = self.job.structure.collectives[index]
        if collective.source < 0:
            return collective.name
        return "send" if collective.source == self.rank else "recv"

    def device_annotations(self) -> Iterator[str]:
        """The shadows of the `nccl:` annotations on the streams."""
        for each in self.items.operations:
            if each.collective < 0:
                continue
            when = self.during(self.start_ns[each.arrive], self.end_ns[each.node])
            yield (
                '{"ph": "X", "cat": "gpu_user_annotation", "name": '
                f'"{annotation(self.part(each.collective))}", "pid": {self.device}, '
                f'"tid": {each.stream}, {when}, "args": '
                f'{{"External id": {each.external + self.shift_id}}}}}'
            )


def _is_hidden(span: Span) -> bool:
    """Annotations that a program may lack: all but the profiler's steps and NCCL's."""
    kept = ("ProfilerStep#", "nccl:")
    return span.category == "user_annotation" and not span.name.startswith(kept)


def _metadata(job: Job, rank: int) -> Iterator[str]:
    """Names of processes, threads and streams."""
    renderer = Renderer(job, rank)
    when = renderer.at(0)

    def named(kind: str, pid: int | str, tid: int, arguments: str) -> str:
        return (
            f'{{"name": "{kind}", "ph": "M", "ts": {when}, "pid": {json.dumps(pid)}, '
            f'"tid": {tid}, "args": {{{arguments}}}}}'
        )

    def process(pid: int, label: str, order: int) -> Iterator[str]:
        yield named("process_name", pid, 0, '"name": "python3.11"')
        yield named("process_labels", pid, 0, f'"labels": "{label}"')
        yield named("process_sort_index", pid, 0, f'"sort_index": {order}')

    yield from process(renderer.pid, "CPU", renderer.pid)
    for device in range(_NUM_DEVICES):
        yield from process(device, f"GPU {device}", 16_777_216 + device)
    streams = {each.stream for each in renderer.items.operations}
    if job.config.style.sync_events and job.config.noise:
        streams |= {each + NCCL_INTERNAL for each in streams}
    for stream in sorted(streams):
        yield named("thread_name", renderer.device, stream, f'"name": "stream {stream} "')
        yield named("thread_sort_index", renderer.device, stream, f'"sort_index": {stream}')
    for thread, name in enumerate(("pt_main_thread", "pt_autograd_0")):
        tid = thread_id(rank, thread)
        yield named("thread_name", renderer.pid, tid, f'"name": "thread {tid} ({name})"')
        yield named("thread_sort_index", renderer.pid, tid, f'"sort_index": {tid}')
    yield named("process_sort_index", "Spans", 0, '"sort_index": 536870912')


def _frame(job: Job, rank: int, end_ns: int) -> Iterator[str]:
    """The profiler's own span and marks."""
    renderer = Renderer(job, rank)
    begin = renderer.at(-_BEFORE_NS)
    yield (
        '{"ph": "X", "cat": "Trace", '
        f'{renderer.during(-_BEFORE_NS, end_ns + _AFTER_NS)}, "pid": "Spans", "tid": '
        '"PyTorch Profiler", "name": "PyTorch Profiler (0)", "args": {"Op count": 0}}'
    )
    yield (
        '{"name": "Iteration Start: PyTorch Profiler", "ph": "i", "s": "g", "pid": "Traces", '
        f'"tid": "Trace PyTorch Profiler", "ts": {begin}}}'
    )
    yield (
        '{"name": "Record Window End", "ph": "i", "s": "g", "pid": "", "tid": "", '
        f'"ts": {renderer.at(end_ns + _AFTER_NS)}}}'
    )


def head(job: Job, rank: int) -> str:
    """Everything before the events, up to and with the opening bracket."""
    items = job.structure.ranks[rank]
    devices = [
        {
            "id": device,
            "name": "NVIDIA A100-SXM4-80GB",
            "totalGlobalMem": 85_174_583_296,
            "computeMajor": 8,
            "computeMinor": 0,
            "maxThreadsPerBlock": 1_024,
            "maxThreadsPerMultiprocessor": 2_048,
            "regsPerBlock": 65_536,
            "warpSize": 32,
            "sharedMemPerBlock": 49_152,
            "numSms": 108,
            "regsPerMultiprocessor": 65_536,
            "sharedMemPerBlockOptin": 166_912,
            "sharedMemPerMultiprocessor": 167_936,
        }
        for device in range(_NUM_DEVICES)
    ]
    distributed: dict[str, object] = {
        "backend": "nccl",
        "rank": rank,
        "world_size": job.num_ranks,
    }
    if job.config.style.collective_arguments:
        distributed["pg_count"] = len(items.groups)
        distributed["pg_config"] = [
            {
                "pg_name": group.name,
                "pg_desc": group.description,
                "backend_config": "cuda:nccl",
                "pg_size": len(group.ranks),
                "ranks": list(group.ranks),
            }
            for group in items.groups
        ]
        distributed["nccl_version"] = "2.21.5"
    lines = [
        '  "schemaVersion": 1',
        f'  "deviceProperties": {json.dumps(devices)}',
        f'  "distributedInfo": {json.dumps(distributed)}',
    ]
    if not job.config.style.whole_microseconds:
        lines.append('  "displayTimeUnit": "ms"')
        lines.append(f'  "baseTimeNanoseconds": {BASE_TIME_NS}')
    return "{\n" + ",\n".join(lines) + ',\n  "traceEvents": [\n'


def tail(rank: int) -> str:
    """Everything after the events."""
    return f'\n  ],\n  "traceName": "rank{rank}.json"\n}}\n'


def text(job: Job, rank: int, *, shuffle_seed: int | None = None) -> str:
    """One rank's file; with a seed its events stand in random order."""
    last_ns = max(job.ends_ns[each.node] for each in job.structure.ranks[rank].calls)
    lines = [
        *Renderer(job, rank).events(),
        *_metadata(job, rank),
        *_frame(job, rank, last_ns),
    ]
    if shuffle_seed is not None:
        random.Random(shuffle_seed).shuffle(lines)
    return head(job, rank) + ",\n".join(lines) + tail(rank)


def write(
    job: Job,
    folder: Path,
    *,
    ranks: tuple[int, ...] | None = None,
    compress: bool = True,
    shuffle_seed: int | None = None,
) -> tuple[Path, ...]:
    """Write `rank{r}.json.gz`, or `.json`, for all ranks or those given; returns the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for rank in range(job.num_ranks) if ranks is None else ranks:
        content = text(job, rank, shuffle_seed=shuffle_seed).encode()
        path = folder / f"rank{rank}.json{'.gz' if compress else ''}"
        path.write_bytes(gzip.compress(content, compresslevel=1) if compress else content)
        paths.append(path)
    return tuple(paths)
