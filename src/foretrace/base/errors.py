"""The errors a user can meet.

    ModelError
    +-- TraceError        a file could not be read, or does not hold what was asked of it
    +-- GraphError        a graph breaks a rule of `foretrace.graph.spec`, or cannot be built
    |   +-- CircleError   its nodes wait for each other
    |   +-- DifferentRunsError  its ranks never met
    +-- MachineError      a description of hardware cannot be read, or says what cannot be
    +-- WorkloadError     a description of a model cannot be read, or says what cannot be
    |   +-- NoRoomError   memory does not hold what is asked of it
    +-- SimulationError   a simulation cannot be run on this graph
    +-- ScenarioError     a change that was asked for cannot be made to this job
    |   +-- NotShownError it is legal, and the recording does not show what it would take
    +-- RiskError         a description of failures or a campaign cannot be read, or cannot be
    +-- OutputError       a file cannot be written
    +-- EngineError       workers of a sweep end before they answer
    +-- MissingExtraError an optional library is not installed

A wrong argument in a Python call is a `ValueError` or `TypeError`, as everywhere.
Every message is one sentence that says what failed, where, what was found against what was
expected, and what to try next.
"""

from __future__ import annotations


class ModelError(Exception):
    """Base of all errors that foretrace raises about its inputs."""


class TraceError(ModelError):
    """A trace file could not be read, or does not hold what was asked of it."""


class GraphError(ModelError):
    """An execution graph breaks a rule, or cannot be built from these traces."""


class DifferentRunsError(GraphError):
    """Ranks leave collectives before others arrive: their traces are not of one run."""


class CircleError(GraphError):
    """Nodes wait for each other in a circle, so that no order of them exists.

    Attributes:
        stuck: how many nodes wait and the first of them, in words, for others to quote.
    """

    def __init__(self, message: str, *, stuck: str = "") -> None:
        super().__init__(message)
        self.stuck = stuck


class MachineError(ModelError):
    """A description of hardware cannot be found or read, or holds what no hardware can be."""


class WorkloadError(ModelError):
    """A description of a model cannot be found or read, or holds what no model can be."""


class NoRoomError(WorkloadError):
    """A model leaves no memory for the work that is asked of it: more devices would."""


class SimulationError(ModelError):
    """A simulation cannot be run on this graph with these durations."""


class ScenarioError(ModelError):
    """A change that was asked for cannot be read, or names nothing in this job."""


class NotShownError(ScenarioError):
    """A change is legal, and the recording does not show what it would take."""


class RiskError(ModelError):
    """A description of failures or of a campaign cannot be read, or says what cannot be."""


class OutputError(ModelError):
    """A file cannot be written: its folder, its disk, or what stands in its place forbids it."""


class EngineError(ModelError):
    """Workers that a sweep is spread over end before they answer."""


class MissingExtraError(ModelError):
    """An optional library is needed and not installed; the message holds the install command."""
