"""`recommender_footprint`: bytes that the fullest rank of a recommender holds.

Tables and what their optimizer keeps are divided as the plan says; rows are updated in place, so
tables have no gradients unless every rank holds them. Networks are on every rank, and so is what
autograd keeps of a batch.
"""

from __future__ import annotations

from foretrace.base import known_format
from foretrace.workload.footprint.footprint import Footprint, StageFootprint
from foretrace.workload.models.parameters import parameters
from foretrace.workload.models.parts import TABLES
from foretrace.workload.models.recommender import Interaction, Recommender
from foretrace.workload.plan.plan import Plan
from foretrace.workload.sharding.placed import STATE_BYTES, PlacedTables
from foretrace.workload.sharding.placement import tables_of_plan
from foretrace.workload.sharding.tables import MemoryTier, TableOptimizer
from foretrace.workload.sharding.traffic import data_parallel_gradients, traffic

_NOTES = (
    "not counted: the CUDA context, buffers of NCCL, the loss, and the next batch's dense part",
    "parameters are tables and networks; rows are updated without gradients of their own",
)


def recommender_footprint(
    model: Recommender, plan: Plan, *, capacity: int | None = None
) -> Footprint:
    """Bytes of the rank whose tables take most.

    Args:
        model: tables and networks.
        plan: a legal plan for it.
        capacity: usable bytes of one chip.

    Raises:
        WorkloadError: if the tables do not fit the plan.
    """
    placed = tables_of_plan(model, plan)
    found = parameters(model)
    dense = found.total - found.of(TABLES).total
    own = data_parallel_gradients(placed)
    precision, optimizer = plan.precision, placed.sharding.optimizer
    tables = _table_bytes(placed)
    states = 0 if optimizer is TableOptimizer.SGD else dense * STATE_BYTES
    kept = plan.micro_batch * kept_numbers(model)
    rank = placed.bytes_by_rank.index(max(placed.bytes_by_rank))
    ids = sum(placed.lookups(one, plan.micro_batch) for one in placed.shards if one.rank == rank)
    stage = StageFootprint(
        stage=0,
        parameters=tables + round(dense * known_format(precision.parameters).num_bytes),
        gradients=round((dense + own) * known_format(precision.gradients).num_bytes),
        optimizer=max(placed.bytes_by_rank) - tables + states,
        activations=round(kept * known_format(precision.activations).num_bytes)
        + round(ids * placed.sharding.id_bytes),
        buffers=_buffer_bytes(placed, plan, dense),
        context=0,
        num_in_flight=1.0,
        peak_unit=0,
    )
    return Footprint(stages=(stage,), capacity=capacity, notes=_NOTES)


def kept_numbers(model: Recommender) -> int:
    """Numbers that autograd keeps of one sample: inputs of products, results of ReLU.

    What one operator leaves and the next one needs is kept once.
    """
    vectors = (model.num_tables + 1) * model.size
    width = model.interaction_width
    kept = model.num_dense + sum(model.bottom) + vectors + sum(model.top[:-1])
    if model.interaction is Interaction.DOT:
        return kept + width
    if model.interaction is Interaction.CROSS:
        # Of a layer what comes out, what its input is multiplied by, and the narrow product.
        return kept + model.num_cross_layers * (2 * width + model.cross_rank)
    return kept


def _table_bytes(placed: PlacedTables) -> int:
    """Of the fullest rank's tables in HBM, without their optimizer."""
    totals = placed.bytes_by_rank
    fullest = totals.index(max(totals))
    numbers = sum(
        one.num_rows * one.num_columns * (1 if one.tier is MemoryTier.HBM else one.cached)
        for one in placed.shards
        if one.rank == fullest
    )
    return round(numbers * known_format(placed.sharding.number_format).num_bytes)


def _buffer_bytes(placed: PlacedTables, plan: Plan, dense: int) -> int:
    """Buckets of dense gradients, and vectors as they are sent and as they arrive."""
    if plan.data == 1:
        return 0
    vectors = 0
    for one in traffic(placed, plan.micro_batch):
        for numbers in (one.pooled, one.reduced):
            if numbers is not None:
                vectors += max(numbers.sent) + max(numbers.received)
    number_bytes = known_format(placed.sharding.number_format).num_bytes
    return round(dense * known_format(plan.precision.reduced).num_bytes + vectors * number_bytes)
