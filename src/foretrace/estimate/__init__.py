"""Floor 6: a model, a plan and a machine become a step that has not been run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.estimate.compose import EstimateOptions as EstimateOptions
    from foretrace.estimate.compose import estimate as estimate
    from foretrace.estimate.compose import estimate_draft as estimate_draft
    from foretrace.estimate.compose import ranks_meant as ranks_meant
    from foretrace.estimate.compose import software_costs as software_costs
    from foretrace.estimate.compose import unmodelled_of as unmodelled_of
    from foretrace.estimate.compose import with_nearest as with_nearest
    from foretrace.estimate.estimate import Alternative as Alternative
    from foretrace.estimate.estimate import Assumed as Assumed
    from foretrace.estimate.estimate import Estimate as Estimate
    from foretrace.estimate.interval import NOT_MODELLED as NOT_MODELLED
    from foretrace.estimate.interval import UNKNOWN_HOST as UNKNOWN_HOST
    from foretrace.estimate.interval import UNMODELLED as UNMODELLED
    from foretrace.estimate.interval import FamilySpread as FamilySpread
    from foretrace.estimate.interval import Interval as Interval
    from foretrace.estimate.interval import SimulatedStep as SimulatedStep
    from foretrace.estimate.interval import interval as interval
    from foretrace.estimate.link_traffic import StepTraffic as StepTraffic
    from foretrace.estimate.link_traffic import sharing_of as sharing_of
    from foretrace.estimate.link_traffic import step_traffic as step_traffic
    from foretrace.estimate.nearest import NearestPlan as NearestPlan
    from foretrace.estimate.nearest import PlanChange as PlanChange
    from foretrace.estimate.nearest import nearest_plans as nearest_plans
    from foretrace.estimate.packed_steps import document_mix as document_mix
    from foretrace.estimate.packed_steps import drawn_mix as drawn_mix
    from foretrace.estimate.packed_steps import packings as packings
    from foretrace.estimate.packings import DocumentMix as DocumentMix
    from foretrace.estimate.packings import Packing as Packing
    from foretrace.estimate.packings import Packings as Packings
    from foretrace.estimate.parts import certainty_lead as certainty_lead
    from foretrace.estimate.parts import certainty_parts as certainty_parts
    from foretrace.estimate.parts import memory_lead as memory_lead
    from foretrace.estimate.parts import memory_parts as memory_parts
    from foretrace.estimate.parts import plan_parts as plan_parts
    from foretrace.estimate.parts import step_parts as step_parts
    from foretrace.estimate.shared_links import DegradedLink as DegradedLink
    from foretrace.estimate.shared_links import LinkUse as LinkUse
    from foretrace.estimate.shared_links import SharedLinks as SharedLinks
    from foretrace.estimate.shared_links import shared_links as shared_links
    from foretrace.estimate.step_time import OF_KNOWLEDGE as OF_KNOWLEDGE
    from foretrace.estimate.step_time import UnitRun as UnitRun
    from foretrace.estimate.step_time import UnitTiming as UnitTiming
    from foretrace.estimate.step_time import on_host as on_host
    from foretrace.estimate.step_time import run_units as run_units
    from foretrace.estimate.step_time import simulated_step as simulated_step
    from foretrace.estimate.step_time import step_of_costs as step_of_costs
    from foretrace.estimate.step_time import unit_programs as unit_programs
    from foretrace.estimate.step_time import unit_step as unit_step
    from foretrace.estimate.step_time import unmodelled_width as unmodelled_width
    from foretrace.estimate.uneven import Follows as Follows
    from foretrace.estimate.uneven import UnevenStep as UnevenStep
    from foretrace.estimate.uneven import expert_mixes as expert_mixes
    from foretrace.estimate.uneven import expert_work as expert_work
    from foretrace.estimate.uneven import loaded_plan as loaded_plan
    from foretrace.estimate.uneven import routing_of as routing_of
    from foretrace.estimate.uneven import uneven_step as uneven_step
    from foretrace.estimate.where import RankParts as RankParts
    from foretrace.estimate.where import StepParts as StepParts
    from foretrace.estimate.where import Where as Where
    from foretrace.estimate.where import where as where
    from foretrace.estimate.words import figures as figures
    from foretrace.estimate.words import subject_text as subject_text

lazily(__name__)
