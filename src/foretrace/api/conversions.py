"""A graph or a job into files of other tools."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

from foretrace import exchange
from foretrace.api.job import Job
from foretrace.api.outputs import write_trace
from foretrace.api.verbs import simulate
from foretrace.base import TraceError
from foretrace.graph import ExecutionGraph, Timeline


class Format(StrEnum):
    """What `convert` can write."""

    CHAKRA = "chakra"  # one file per rank, and one of the process groups
    PERFETTO = "perfetto"
    KINETO = "kineto"  # one file per rank
    PARQUET = "parquet"  # nodes and edges as tables

    @classmethod
    def of_name(cls, path: Path) -> Format:
        """The format that a file's name ends as.

        Raises:
            TraceError: for a name that ends as none does.
        """
        for format_, endings in _ENDINGS.items():
            if path.name.endswith(endings):
                return format_
        known = ", ".join(f"{format_.value}: {ends[0]}" for format_, ends in _ENDINGS.items())
        raise TraceError(
            f"cannot tell the format from the name {str(path)!r}: state it with --to, or let the "
            f"name end as one does ({known})"
        )


_ENDINGS = {
    Format.PERFETTO: (".pftrace", ".perfetto-trace", ".perfetto"),
    Format.CHAKRA: (".et", ".chakra"),
    Format.PARQUET: (".parquet",),
    Format.KINETO: (".json", ".json.gz"),
}


def convert(
    subject: Job | Timeline | ExecutionGraph,
    path: str | Path,
    *,
    to: Format | str,
    replayed: bool = False,
) -> tuple[Path, ...]:
    """Write a run in another tool's format; the files written.

    Args:
        subject: of a job, what was measured; a timeline as it is; a graph without times.
        path: where to. Chakra and Kineto take it as the first part of their files' names.
        to: "chakra", "perfetto", "kineto" or "parquet".
        replayed: of a job, the times of its replay in place of those measured.

    Raises:
        GraphError: if the format has no way to say what the graph holds.
        TraceError: if a job without times is to become a timeline, not replayed.
        ValueError: if a graph without times is to become a timeline.
    """
    wanted, path = Format(to), Path(path)
    graph, timeline = _parts(subject, replayed=replayed)
    if wanted == Format.CHAKRA:
        prefix = path.with_suffix("") if path.suffix == ".et" else path
        origin = subject.recording.chakra if isinstance(subject, Job) else None
        written = exchange.write_chakra(prefix, graph, timeline=timeline, origin=origin)
        return (*written.paths, written.groups_path)
    if timeline is None and isinstance(subject, Job):
        raise TraceError(
            f"{subject.title} says when nothing began, so it has no times to write as {wanted}: "
            "ask for those of its replay (`--replayed`), or write it as chakra."
        )
    if timeline is None:
        raise ValueError(f"a graph has no times to write as {wanted}: pass simulate(...) of it")
    if wanted == Format.PERFETTO:
        if isinstance(subject, Job):
            write_trace(path, subject, simulate(subject))
        else:
            exchange.write_trace(path, {timeline.label: timeline})
        return (path,)
    if wanted == Format.KINETO:
        return exchange.write_kineto(path, timeline)
    return exchange.write_tables(path, timeline)


def _parts(
    subject: Job | Timeline | ExecutionGraph, *, replayed: bool
) -> tuple[ExecutionGraph, Timeline | None]:
    if isinstance(subject, ExecutionGraph):
        return subject, None
    if isinstance(subject, Timeline):
        return subject.graph, subject
    timeline = simulate(subject) if replayed else subject.measured
    # Times that were made here are not the file's: a file without any is written without.
    return subject.graph, timeline if timeline.is_measured or replayed else None
