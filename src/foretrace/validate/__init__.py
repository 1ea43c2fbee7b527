"""Floor 5: predictions held against what was measured."""

from __future__ import annotations

from foretrace.validate.mix import duration_mix as duration_mix
from foretrace.validate.other_step import MIN_STEPS as MIN_STEPS
from foretrace.validate.other_step import other_step_report as other_step_report
from foretrace.validate.replay import replay_report as replay_report
from foretrace.validate.results import DurationMix as DurationMix
from foretrace.validate.results import ErrorDistribution as ErrorDistribution
from foretrace.validate.results import NullModel as NullModel
from foretrace.validate.results import OtherStepReport as OtherStepReport
from foretrace.validate.results import RankReplay as RankReplay
from foretrace.validate.results import ReplayReport as ReplayReport
from foretrace.validate.results import ReplaySummary as ReplaySummary
from foretrace.validate.results import StepPrediction as StepPrediction
from foretrace.validate.results import StepReplay as StepReplay
