"""Floor 2: number formats, deviations, faults and their checks; needs PyTorch where it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foretrace.base import lazily

if TYPE_CHECKING:
    from foretrace.numerics.agreement import Agreement as Agreement
    from foretrace.numerics.agreement import format_agreement as format_agreement
    from foretrace.numerics.alarms import Alarm as Alarm
    from foretrace.numerics.biased_rounding import RoundingBiases as RoundingBiases
    from foretrace.numerics.biased_rounding import rounding_bias as rounding_bias
    from foretrace.numerics.blocks import BlockFormat as BlockFormat
    from foretrace.numerics.blocks import block_format as block_format
    from foretrace.numerics.blocks import block_rounded as block_rounded
    from foretrace.numerics.checks import checked_attention as checked_attention
    from foretrace.numerics.checks import checked_int8_product as checked_int8_product
    from foretrace.numerics.checks import checked_int8_weight as checked_int8_weight
    from foretrace.numerics.deviation import Deviations as Deviations
    from foretrace.numerics.deviation import deviate as deviate
    from foretrace.numerics.difference import CheckpointDifference as CheckpointDifference
    from foretrace.numerics.difference import checkpoint_difference as checkpoint_difference
    from foretrace.numerics.distances import wasserstein_distance as wasserstein_distance
    from foretrace.numerics.faults import FaultKind as FaultKind
    from foretrace.numerics.formats import FLOAT_FORMATS as FLOAT_FORMATS
    from foretrace.numerics.formats import FloatFormat as FloatFormat
    from foretrace.numerics.formats import Rounding as Rounding
    from foretrace.numerics.formats import float_format as float_format
    from foretrace.numerics.formats import rounded as rounded
    from foretrace.numerics.monitor import Observation as Observation
    from foretrace.numerics.monitor import OptimizerMonitor as OptimizerMonitor
    from foretrace.numerics.pairs import OPERATOR_PAIRS as OPERATOR_PAIRS
    from foretrace.numerics.pairs import OperatorPair as OperatorPair
    from foretrace.numerics.pairs import pair_of as pair_of
    from foretrace.numerics.probe import TrainingProbe as TrainingProbe
    from foretrace.numerics.probe import probe as probe
    from foretrace.numerics.products import TENSOR_CORES as TENSOR_CORES
    from foretrace.numerics.products import Accumulator as Accumulator
    from foretrace.numerics.products import emulated_product as emulated_product
    from foretrace.numerics.protection import CorruptionFound as CorruptionFound
    from foretrace.numerics.protection import measured_overhead as measured_overhead
    from foretrace.numerics.protection import protect as protect
    from foretrace.numerics.vulnerability import FaultSampling as FaultSampling
    from foretrace.numerics.vulnerability import FaultSettings as FaultSettings
    from foretrace.numerics.vulnerability import FaultTarget as FaultTarget
    from foretrace.numerics.vulnerability import fault_campaign as fault_campaign
    from foretrace.numerics.vulnerability import small_campaign as small_campaign
    from foretrace.numerics.vulnerable import Vulnerability as Vulnerability
    from foretrace.numerics.watch import WatchedRun as WatchedRun
    from foretrace.numerics.watch import logs_beside as logs_beside
    from foretrace.numerics.watch import watch as watch
    from foretrace.numerics.watch import watched as watched

lazily(__name__)
