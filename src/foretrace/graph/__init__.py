"""Floor 3: traces become an `ExecutionGraph` that obeys `spec`; `Timeline` lives here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.graph.ablation import Ablation as Ablation
    from foretrace.graph.ablation import without as without
    from foretrace.graph.assembly import Edges as Edges
    from foretrace.graph.assembly import renumbered_graph_of as renumbered_graph_of
    from foretrace.graph.blocks import BlockEvidence as BlockEvidence
    from foretrace.graph.blocks import Blocks as Blocks
    from foretrace.graph.blocks import BlocksWithEvidence as BlocksWithEvidence
    from foretrace.graph.blocks import Corrections as Corrections
    from foretrace.graph.blocks import blocks_of as blocks_of
    from foretrace.graph.blocks import read_corrections as read_corrections
    from foretrace.graph.build import build_recording as build_recording
    from foretrace.graph.build import recording_of_run as recording_of_run
    from foretrace.graph.chakra import chakra_recording as chakra_recording
    from foretrace.graph.dependencies import DEFAULT_NS as DEFAULT_NS
    from foretrace.graph.findings import BEFORE as BEFORE
    from foretrace.graph.findings import CUT_OFF as CUT_OFF
    from foretrace.graph.findings import GRAPH_KERNELS as GRAPH_KERNELS
    from foretrace.graph.findings import LACKING as LACKING
    from foretrace.graph.findings import LOST_KERNELS as LOST_KERNELS
    from foretrace.graph.findings import LOST_LAUNCHES as LOST_LAUNCHES
    from foretrace.graph.findings import LOST_WORK as LOST_WORK
    from foretrace.graph.graph import EdgeConstant as EdgeConstant
    from foretrace.graph.graph import ExecutionGraph as ExecutionGraph
    from foretrace.graph.graph import Finding as Finding
    from foretrace.graph.graph import Lane as Lane
    from foretrace.graph.graph import Timeline as Timeline
    from foretrace.graph.inflation import ALONE_SHARE as ALONE_SHARE
    from foretrace.graph.inflation import LEAST_BESIDE as LEAST_BESIDE
    from foretrace.graph.inflation import MOSTLY_BESIDE as MOSTLY_BESIDE
    from foretrace.graph.inflation import beside_communication as beside_communication
    from foretrace.graph.inflation import medians_alone as medians_alone
    from foretrace.graph.inflation import operator_classes as operator_classes
    from foretrace.graph.inflation import weight_layers as weight_layers
    from foretrace.graph.inspection import Inspection as Inspection
    from foretrace.graph.link import NO_EVENT as NO_EVENT
    from foretrace.graph.link import Link as Link
    from foretrace.graph.link import LinkMethod as LinkMethod
    from foretrace.graph.link import Links as Links
    from foretrace.graph.link import link as link
    from foretrace.graph.link import links_of as links_of
    from foretrace.graph.nodes import DEVICE_KINDS as DEVICE_KINDS
    from foretrace.graph.nodes import HOST_KINDS as HOST_KINDS
    from foretrace.graph.nodes import NO_COLLECTIVE as NO_COLLECTIVE
    from foretrace.graph.nodes import NO_LANE as NO_LANE
    from foretrace.graph.nodes import NO_LAYER as NO_LAYER
    from foretrace.graph.nodes import NO_MICROBATCH as NO_MICROBATCH
    from foretrace.graph.nodes import NO_NODE as NO_NODE
    from foretrace.graph.nodes import NO_STEP as NO_STEP
    from foretrace.graph.nodes import NODE_COLUMNS as NODE_COLUMNS
    from foretrace.graph.nodes import WHOLE as WHOLE
    from foretrace.graph.nodes import Collective as Collective
    from foretrace.graph.nodes import Collectives as Collectives
    from foretrace.graph.nodes import EdgeKind as EdgeKind
    from foretrace.graph.nodes import NodeKind as NodeKind
    from foretrace.graph.nodes import Part as Part
    from foretrace.graph.nodes import Phase as Phase
    from foretrace.graph.nodes import block_words as block_words
    from foretrace.graph.operations import DEVICE_WORK as DEVICE_WORK
    from foretrace.graph.operations import UNRECORDED as UNRECORDED
    from foretrace.graph.operations import NamePool as NamePool
    from foretrace.graph.recording import MEASURED as MEASURED
    from foretrace.graph.recording import RECORDING as RECORDING
    from foretrace.graph.recording import REPLAYED as REPLAYED
    from foretrace.graph.recording import SIMULATED as SIMULATED
    from foretrace.graph.recording import Begun as Begun
    from foretrace.graph.recording import ChakraOrigin as ChakraOrigin
    from foretrace.graph.recording import Clock as Clock
    from foretrace.graph.recording import Ending as Ending
    from foretrace.graph.recording import HasRecording as HasRecording
    from foretrace.graph.recording import HasTimeline as HasTimeline
    from foretrace.graph.recording import MemoryEvents as MemoryEvents
    from foretrace.graph.recording import Recording as Recording
    from foretrace.graph.recording import Run as Run
    from foretrace.graph.recording import Unmatched as Unmatched
    from foretrace.graph.recording import measured_of as measured_of
    from foretrace.graph.recording import recording_of as recording_of
    from foretrace.graph.recording import replayed_of as replayed_of
    from foretrace.graph.spec import verify as verify
    from foretrace.graph.stated_names import StatedNames as StatedNames
    from foretrace.graph.stated_names import read_names as read_names
    from foretrace.graph.stated_names import with_stated_names as with_stated_names

lazily(__name__)
