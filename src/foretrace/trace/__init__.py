"""Floor 2: any supported file becomes one columnar table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.trace.archives import local_copies as local_copies
    from foretrace.trace.cache import DEFAULT_MAX_BYTES as DEFAULT_MAX_BYTES
    from foretrace.trace.cache import CachedTrace as CachedTrace
    from foretrace.trace.cache import TraceCache as TraceCache
    from foretrace.trace.cache import cached_traces as cached_traces
    from foretrace.trace.cache import prune as prune
    from foretrace.trace.chakra import CHAKRA_VERSION as CHAKRA_VERSION
    from foretrace.trace.chakra import COMM_TYPES as COMM_TYPES
    from foretrace.trace.chakra import KINDS_OF_COMM_TYPE as KINDS_OF_COMM_TYPE
    from foretrace.trace.chakra import NO_TEXT as NO_TEXT
    from foretrace.trace.chakra import Attribute as Attribute
    from foretrace.trace.chakra import Attributes as Attributes
    from foretrace.trace.chakra import ChakraNodes as ChakraNodes
    from foretrace.trace.chakra import ChakraTrace as ChakraTrace
    from foretrace.trace.chakra import Collected as Collected
    from foretrace.trace.chakra import CommType as CommType
    from foretrace.trace.chakra import NodeType as NodeType
    from foretrace.trace.chakra import Texts as Texts
    from foretrace.trace.chakra import ValueField as ValueField
    from foretrace.trace.chakra import chakra_batches as chakra_batches
    from foretrace.trace.chakra import listed_numbers as listed_numbers
    from foretrace.trace.chakra import read_chakra as read_chakra
    from foretrace.trace.chakra import unknown_kinds as unknown_kinds
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
    from foretrace.trace.contents import Contents as Contents
    from foretrace.trace.contents import contents_of as contents_of
    from foretrace.trace.contents import inspect as inspect
    from foretrace.trace.contents import is_autograd_node as is_autograd_node
    from foretrace.trace.discover import FoundFiles as FoundFiles
    from foretrace.trace.discover import discover as discover
    from foretrace.trace.discover import files_named as files_named
    from foretrace.trace.execution import ExecutionArgument as ExecutionArgument
    from foretrace.trace.execution import ExecutionNode as ExecutionNode
    from foretrace.trace.execution import ExecutionTrace as ExecutionTrace
    from foretrace.trace.execution import execution_traces_beside as execution_traces_beside
    from foretrace.trace.execution import read_execution_nodes as read_execution_nodes
    from foretrace.trace.execution import read_execution_trace as read_execution_trace
    from foretrace.trace.formats import EXECUTION as EXECUTION
    from foretrace.trace.formats import GRAPHS as GRAPHS
    from foretrace.trace.formats import PROFILES as PROFILES
    from foretrace.trace.formats import AnyFormat as AnyFormat
    from foretrace.trace.formats import TraceFormat as TraceFormat
    from foretrace.trace.formats import format_of as format_of
    from foretrace.trace.formats import known_formats as known_formats
    from foretrace.trace.formats import read_graph as read_graph
    from foretrace.trace.ingest import load_run as load_run
    from foretrace.trace.ingest import load_traces as load_traces
    from foretrace.trace.ingest import read_traces as read_traces
    from foretrace.trace.marks import STEP_MARK as STEP_MARK
    from foretrace.trace.marks import BatchKind as BatchKind
    from foretrace.trace.marks import EngineBatch as EngineBatch
    from foretrace.trace.marks import batch_of_mark as batch_of_mark
    from foretrace.trace.meta import KEPT_OF_CUT as KEPT_OF_CUT
    from foretrace.trace.others import FlightDump as FlightDump
    from foretrace.trace.others import FlightEntry as FlightEntry
    from foretrace.trace.ranks import rank_in_name as rank_in_name
    from foretrace.trace.runtime import RuntimeRole as RuntimeRole
    from foretrace.trace.runtime import is_communication as is_communication
    from foretrace.trace.runtime import role_of as role_of
    from foretrace.trace.runtime import runtime_role as runtime_role
    from foretrace.trace.runtime import runtime_role_at as runtime_role_at
    from foretrace.trace.sidecar import StepTimes as StepTimes
    from foretrace.trace.sidecar import step_times_beside as step_times_beside
    from foretrace.trace.sidecar import step_times_path as step_times_path
    from foretrace.trace.sidecar import write_step_times as write_step_times
    from foretrace.trace.snapshot import UNKNOWN_NS as UNKNOWN_NS
    from foretrace.trace.snapshot import AllocatorAction as AllocatorAction
    from foretrace.trace.snapshot import DeviceSnapshot as DeviceSnapshot
    from foretrace.trace.snapshot import Snapshot as Snapshot
    from foretrace.trace.snapshot import load_snapshot as load_snapshot
    from foretrace.trace.source import CutShortError as CutShortError
    from foretrace.trace.source import opened_source as opened_source
    from foretrace.trace.steps import StepMark as StepMark
    from foretrace.trace.steps import batches_of_marks as batches_of_marks
    from foretrace.trace.steps import outermost_rows as outermost_rows
    from foretrace.trace.steps import step_marks as step_marks
    from foretrace.trace.steps import with_step_mark as with_step_mark
    from foretrace.trace.steps import with_steps as with_steps

lazily(__name__)
