"""Floor 4: signatures become durations, each with its source and its uncertainty."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.cost.attention import AttentionShapes as AttentionShapes
    from foretrace.cost.attention import attention_ns as attention_ns
    from foretrace.cost.bandwidth_only import BandwidthOnly as BandwidthOnly
    from foretrace.cost.baselines import linear_ns as linear_ns
    from foretrace.cost.baselines import roofline_ns as roofline_ns
    from foretrace.cost.calibration import calibrated as calibrated
    from foretrace.cost.choosing import Chosen as Chosen
    from foretrace.cost.choosing import chosen_fit as chosen_fit
    from foretrace.cost.constants import ELSEWHERE as ELSEWHERE
    from foretrace.cost.constants import RECORDINGS as RECORDINGS
    from foretrace.cost.constants import Constants as Constants
    from foretrace.cost.constants import Fit as Fit
    from foretrace.cost.constants import LeftOut as LeftOut
    from foretrace.cost.constants import Spread as Spread
    from foretrace.cost.constants import constants_for as constants_for
    from foretrace.cost.constants import joined as joined
    from foretrace.cost.constants import read_constants as read_constants
    from foretrace.cost.constants import shipped_collectives as shipped_collectives
    from foretrace.cost.constants import shipped_constants as shipped_constants
    from foretrace.cost.constants import write_constants as write_constants
    from foretrace.cost.decode import DecodeShapes as DecodeShapes
    from foretrace.cost.errors import REGIONS as REGIONS
    from foretrace.cost.errors import Errors as Errors
    from foretrace.cost.errors import Predictions as Predictions
    from foretrace.cost.expert_exchange import ExchangeShapes as ExchangeShapes
    from foretrace.cost.experts import ExpertShapes as ExpertShapes
    from foretrace.cost.experts import power_law_rows as power_law_rows
    from foretrace.cost.gemm import GemmShapes as GemmShapes
    from foretrace.cost.gemm import gemm_ns as gemm_ns
    from foretrace.cost.gemm import without_quantising as without_quantising
    from foretrace.cost.in_steps import FittedCosts as FittedCosts
    from foretrace.cost.in_steps import Slower as Slower
    from foretrace.cost.in_steps import power_factor as power_factor
    from foretrace.cost.in_steps import step_costs as step_costs
    from foretrace.cost.in_steps import under_lasting_load as under_lasting_load
    from foretrace.cost.inflation import PUBLISHED_MOST as PUBLISHED_MOST
    from foretrace.cost.inflation import Inflation as Inflation
    from foretrace.cost.inflation import inflated as inflated
    from foretrace.cost.inflation import measured_inflation as measured_inflation
    from foretrace.cost.inflation import slowed_throughout as slowed_throughout
    from foretrace.cost.kernels import FittedKernels as FittedKernels
    from foretrace.cost.kernels import spread_ends as spread_ends
    from foretrace.cost.measured import Measured as Measured
    from foretrace.cost.memory_bound import Access as Access
    from foretrace.cost.memory_bound import Movements as Movements
    from foretrace.cost.memory_bound import movement_ns as movement_ns
    from foretrace.cost.model import NO_TEXT as NO_TEXT
    from foretrace.cost.model import CollectiveRequests as CollectiveRequests
    from foretrace.cost.model import CostModel as CostModel
    from foretrace.cost.model import Costs as Costs
    from foretrace.cost.model import KernelRequests as KernelRequests
    from foretrace.cost.model import Source as Source
    from foretrace.cost.network import CollectiveLoads as CollectiveLoads
    from foretrace.cost.network import MessagesOfTier as MessagesOfTier
    from foretrace.cost.network import by_trees as by_trees
    from foretrace.cost.network import calibrated_collectives as calibrated_collectives
    from foretrace.cost.network import collective_costs as collective_costs
    from foretrace.cost.network import collective_errors as collective_errors
    from foretrace.cost.network import collective_loads as collective_loads
    from foretrace.cost.network import collective_named as collective_named
    from foretrace.cost.network import even_total as even_total
    from foretrace.cost.network import messages_with_jitter as messages_with_jitter
    from foretrace.cost.of_graph import STATED as STATED
    from foretrace.cost.of_graph import graph_costs as graph_costs
    from foretrace.cost.of_graph import node_operations as node_operations
    from foretrace.cost.of_graph import transfer_ns as transfer_ns
    from foretrace.cost.of_recording import MeasuredTransfer as MeasuredTransfer
    from foretrace.cost.of_recording import RecordedCosts as RecordedCosts
    from foretrace.cost.of_recording import TransferLines as TransferLines
    from foretrace.cost.of_recording import costs_of_recording as costs_of_recording
    from foretrace.cost.of_recording import fitted_transfers as fitted_transfers
    from foretrace.cost.operand_formats import format_of_both as format_of_both
    from foretrace.cost.operand_formats import operand_formats as operand_formats
    from foretrace.cost.operations import measured_operations as measured_operations
    from foretrace.cost.predicting import fitted_model as fitted_model
    from foretrace.cost.predicting import model_ns as model_ns
    from foretrace.cost.predicting import shapes_of as shapes_of
    from foretrace.cost.remembered import Remembered as Remembered
    from foretrace.cost.scaling import scaled as scaled
    from foretrace.cost.signatures import ATTENTION as ATTENTION
    from foretrace.cost.signatures import GEMM as GEMM
    from foretrace.cost.signatures import MOVEMENT as MOVEMENT
    from foretrace.cost.signatures import Operation as Operation
    from foretrace.cost.signatures import operation_of as operation_of
    from foretrace.cost.sources import source_parts as source_parts
    from foretrace.cost.substitutes import AddedOperator as AddedOperator
    from foretrace.cost.substitutes import ContractionStep as ContractionStep
    from foretrace.cost.substitutes import FastScheme as FastScheme
    from foretrace.cost.substitutes import Offer as Offer
    from foretrace.cost.substitutes import Substituted as Substituted
    from foretrace.cost.substitutes import SubstitutionRule as SubstitutionRule
    from foretrace.cost.substitutes import contraction_steps as contraction_steps
    from foretrace.cost.substitutes import described_costs as described_costs
    from foretrace.cost.substitutes import factors_of as factors_of
    from foretrace.cost.substitutes import offers_of as offers_of
    from foretrace.cost.substitutes import rule_named as rule_named
    from foretrace.cost.substitutes import substitution_rules as substitution_rules
    from foretrace.cost.table_fits import table_factors as table_factors
    from foretrace.cost.tables import read_tables as read_tables

lazily(__name__)
