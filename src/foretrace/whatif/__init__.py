"""Floor 7: an edit maps a scenario to a scenario; a recording under one becomes a prediction."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.whatif.arrange.arrange import arranged as arranged
    from foretrace.whatif.arrange.arrange import same_job as same_job
    from foretrace.whatif.arrange.arranged import Arranged as Arranged
    from foretrace.whatif.baseline import Baseline as Baseline
    from foretrace.whatif.baseline import base_scenario as base_scenario
    from foretrace.whatif.baseline import baseline_of as baseline_of
    from foretrace.whatif.edits import *  # noqa: F403  every edit has one name everywhere
    from foretrace.whatif.edits.edit import Edit as Edit
    from foretrace.whatif.edits.edit import Holds as Holds
    from foretrace.whatif.edits.edit import Key as Key
    from foretrace.whatif.edits.edit import WorkEdit as WorkEdit
    from foretrace.whatif.edits.stated import edit_keys as edit_keys
    from foretrace.whatif.edits.stated import edit_kinds as edit_kinds
    from foretrace.whatif.edits.stated import edits_of as edits_of
    from foretrace.whatif.edits.stated import pairs_of as pairs_of
    from foretrace.whatif.edits.stated import stated_of as stated_of
    from foretrace.whatif.of_estimate import predict_estimate as predict_estimate
    from foretrace.whatif.outcome import ARRANGED as ARRANGED
    from foretrace.whatif.outcome import ScenarioOutcome as ScenarioOutcome
    from foretrace.whatif.outcome import check_outcome as check_outcome
    from foretrace.whatif.outcome import outcome as outcome
    from foretrace.whatif.parts import cause_parts as cause_parts
    from foretrace.whatif.parts import change_parts as change_parts
    from foretrace.whatif.parts import effect_parts as effect_parts
    from foretrace.whatif.parts import ground_lead as ground_lead
    from foretrace.whatif.parts import ground_parts as ground_parts
    from foretrace.whatif.parts import memory_change_lead as memory_change_lead
    from foretrace.whatif.parts import memory_change_parts as memory_change_parts
    from foretrace.whatif.predict import predict as predict
    from foretrace.whatif.prediction import EditEffect as EditEffect
    from foretrace.whatif.prediction import Memory as Memory
    from foretrace.whatif.prediction import Prediction as Prediction
    from foretrace.whatif.recorded.program import Program as Program
    from foretrace.whatif.recorded.read import program_of as program_of
    from foretrace.whatif.remedies import PossibleChange as PossibleChange
    from foretrace.whatif.remedies import Remedies as Remedies
    from foretrace.whatif.remedies import Remedy as Remedy
    from foretrace.whatif.remedies import proposals as proposals
    from foretrace.whatif.remedies import subject_of as subject_of
    from foretrace.whatif.remedies import tried_remedies as tried_remedies
    from foretrace.whatif.resize.named import Sizes as Sizes
    from foretrace.whatif.resize.read import ReadSizes as ReadSizes
    from foretrace.whatif.resize.read import read_sizes as read_sizes
    from foretrace.whatif.scaled import ScaledStep as ScaledStep
    from foretrace.whatif.scaled import StepCurve as StepCurve
    from foretrace.whatif.scaled import scaled_along as scaled_along
    from foretrace.whatif.scaled import scaled_step as scaled_step
    from foretrace.whatif.scaled import step_curve as step_curve
    from foretrace.whatif.scenario import Scenario as Scenario
    from foretrace.whatif.substitutes import Substitutable as Substitutable
    from foretrace.whatif.substitutes import Substitutes as Substitutes
    from foretrace.whatif.substitutes import tried_substitutes as tried_substitutes
    from foretrace.whatif.summary import difference_rows as difference_rows
    from foretrace.whatif.summary import figures as figures
    from foretrace.whatif.summary import subject_text as subject_text
    from foretrace.whatif.sweep import NamedEdits as NamedEdits
    from foretrace.whatif.sweep import Order as Order
    from foretrace.whatif.sweep import Sweep as Sweep
    from foretrace.whatif.sweep import SweepRow as SweepRow
    from foretrace.whatif.sweep import read_scenarios as read_scenarios
    from foretrace.whatif.sweep import swept as swept
    from foretrace.whatif.throughput import Throughput as Throughput
    from foretrace.whatif.throughput import throughput as throughput
    from foretrace.whatif.unprofiled import Unprofiled as Unprofiled
    from foretrace.whatif.unprofiled import profiler_cost as profiler_cost
    from foretrace.whatif.unprofiled import unprofiled as unprofiled

lazily(__name__)
