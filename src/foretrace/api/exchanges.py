"""Files for others: in other tools' formats, without names, made up, or drawn."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from foretrace import exchange
from foretrace.api.job import Job
from foretrace.api.outputs import write_trace
from foretrace.api.verbs import simulate
from foretrace.base import TraceError
from foretrace.exchange import Drawing, Synthesised
from foretrace.graph import ExecutionGraph, Timeline


def synthesise(
    sources: Job | Iterable[Job],
    prefix: str | Path,
    *,
    num_nodes: int,
    num_ranks: int,
    seed: int = 0,
    order: int = exchange.DEFAULT_ORDER,
    is_compared: bool = True,
) -> Synthesised:
    """Learn from runs, and write a job like them of any length and number of ranks as Chakra.

    Args:
        sources: runs that `load` returned.
        prefix: folder and first part of the files' names: `out/job` makes `out/job.0.et`, ...
        num_nodes: nodes per rank.
        num_ranks: ranks; all run one program, each with durations of its own.
        seed: the same seed makes the same files.
        order: how many nodes back decide on the next one.
        is_compared: whether to say how near the made job comes to its source.

    Raises:
        GraphError: if there is nothing in the runs to learn from.
        ValueError: if a number is out of range.
    """
    jobs = (sources,) if isinstance(sources, Job) else tuple(sources)
    return exchange.synthesise(
        [job.graph for job in jobs],
        Path(prefix),
        num_nodes=num_nodes,
        num_ranks=num_ranks,
        seed=seed,
        order=order,
        is_compared=is_compared,
    )


def draw(
    subject: Job | Timeline | ExecutionGraph,
    path: str | Path,
    *,
    around: int | str | None = None,
    depth: int = 2,
    step: str | int | None = None,
    rank: int | None = None,
    label: str | None = None,
) -> Drawing:
    """Draw some nodes of a graph, one column per thread or stream, as SVG or DOT.

    Args:
        subject: a run, a timeline or a graph.
        path: ends in `.svg`, or in `.dot` or `.gv` for Graphviz.
        around: a node's number, or words of its name: draw what lies around it.
        depth: how many edges from there, in both directions.
        step: nodes of this step only, by name or number.
        rank: nodes of this rank only.
        label: nodes with these words in their name, operator or block.

    Raises:
        GraphError: if nothing fits, or more than can be read.
    """
    graph = subject if isinstance(subject, ExecutionGraph) else subject.graph
    choice = exchange.Choice(
        step=None if step is None else str(step),
        rank=rank,
        label=label,
        around=around,
        depth=depth,
    )
    return exchange.write_drawing(Path(path), graph, choice)


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
