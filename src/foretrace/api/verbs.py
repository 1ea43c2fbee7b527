"""The verbs: each is one call into a floor below."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from foretrace.analyze import step_name
from foretrace.api.folders import cache_folder_of
from foretrace.api.job import Job
from foretrace.base import NetworkUse
from foretrace.graph import (
    Ablation,
    Blocks,
    Corrections,
    Timeline,
    blocks_of,
    read_corrections,
    read_names,
    recording_of_run,
    with_stated_names,
)
from foretrace.graph import without as graph_without
from foretrace.simulate import simulate as simulated
from foretrace.trace import DEFAULT_MAX_BYTES, load_run, local_copies
from foretrace.validate import LinksOfReplay, ReplayReport, replay_report

if TYPE_CHECKING:  # what replays and pages of a run need not load
    from foretrace.api.edited import Edited
    from foretrace.api.named import Named
    from foretrace.estimate import Estimate
    from foretrace.machine import Machine
    from foretrace.whatif import Prediction

__all__ = ["blocks", "load", "replay", "simulate"]

Paths: TypeAlias = str | Path | Iterable[str | Path]
Progress: TypeAlias = Callable[[int, int], None]
Without: TypeAlias = Ablation | str | Iterable[Ablation | str]


def load(
    paths: Paths,
    *,
    ranks: Collection[int] | None = None,
    steps: Collection[str | int] | None = None,
    step_mark: str = "",
    blocks: str | Path | None = None,
    names: str | Path | None = None,
    cache: bool | Path = True,
    max_cache_bytes: int = DEFAULT_MAX_BYTES,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Job:
    """A run from the profiler files of its ranks, or from their Chakra files.

    Args:
        paths: files, globs or folders; one trace per rank. Addresses too (`s3://`, `gs://`,
            `https://`), with fsspec installed.
        ranks: only these; the others become ghosts. All, if left out.
        steps: only events of these steps, by name or number. All, if left out.
        step_mark: how names of marks begin that are steps: an annotation's, an operator's or a
            Python function's. What is known to be a step, if left out: docs/formats.md.
        blocks: a TOML file that corrects which work is which part of the model: docs/blocks.md.
        names: a TOML file that states what kernels are whose names do not tell: docs/analyses.md.
        cache: whether to keep the parsed columns; a folder says where, else `~/.cache/foretrace`.
        max_cache_bytes: what the folder may hold; what was used longest ago goes first.
        workers: files read at once; what suits the machine, if left out.
        progress: called with files done and files in all.

    Raises:
        TraceError: if a file cannot be read, or two cannot belong together.
        GraphError: if the traces hold nothing to replay, or the file of blocks or names is wrong.
    """
    corrections = Corrections() if blocks is None else read_corrections(Path(blocks))
    with local_copies(paths) as files:
        traces = load_run(
            files,
            ranks=ranks,
            steps=steps,
            step_mark=step_mark,
            cache_folder=cache_folder_of(cache),
            max_cache_bytes=max_cache_bytes,
            workers=workers,
            progress=progress,
        )
    if names is not None:
        traces = with_stated_names(traces, read_names(Path(names)))
    recording = recording_of_run(traces, corrections=corrections)
    if not recording.measured.is_measured:  # the files do not say when anything happened
        recording = replace(recording, measured=simulated(recording.graph))
    return Job(recording, tuple(trace.meta for trace in traces))


def blocks(subject: Job | Timeline | Estimate | Edited | Prediction) -> Blocks:
    """Parts of the model, their phases, layers and microbatches, with their times."""
    return blocks_of(subject.graph)


def simulate(job: Job | Edited, *, without: Without = ()) -> Timeline:
    """The job's replay: every rank's run rebuilt from its dependencies alone.

    Args:
        job: or one under edits, which is predicted.
        without: classes of dependency to leave out: "inter-stream", "rendezvous", "device".

    Raises:
        ScenarioError: if an edit is illegal, or cannot be made to this recording.
        ValueError: if something is to be left out of a job under edits.
    """
    if not isinstance(job, Job):
        if ablations(without):
            raise ValueError("a job under edits is predicted whole: leave out `without`")
        return job.timeline
    if not without:
        return job.replayed
    recording = job.recording
    for ablation in ablations(without):
        graph, duration_ns = graph_without(recording, ablation)
        recording = replace(recording, graph=replace(graph, measured_ns=duration_ns))
    return simulated(recording.graph)


def replay(
    job: Job,
    *,
    without: Without = (),
    steps: Collection[str | int] | None = None,
    machine: Machine | Named | None = None,
    network: NetworkUse | str = NetworkUse.PRIVATE,
) -> ReplayReport:
    """The job's replay held against what was measured, beside the null models.

    Args:
        without: classes of dependency to leave out of the replay under test.
        steps: steps to report on, by name or number; all if left out.
        machine: that it ran on, for its links.
        network: "shared": say too what transfers asked of the machine's links, and what the step
            is where those that meet divide them.

    Raises:
        ModelError: if the recording has no such step.
        ScenarioError: if links are to be shared and no machine says which, or a plan is not shown.
        TraceError: if nothing in the files says how long anything took.
    """
    job.check_times("replay")
    found = replay_report(
        job.recording,
        simulated=simulate(job, without=without),
        step_names=None if steps is None else step_names(steps, job.steps),
    )
    if NetworkUse(network) is NetworkUse.PRIVATE:
        return found
    shared = job.edit(machine=machine, network=network).prediction
    if shared.links is None:
        return found
    return replace(found, links=LinksOfReplay(shared.step_ns, shared.links, shared.notes))


def ablations(without: Without) -> tuple[Ablation, ...]:
    """The classes of dependency by these names, each once."""
    listed = (without,) if isinstance(without, str | Ablation) else tuple(without)
    allowed = {ablation.value for ablation in Ablation}
    for one in listed:
        if not isinstance(one, Ablation) and one not in allowed:
            raise ValueError(
                f"no class of dependency is called {one!r}: expected one of {sorted(allowed)}"
            )
    return tuple(dict.fromkeys(Ablation(one) for one in listed))


def step_names(steps: Iterable[str | int], names: Sequence[str]) -> tuple[str, ...]:
    """Which of a recording's names these names or numbers stand for."""
    return tuple(name for one in steps if (name := step_name(one, names)) is not None)
