"""Floor 8: predictions held against what was measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.validate.cost import CostErrors as CostErrors
    from foretrace.validate.cost import CostPoints as CostPoints
    from foretrace.validate.cost import cost_errors as cost_errors
    from foretrace.validate.cost import cost_points as cost_points
    from foretrace.validate.cost import left_out_errors as left_out_errors
    from foretrace.validate.kernels import CallTimes as CallTimes
    from foretrace.validate.kernels import call_times as call_times
    from foretrace.validate.kernels import measured_calls as measured_calls
    from foretrace.validate.ledger import KeptKind as KeptKind
    from foretrace.validate.ledger import KeptPrediction as KeptPrediction
    from foretrace.validate.ledger import Ledger as Ledger
    from foretrace.validate.ledger import kept as kept
    from foretrace.validate.ledger import read_ledger as read_ledger
    from foretrace.validate.ledger import write_ledger as write_ledger
    from foretrace.validate.live.configurations import BASE as BASE
    from foretrace.validate.live.configurations import CONFIGURATIONS as CONFIGURATIONS
    from foretrace.validate.live.configurations import Configuration as Configuration
    from foretrace.validate.live.measure import measure_live as measure_live
    from foretrace.validate.live.report import live_report as live_report
    from foretrace.validate.live.results import LiveComponent as LiveComponent
    from foretrace.validate.live.results import LiveReport as LiveReport
    from foretrace.validate.live.results import LiveRow as LiveRow
    from foretrace.validate.neighbours import DimensionErrors as DimensionErrors
    from foretrace.validate.neighbours import NeighbourPair as NeighbourPair
    from foretrace.validate.neighbours import NeighbourPrediction as NeighbourPrediction
    from foretrace.validate.neighbours import NeighboursReport as NeighboursReport
    from foretrace.validate.neighbours import neighbour_pairs as neighbour_pairs
    from foretrace.validate.neighbours import neighbours_report as neighbours_report
    from foretrace.validate.other_step import MIN_STEPS as MIN_STEPS
    from foretrace.validate.other_step import other_step_report as other_step_report
    from foretrace.validate.replay import duration_mix as duration_mix
    from foretrace.validate.replay import replay_report as replay_report
    from foretrace.validate.results import DurationMix as DurationMix
    from foretrace.validate.results import ErrorDistribution as ErrorDistribution
    from foretrace.validate.results import LinksOfReplay as LinksOfReplay
    from foretrace.validate.results import NullModel as NullModel
    from foretrace.validate.results import OtherStepReport as OtherStepReport
    from foretrace.validate.results import RankReplay as RankReplay
    from foretrace.validate.results import ReplayReport as ReplayReport
    from foretrace.validate.results import ReplaySummary as ReplaySummary
    from foretrace.validate.results import StepPrediction as StepPrediction
    from foretrace.validate.results import StepReplay as StepReplay
    from foretrace.validate.runs.calibration import calibrated as calibrated
    from foretrace.validate.runs.description import RunsDescription as RunsDescription
    from foretrace.validate.runs.description import read_description as read_description
    from foretrace.validate.runs.learning import Lesson as Lesson
    from foretrace.validate.runs.learning import lessons as lessons
    from foretrace.validate.runs.predict import predict_runs as predict_runs
    from foretrace.validate.runs.predict import runs_report as runs_report
    from foretrace.validate.runs.results import GroupError as GroupError
    from foretrace.validate.runs.results import KindError as KindError
    from foretrace.validate.runs.results import RunPrediction as RunPrediction
    from foretrace.validate.runs.results import RunsReport as RunsReport
    from foretrace.validate.runs.results import RunStatus as RunStatus
    from foretrace.validate.runs.results import by_group as by_group
    from foretrace.validate.runs.results import run_points as run_points
    from foretrace.validate.runs.table import PublishedRun as PublishedRun
    from foretrace.validate.runs.table import read_runs as read_runs
    from foretrace.validate.runs.table import undescribed_software as undescribed_software
    from foretrace.validate.runs.table import unread_columns as unread_columns
    from foretrace.validate.runs.table import unread_rows as unread_rows
    from foretrace.validate.scalings import MeasuredScaling as MeasuredScaling
    from foretrace.validate.scalings import ScalingRow as ScalingRow
    from foretrace.validate.scalings import ScalingsFigure as ScalingsFigure
    from foretrace.validate.scalings import ScalingsReport as ScalingsReport
    from foretrace.validate.scalings import StepBar as StepBar
    from foretrace.validate.scalings import read_scalings as read_scalings
    from foretrace.validate.scalings import scalings_report as scalings_report
    from foretrace.validate.verdict import ReplayVerdict as ReplayVerdict
    from foretrace.validate.verdict import Trust as Trust

lazily(__name__)
