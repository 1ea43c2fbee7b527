"""Floor 4: a question maps a timeline to a table; measured and simulated alike."""

from __future__ import annotations

from foretrace.analyze.activity import Activity as Activity
from foretrace.analyze.activity import Participations as Participations
from foretrace.analyze.activity import activity_by_rank as activity_by_rank
from foretrace.analyze.activity import is_compute as is_compute
from foretrace.analyze.activity import participations as participations
from foretrace.analyze.breakdown import COMPONENTS as COMPONENTS
from foretrace.analyze.breakdown import Breakdown as Breakdown
from foretrace.analyze.breakdown import Parts as Parts
from foretrace.analyze.breakdown import RankBreakdown as RankBreakdown
from foretrace.analyze.breakdown import breakdown as breakdown
from foretrace.analyze.busy import BIN_NS as BIN_NS
from foretrace.analyze.busy import BusyFraction as BusyFraction
from foretrace.analyze.busy import busy_fraction as busy_fraction
from foretrace.analyze.collectives import CollectiveTable as CollectiveTable
from foretrace.analyze.collectives import RankCollectives as RankCollectives
from foretrace.analyze.collectives import collective_times as collective_times
from foretrace.analyze.intervals import Intervals as Intervals
from foretrace.analyze.labels import NodeLabels as NodeLabels
from foretrace.analyze.labels import class_labels as class_labels
from foretrace.analyze.path import path_time_ns as path_time_ns
from foretrace.analyze.steps import StepTable as StepTable
from foretrace.analyze.steps import steps as steps
from foretrace.analyze.windows import Windows as Windows
from foretrace.analyze.windows import windows as windows
