"""Jobs from Chakra files, and graphs into files of other tools."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from foretrace.api.job import Job
from foretrace.base import TraceError
from foretrace.graph import chakra_recording
from foretrace.simulate import simulate
from foretrace.trace import ChakraTrace, TraceMeta, read_any


def chakra_job(paths: tuple[Path, ...], *, ranks: Collection[int] | None) -> Job:
    """A run from the Chakra files of its ranks.

    Where the files do not say when anything happened, the replay stands in for what was measured.

    Raises:
        TraceError: if a file cannot be read, or a rank that was asked for is not there.
        GraphError: if the files hold nothing to simulate.
    """
    traces = [read_any(path) for path in paths]
    if ranks is not None:
        kept = [trace for trace in traces if trace.rank in ranks]
        if missing := set(ranks) - {trace.rank for trace in kept}:
            found = sorted(trace.rank for trace in traces if trace.rank is not None)
            raise TraceError(
                f"no Chakra file of rank {sorted(missing)}: found {found[:20]}; name ranks that "
                "have a file"
            )
        traces = kept
    recording = chakra_recording(traces)
    if not recording.measured.is_measured:
        recording = replace(recording, measured=simulate(recording.graph))
    return Job(recording, tuple(_meta(trace, len(traces)) for trace in traces))


def _meta(trace: ChakraTrace, num_ranks: int) -> TraceMeta:
    return TraceMeta(
        path=trace.path,
        content_key="",
        file_bytes=trace.file_bytes,
        json_bytes=trace.file_bytes,
        rank=trace.rank,
        world_size=num_ranks,
        backend=None,
        process_groups=(),
        device_names=(),
        timestamp_unit_ns=1 if trace.nodes.has("start_ns").any() else 1000,
        is_truncated=trace.is_truncated,
        num_events=len(trace.nodes),
        dropped={},
        notes=trace.notes,
    )
