"""Edits: what can be different about a job. This list is the only one: see `edits.stated`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.whatif.edits.attention import Attention as Attention
    from foretrace.whatif.edits.checking import Check as Check
    from foretrace.whatif.edits.durations import Delay as Delay
    from foretrace.whatif.edits.durations import Lasts as Lasts
    from foretrace.whatif.edits.durations import Network as Network
    from foretrace.whatif.edits.durations import Speed as Speed
    from foretrace.whatif.edits.fusing import CudaGraphs as CudaGraphs
    from foretrace.whatif.edits.fusing import Fuse as Fuse
    from foretrace.whatif.edits.loading import DataLoading as DataLoading
    from foretrace.whatif.edits.loading import UnevenDocuments as UnevenDocuments
    from foretrace.whatif.edits.machine import OnMachine as OnMachine
    from foretrace.whatif.edits.machine import SetMachine as SetMachine
    from foretrace.whatif.edits.model import Layers as Layers
    from foretrace.whatif.edits.model import Widths as Widths
    from foretrace.whatif.edits.plan import Batch as Batch
    from foretrace.whatif.edits.plan import Parallelism as Parallelism
    from foretrace.whatif.edits.plan import PlanKeys as PlanKeys
    from foretrace.whatif.edits.substituting import OwnKernel as OwnKernel
    from foretrace.whatif.edits.substituting import Substitute as Substitute
    from foretrace.whatif.edits.waits import MoveSync as MoveSync
    from foretrace.whatif.edits.waits import NoStalls as NoStalls
    from foretrace.whatif.edits.waits import RemoveSync as RemoveSync

lazily(__name__)
