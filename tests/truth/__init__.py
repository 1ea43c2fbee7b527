"""Generated training jobs whose truth is known, and the Kineto files they would leave.

Independent of what it judges: nothing here imports foretrace. See README.md beside this file.
"""

from __future__ import annotations

from tests.truth.changes import AllKernels as AllKernels
from tests.truth.changes import Change as Change
from tests.truth.changes import KernelFamily as KernelFamily
from tests.truth.changes import LateLoader as LateLoader
from tests.truth.changes import LongerSegment as LongerSegment
from tests.truth.changes import MergedBuckets as MergedBuckets
from tests.truth.changes import SlowFamily as SlowFamily
from tests.truth.changes import SlowGroup as SlowGroup
from tests.truth.changes import SlowLink as SlowLink
from tests.truth.changes import SlowRank as SlowRank
from tests.truth.changes import SlowWhile as SlowWhile
from tests.truth.config import FREE_LINK as FREE_LINK
from tests.truth.config import NO_OVERHEADS as NO_OVERHEADS
from tests.truth.config import TRANSFORMER_LAYER as TRANSFORMER_LAYER
from tests.truth.config import FileStyle as FileStyle
from tests.truth.config import JobConfig as JobConfig
from tests.truth.config import Link as Link
from tests.truth.config import Overheads as Overheads
from tests.truth.config import Work as Work
from tests.truth.config import acceptance_config as acceptance_config
from tests.truth.config import quiet as quiet
from tests.truth.config import single_kernel_layer as single_kernel_layer
from tests.truth.job import Job as Job
from tests.truth.job import make_job as make_job
from tests.truth.kineto import text as text
from tests.truth.kineto import write as write
from tests.truth.reach import Reachability as Reachability
from tests.truth.reach import transitive_closure_contains as transitive_closure_contains
from tests.truth.records import Ref as Ref
from tests.truth.records import TrueCall as TrueCall
from tests.truth.records import TrueClock as TrueClock
from tests.truth.records import TrueCollective as TrueCollective
from tests.truth.records import TrueEdge as TrueEdge
from tests.truth.records import TrueMember as TrueMember
from tests.truth.records import TrueOperation as TrueOperation
from tests.truth.replicas import write_replicas as write_replicas
from tests.truth.replicas import write_widened as write_widened
from tests.truth.structure import Block as Block
from tests.truth.structure import Dependency as Dependency
