"""Floor 6: an edit maps a scenario to a scenario; a recording under one becomes a prediction."""

from __future__ import annotations

from foretrace.whatif.arrange.arranged import Arranged as Arranged
from foretrace.whatif.changes.change import DurationChange as DurationChange
from foretrace.whatif.changes.selection import Selection as Selection
from foretrace.whatif.edits.edit import Edit as Edit
from foretrace.whatif.edits.machine import OnMachine as OnMachine
from foretrace.whatif.edits.model import Layers as Layers
from foretrace.whatif.edits.model import Widths as Widths
from foretrace.whatif.edits.plan import Batch as Batch
from foretrace.whatif.edits.plan import Parallelism as Parallelism
from foretrace.whatif.edits.plan import PlanKeys as PlanKeys
from foretrace.whatif.edits.work import CudaGraphs as CudaGraphs
from foretrace.whatif.edits.work import DataLoading as DataLoading
from foretrace.whatif.edits.work import Delay as Delay
from foretrace.whatif.edits.work import Fuse as Fuse
from foretrace.whatif.edits.work import Network as Network
from foretrace.whatif.edits.work import RemoveSync as RemoveSync
from foretrace.whatif.edits.work import Speed as Speed
from foretrace.whatif.prediction import EditEffect as EditEffect
from foretrace.whatif.prediction import Memory as Memory
from foretrace.whatif.prediction import Prediction as Prediction
from foretrace.whatif.recorded.program import Program as Program
from foretrace.whatif.resize.sizes import Sizes as Sizes
from foretrace.whatif.scenario import Scenario as Scenario
