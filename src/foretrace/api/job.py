"""`Job`: one training run, loaded and understood."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.graph import ExecutionGraph, Finding, Recording, Timeline
from foretrace.trace import TraceMeta

# Folders of these names say nothing without the one above them.
PLAIN_NAMES = frozenset({"log", "logs", "profile", "profiles", "trace", "traces"})


@dataclass(frozen=True)
class Job:
    """What `load` returns: the recording of a run, and where it came from."""

    recording: Recording
    metas: tuple[TraceMeta, ...]  # one per file, by rank

    @property
    def graph(self) -> ExecutionGraph:
        """Who waits for whom."""
        return self.recording.graph

    @property
    def measured(self) -> Timeline:
        """What was observed, on one clock for all ranks."""
        return self.recording.measured

    @property
    def ranks(self) -> tuple[int, ...]:
        """The recorded ranks, rising."""
        return self.graph.ranks

    @property
    def steps(self) -> tuple[str, ...]:
        """The recorded steps' names, in order."""
        return self.graph.step_names

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What a reader of any result must know about the recording."""
        return self.recording.findings

    @property
    def title(self) -> str:
        """The name of the folder that holds the first file, or of the file if it is alone."""
        first = self.metas[0].path.resolve()
        if len(self.metas) == 1:
            return first.name
        folder = first.parent
        return f"{folder.parent.name}/{folder.name}" if folder.name in PLAIN_NAMES else folder.name

    def __repr__(self) -> str:
        """One line: ranks, steps and size."""
        return (
            f"Job(ranks={self.ranks!r}, steps={self.steps!r}, "
            f"nodes={self.graph.num_nodes:,}, edges={self.graph.num_edges:,})"
        )
