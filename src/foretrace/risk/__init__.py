"""Floor 8: numbers with their odds: distributions of step times, failures, effective time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.risk.campaign.campaign import Campaign as Campaign
    from foretrace.risk.campaign.campaign import Checkpoint as Checkpoint
    from foretrace.risk.campaign.campaign import Corruption as Corruption
    from foretrace.risk.campaign.campaign import Fleet as Fleet
    from foretrace.risk.campaign.campaign import Preemption as Preemption
    from foretrace.risk.campaign.campaign import Replicas as Replicas
    from foretrace.risk.campaign.campaign import WhileDown as WhileDown
    from foretrace.risk.campaign.campaign import check_campaign as check_campaign
    from foretrace.risk.campaign.catalogue import campaign_names as campaign_names
    from foretrace.risk.campaign.catalogue import duration_ns as duration_ns
    from foretrace.risk.campaign.catalogue import load_campaign as load_campaign
    from foretrace.risk.campaign.catalogue import with_best_interval as with_best_interval
    from foretrace.risk.campaign.closed_form import best_interval_ns as best_interval_ns
    from foretrace.risk.campaign.closed_form import linear_ettr as linear_ettr
    from foretrace.risk.campaign.closed_form import linear_holds as linear_holds
    from foretrace.risk.campaign.closed_form import linear_loss as linear_loss
    from foretrace.risk.campaign.closed_form import longest_restart_ns as longest_restart_ns
    from foretrace.risk.campaign.closed_form import queued_ettr as queued_ettr
    from foretrace.risk.campaign.closed_form import recovery_ns as recovery_ns
    from foretrace.risk.campaign.closed_form import renewal_ettr as renewal_ettr
    from foretrace.risk.campaign.closed_form import replicas_ettr as replicas_ettr
    from foretrace.risk.campaign.closed_form import searched_interval_ns as searched_interval_ns
    from foretrace.risk.campaign.closed_form import with_hosts as with_hosts
    from foretrace.risk.campaign.closed_form import with_interval as with_interval
    from foretrace.risk.campaign.corruption import OBSERVED_PER_HOST_DAY as OBSERVED_PER_HOST_DAY
    from foretrace.risk.campaign.corruption import CheckedStep as CheckedStep
    from foretrace.risk.campaign.corruption import OperatorCheck as OperatorCheck
    from foretrace.risk.campaign.corruption import SilentCorruption as SilentCorruption
    from foretrace.risk.campaign.corruption import checked_step as checked_step
    from foretrace.risk.campaign.corruption import silent_corruption as silent_corruption
    from foretrace.risk.campaign.ettr import CampaignSweep as CampaignSweep
    from foretrace.risk.campaign.ettr import Ettr as Ettr
    from foretrace.risk.campaign.ettr import by_interval as by_interval
    from foretrace.risk.campaign.ettr import by_scale as by_scale
    from foretrace.risk.campaign.ettr import ettr as ettr
    from foretrace.risk.campaign.outcome import Account as Account
    from foretrace.risk.campaign.outcome import Outcome as Outcome
    from foretrace.risk.campaign.planning import ReplicaSize as ReplicaSize
    from foretrace.risk.campaign.planning import ReplicaSizes as ReplicaSizes
    from foretrace.risk.campaign.planning import TrainingTime as TrainingTime
    from foretrace.risk.campaign.planning import replica_sizes as replica_sizes
    from foretrace.risk.campaign.planning import training_time as training_time
    from foretrace.risk.campaign.schemes import Scheme as Scheme
    from foretrace.risk.campaign.schemes import SchemeComparison as SchemeComparison
    from foretrace.risk.campaign.schemes import SchemeResult as SchemeResult
    from foretrace.risk.campaign.schemes import compare_schemes as compare_schemes
    from foretrace.risk.campaign.schemes import with_scheme as with_scheme
    from foretrace.risk.campaign.simulate import simulate_campaign as simulate_campaign
    from foretrace.risk.failures.catalogue import FailureLog as FailureLog
    from foretrace.risk.failures.catalogue import HostFailures as HostFailures
    from foretrace.risk.failures.catalogue import all_failures as all_failures
    from foretrace.risk.failures.catalogue import failure_names as failure_names
    from foretrace.risk.failures.catalogue import failures_toml as failures_toml
    from foretrace.risk.failures.catalogue import load_failures as load_failures
    from foretrace.risk.failures.catalogue import read_failure_log as read_failure_log
    from foretrace.risk.failures.rates import Component as Component
    from foretrace.risk.failures.rates import FailureList as FailureList
    from foretrace.risk.failures.rates import FailureRates as FailureRates
    from foretrace.risk.failures.rates import mttf_ns as mttf_ns
    from foretrace.risk.failures.rates import rate_interval as rate_interval
    from foretrace.risk.steps.distribution import Quantile as Quantile
    from foretrace.risk.steps.distribution import Scale as Scale
    from foretrace.risk.steps.distribution import Shares as Shares
    from foretrace.risk.steps.distribution import StepDistribution as StepDistribution
    from foretrace.risk.steps.distribution import TrainingSpan as TrainingSpan
    from foretrace.risk.steps.distribution import VarianceShare as VarianceShare
    from foretrace.risk.steps.fit import FittedModels as FittedModels
    from foretrace.risk.steps.fit import fit_models as fit_models
    from foretrace.risk.steps.models import DEFAULT_VARIATION as DEFAULT_VARIATION
    from foretrace.risk.steps.models import NO_VARIATION as NO_VARIATION
    from foretrace.risk.steps.models import VARIATIONS as VARIATIONS
    from foretrace.risk.steps.models import DurationModel as DurationModel
    from foretrace.risk.steps.models import Family as Family
    from foretrace.risk.steps.models import Variation as Variation
    from foretrace.risk.steps.models import changed_variation as changed_variation
    from foretrace.risk.steps.models import distance_between as distance_between
    from foretrace.risk.steps.models import fitted_model as fitted_model
    from foretrace.risk.steps.models import stated_model as stated_model
    from foretrace.risk.steps.models import variation_named as variation_named
    from foretrace.risk.steps.placement import PlacementRow as PlacementRow
    from foretrace.risk.steps.placement import SlowPlaces as SlowPlaces
    from foretrace.risk.steps.placement import estimated_placement as estimated_placement
    from foretrace.risk.steps.placement import recorded_placement as recorded_placement
    from foretrace.risk.steps.sample import SampledCell as SampledCell
    from foretrace.risk.steps.sample import Sampling as Sampling
    from foretrace.risk.steps.sample import cell_of as cell_of
    from foretrace.risk.steps.sample import estimated_steps as estimated_steps
    from foretrace.risk.steps.sample import recorded_steps as recorded_steps

lazily(__name__)
