"""Floor 4: a question maps a timeline to a table; measured and simulated alike."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.analyze.activity import Activity as Activity
    from foretrace.analyze.activity import Participations as Participations
    from foretrace.analyze.activity import activity_by_rank as activity_by_rank
    from foretrace.analyze.activity import is_compute as is_compute
    from foretrace.analyze.activity import participations as participations
    from foretrace.analyze.advice import Help as Help
    from foretrace.analyze.advice import WhatHelps as WhatHelps
    from foretrace.analyze.advice import what_helps as what_helps
    from foretrace.analyze.attention import AttentionProfile as AttentionProfile
    from foretrace.analyze.attention import attention_profile as attention_profile
    from foretrace.analyze.attributes import Field as Field
    from foretrace.analyze.breakdown import COMPONENTS as COMPONENTS
    from foretrace.analyze.breakdown import Breakdown as Breakdown
    from foretrace.analyze.breakdown import Parts as Parts
    from foretrace.analyze.breakdown import RankBreakdown as RankBreakdown
    from foretrace.analyze.breakdown import breakdown as breakdown
    from foretrace.analyze.busy import BIN_NS as BIN_NS
    from foretrace.analyze.busy import BusyFraction as BusyFraction
    from foretrace.analyze.busy import busy_fraction as busy_fraction
    from foretrace.analyze.calls import CallKind as CallKind
    from foretrace.analyze.calls import Calls as Calls
    from foretrace.analyze.calls import calls_of as calls_of
    from foretrace.analyze.calls import step_of as step_of
    from foretrace.analyze.changes import Change as Change
    from foretrace.analyze.changes import Condition as Condition
    from foretrace.analyze.changes import read_change as read_change
    from foretrace.analyze.collectives import CollectiveTable as CollectiveTable
    from foretrace.analyze.collectives import RankCollectives as RankCollectives
    from foretrace.analyze.collectives import collective_times as collective_times
    from foretrace.analyze.compare import CONFIDENCE as CONFIDENCE
    from foretrace.analyze.compare import compare as compare
    from foretrace.analyze.comparison.results import Comparison as Comparison
    from foretrace.analyze.comparison.results import Contribution as Contribution
    from foretrace.analyze.comparison.results import Noise as Noise
    from foretrace.analyze.comparison.results import RankChange as RankChange
    from foretrace.analyze.comparison.results import RankTime as RankTime
    from foretrace.analyze.comparison.results import Reason as Reason
    from foretrace.analyze.comparison.results import Verdict as Verdict
    from foretrace.analyze.comparison.views import shapes_text as shapes_text
    from foretrace.analyze.critical_path import NO_BLOCK as NO_BLOCK
    from foretrace.analyze.critical_path import NO_RANK as NO_RANK
    from foretrace.analyze.critical_path import UNEXPLAINED as UNEXPLAINED
    from foretrace.analyze.critical_path import CriticalPath as CriticalPath
    from foretrace.analyze.critical_path import PathShare as PathShare
    from foretrace.analyze.critical_path import PieceKind as PieceKind
    from foretrace.analyze.critical_path import block_label as block_label
    from foretrace.analyze.critical_path import block_name as block_name
    from foretrace.analyze.critical_path import critical_path as critical_path
    from foretrace.analyze.diagnosis import ALL_RANKS as ALL_RANKS
    from foretrace.analyze.diagnosis import Cause as Cause
    from foretrace.analyze.diagnosis import diagnosis as diagnosis
    from foretrace.analyze.effects import Effect as Effect
    from foretrace.analyze.effects import effect as effect
    from foretrace.analyze.exposed import ExposedRow as ExposedRow
    from foretrace.analyze.exposed import ExposedTransfers as ExposedTransfers
    from foretrace.analyze.exposed import exposed_transfers as exposed_transfers
    from foretrace.analyze.hangs import Hang as Hang
    from foretrace.analyze.hangs import LastSeen as LastSeen
    from foretrace.analyze.hangs import Stuck as Stuck
    from foretrace.analyze.hangs import hang as hang
    from foretrace.analyze.idle import UNRECORDED_RANK as UNRECORDED_RANK
    from foretrace.analyze.idle import IdleCause as IdleCause
    from foretrace.analyze.idle import IdleCauses as IdleCauses
    from foretrace.analyze.idle import IdleRow as IdleRow
    from foretrace.analyze.idle import Stillness as Stillness
    from foretrace.analyze.idle import idle as idle
    from foretrace.analyze.intervals import Intervals as Intervals
    from foretrace.analyze.labels import NodeLabels as NodeLabels
    from foretrace.analyze.labels import class_labels as class_labels
    from foretrace.analyze.levers import LeverKind as LeverKind
    from foretrace.analyze.memory import Holder as Holder
    from foretrace.analyze.memory import MemoryCurve as MemoryCurve
    from foretrace.analyze.memory import MemoryPlace as MemoryPlace
    from foretrace.analyze.memory import MemoryUse as MemoryUse
    from foretrace.analyze.memory import Moment as Moment
    from foretrace.analyze.memory import memory as memory
    from foretrace.analyze.memory import snapshot_memory as snapshot_memory
    from foretrace.analyze.operators import COMMUNICATION as COMMUNICATION
    from foretrace.analyze.operators import WAITING as WAITING
    from foretrace.analyze.operators import By as By
    from foretrace.analyze.operators import OperatorRow as OperatorRow
    from foretrace.analyze.operators import OperatorTable as OperatorTable
    from foretrace.analyze.operators import Unrecognised as Unrecognised
    from foretrace.analyze.operators import operators as operators
    from foretrace.analyze.options import step_name as step_name
    from foretrace.analyze.path import path_time_ns as path_time_ns
    from foretrace.analyze.roofline import Roofline as Roofline
    from foretrace.analyze.roofline import RooflinePoint as RooflinePoint
    from foretrace.analyze.roofline import chip_of as chip_of
    from foretrace.analyze.roofline import roofline as roofline
    from foretrace.analyze.sensitivity import FASTER as FASTER
    from foretrace.analyze.sensitivity import Sensitivity as Sensitivity
    from foretrace.analyze.sensitivity import SensitivityRow as SensitivityRow
    from foretrace.analyze.sensitivity import sensitivity as sensitivity
    from foretrace.analyze.slack import slack_ns as slack_ns
    from foretrace.analyze.spans import StepSpan as StepSpan
    from foretrace.analyze.spans import step_span as step_span
    from foretrace.analyze.steps import StepTable as StepTable
    from foretrace.analyze.steps import steps as steps
    from foretrace.analyze.stragglers import GroupBlame as GroupBlame
    from foretrace.analyze.stragglers import Late as Late
    from foretrace.analyze.stragglers import RankBlame as RankBlame
    from foretrace.analyze.stragglers import Stragglers as Stragglers
    from foretrace.analyze.stragglers import stragglers as stragglers
    from foretrace.analyze.windows import Windows as Windows
    from foretrace.analyze.windows import step_time_ns as step_time_ns
    from foretrace.analyze.windows import windows as windows

lazily(__name__)
