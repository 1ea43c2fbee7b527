"""What a question about a run is asked of: a timeline, a recording, or what holds one."""

from __future__ import annotations

from typing import Protocol, TypeAlias, runtime_checkable

from foretrace.answer import Subject
from foretrace.graph.recording import Recording
from foretrace.graph.timeline import Timeline


@runtime_checkable
class HasTimeline(Protocol):
    """An estimate, a prediction, a job under edits: simulated once."""

    @property
    def timeline(self) -> Timeline:
        """When each node starts and ends."""
        ...


class HasRecording(Protocol):
    """A job."""

    @property
    def recording(self) -> Recording:
        """What was measured."""
        ...

    @property
    def replayed(self) -> Timeline:
        """Its replay."""
        ...

    def check_times(self, doing: str) -> None:
        """Refuse what says how long nothing took."""
        ...


Run: TypeAlias = Timeline | HasTimeline | HasRecording


def measured_of(run: Run) -> Timeline:
    """What was measured of a job; a timeline as it is; of anything else what was simulated."""
    if isinstance(run, Timeline):
        return run
    if isinstance(run, HasTimeline):
        return run.timeline
    run.check_times("measure")
    return run.recording.measured


def replayed_of(run: Run) -> Timeline:
    """The replay of a job; a timeline as it is; of anything else what was simulated."""
    if isinstance(run, Timeline):
        return run
    if isinstance(run, HasTimeline):
        return run.timeline
    run.check_times("replay")
    return run.replayed


def recording_of(run: Recording | HasRecording) -> Recording:
    """The recording of a job, or one as it is."""
    return run if isinstance(run, Recording) else run.recording


MEASURED: Subject[Run, Timeline] = Subject("measured", measured_of)
REPLAYED: Subject[Run, Timeline] = Subject("replayed", replayed_of)
# What is simulated again in any case, so that a measured timeline stands for its replay.
SIMULATED: Subject[Run, Timeline] = Subject("simulated", replayed_of)
RECORDING: Subject[Recording | HasRecording, Recording] = Subject("recording", recording_of)
