"""Floor 1: any supported file becomes one columnar table."""

from __future__ import annotations

from foretrace.trace.cache import clear_cache as clear_cache
from foretrace.trace.columns import NO_ID as NO_ID
from foretrace.trace.columns import NO_STRING as NO_STRING
from foretrace.trace.columns import Category as Category
from foretrace.trace.columns import CollectiveColumns as CollectiveColumns
from foretrace.trace.columns import FlowColumns as FlowColumns
from foretrace.trace.columns import LaneKind as LaneKind
from foretrace.trace.columns import Lanes as Lanes
from foretrace.trace.columns import MemoryColumns as MemoryColumns
from foretrace.trace.columns import ProcessGroup as ProcessGroup
from foretrace.trace.columns import SyncColumns as SyncColumns
from foretrace.trace.columns import Trace as Trace
from foretrace.trace.columns import TraceMeta as TraceMeta
from foretrace.trace.communication import UNKNOWN_COLLECTIVE as UNKNOWN_COLLECTIVE
from foretrace.trace.communication import collective_kind_of as collective_kind_of
from foretrace.trace.communication import is_communication as is_communication
from foretrace.trace.contents import Contents as Contents
from foretrace.trace.contents import contents_of as contents_of
from foretrace.trace.contents import inspect as inspect
from foretrace.trace.discover import Found as Found
from foretrace.trace.discover import discover as discover
from foretrace.trace.ingest import load_traces as load_traces
from foretrace.trace.runtime import RuntimeRole as RuntimeRole
from foretrace.trace.runtime import role_of as role_of
from foretrace.trace.runtime import runtime_role as runtime_role
from foretrace.trace.sidecar import StepTimes as StepTimes
from foretrace.trace.sidecar import step_times_beside as step_times_beside
from foretrace.trace.sidecar import step_times_path as step_times_path
from foretrace.trace.sidecar import write_step_times as write_step_times
from foretrace.trace.snapshot import UNKNOWN_NS as UNKNOWN_NS
from foretrace.trace.snapshot import AllocatorAction as AllocatorAction
from foretrace.trace.snapshot import DeviceSnapshot as DeviceSnapshot
from foretrace.trace.snapshot import Snapshot as Snapshot
from foretrace.trace.snapshot import load_snapshot as load_snapshot
from foretrace.trace.steps import StepMark as StepMark
from foretrace.trace.steps import step_marks as step_marks
from foretrace.trace.steps import with_steps as with_steps
