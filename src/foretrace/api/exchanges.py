"""Traces for others' eyes: without names, made up, or drawn."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TypeAlias

from foretrace import exchange
from foretrace.api.job import Job
from foretrace.exchange import Anonymised, Drawing, Synthesised
from foretrace.graph import ExecutionGraph, Timeline

Paths: TypeAlias = str | Path | Iterable[str | Path]


def anonymise(
    paths: Paths,
    out: str | Path,
    *,
    keep: Iterable[str] = (),
    drop: Iterable[str] = (),
    scale_shapes: float = 1.0,
    known_names: Mapping[str, str] | None = None,
) -> Anonymised:
    """Write a run's traces again without the names that are somebody's.

    Args:
        paths: Kineto traces, execution traces and Chakra files of one run: files, globs, folders.
        out: the folder for the new files.
        keep: shell patterns of texts to keep though they are not known to be public.
        drop: shell patterns of texts to replace though they are.
        scale_shapes: what to multiply every dimension above 1 with.
        known_names: neutral names given before (`Anonymised.neutral`), to be given again.

    Raises:
        TraceError: if a file cannot be read, or none is found.
    """
    return exchange.anonymise(
        paths,
        Path(out),
        keep=keep,
        drop=drop,
        scale_shapes=scale_shapes,
        known_names=known_names,
    )


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
