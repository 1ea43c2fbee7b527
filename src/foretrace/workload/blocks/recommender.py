"""`blocks_of_recommender`: one rank's step of a recommendation model.

Dense networks are replicated, tables divided. As TorchRec's DLRM runs: the bottom network, then
lookups and the exchange of pooled vectors, interaction, top network and loss; backwards the
vectors' gradients are exchanged before rows are updated, and dense gradients are all-reduced in
buckets beside all of it. Everything stands in one forward and one backward block, the exchanges
and the update of dense parameters included.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretrace.base import CollectiveKind
from foretrace.graph import Part, Phase
from foretrace.workload.blocks import calls
from foretrace.workload.blocks.block import (
    ItemWriter,
    ModelBlocks,
    Operator,
    ParameterCount,
    Passes,
)
from foretrace.workload.blocks.recommender_networks import Gradient, Networks
from foretrace.workload.blocks.recommender_tables import TableWork
from foretrace.workload.blocks.signatures import num_bytes
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.plan.legality import check_plan
from foretrace.workload.plan.plan import DDP_BUCKET_BYTES, Plan
from foretrace.workload.sharding.placed import PlacedTables
from foretrace.workload.sharding.placement import tables_of_plan
from foretrace.workload.sharding.tables import TableOptimizer, TableSharding
from foretrace.workload.sharding.traffic import data_parallel_gradients

# torch/csrc/distributed/c10d/reducer.hpp, kDefaultFirstBucketBytes: small, so that the first
# reduction starts early.
FIRST_BUCKET_BYTES = 1024 * 1024
_REDUCE = "gradient bucket"
# Kernels that update one parameter where no kernel updates all: PyTorch's Adagrad, SGD.
_ADAGRAD = ("aten::addcmul", "aten::sqrt", "aten::add", "aten::addcdiv")
_SGD = ("aten::add",)


def blocks_of_recommender(
    model: Recommender,
    plan: Plan,
    tables: TableSharding | None = None,
    *,
    rank: int | None = None,
    placed: PlacedTables | None = None,
    is_alike: bool = False,
) -> ModelBlocks:
    """What one rank does in a step.

    Args:
        model: tables and networks.
        plan: data parallel; a microbatch is one rank's batch. Where tables stand on one host
            with their rows divided, `shard_ranks` says how many ranks a host has.
        tables: how these are divided; as `plan.tables` says if left out.
        rank: whose work; if left out, that of the rank with most to look up, with exchanges as
            large as the most that any rank sends or gets.
        placed: where tables stand, if that is known already.
        is_alike: all ranks have the same items, some with nothing to do.

    Raises:
        WorkloadError: if the plan is not data parallel, or the tables do not fit it.
    """
    if placed is None:
        check_plan(replace(plan, tables=tables or plan.tables or TableSharding()), model)
        placed = tables_of_plan(model, plan, tables)
    step = _Step(model, plan, placed, rank, is_alike)
    forward, backward = step.forward(), step.backward()
    passes = Passes(
        part=Part.LAYER,
        forward=forward.block(Part.LAYER),
        backward=backward.block(Part.LAYER),
        parameters=ParameterCount(),
    )
    return ModelBlocks(
        embedding=None,
        layers=(passes,),
        head=None,
        transfer_bytes=0,
        transfer_dtype=plan.precision.activations,
        notes=(
            "reductions and updates of dense parameters stand in the backward block",
            "every lookup reads its row from memory, also where several meet in one",
            "copies of the batch from the host are left out: they run ahead on their own stream",
        ),
    )


def table_operators(
    model: Recommender, plan: Plan, placed: PlacedTables, rank: int
) -> tuple[Operator, ...]:
    """Operators on tables of one rank's step, in order; those of every rank are alike in number.

    Args:
        model: tables and networks.
        plan: of the job.
        placed: where tables stand.
        rank: whose work.
    """
    step = _Step(model, plan, placed, rank, is_alike=True)
    tables, is_ahead = step.tables, placed.sharding.sends_ids_ahead
    forward, backward = ItemWriter(Phase.FORWARD), ItemWriter(Phase.BACKWARD)
    tables.send_ids(backward if is_ahead else forward)
    tables.lookup(forward)
    tables.send_gradients(backward)
    tables.update_replicated(backward)
    tables.update(backward)
    items = (*forward.written, *backward.written)
    return tuple(one for one in items if isinstance(one, Operator))


@dataclass(frozen=True)
class _Step:
    model: Recommender
    plan: Plan
    placed: PlacedTables
    rank: int | None
    is_alike: bool

    @property
    def networks(self) -> Networks:
        plan = self.plan
        return Networks(self.model, plan.micro_batch, plan.precision, is_replicated=plan.data > 1)

    @property
    def tables(self) -> TableWork:
        plan = self.plan
        return TableWork(self.placed, plan.micro_batch, self.rank, plan.precision, self.is_alike)

    def forward(self) -> ItemWriter:
        items, networks, tables = ItemWriter(Phase.FORWARD), self.networks, self.tables
        if not self.placed.sharding.sends_ids_ahead:
            tables.send_ids(items)
        networks.forward(items, "bottom")
        tables.lookup(items)
        networks.interact(items)
        networks.forward(items, "top")
        networks.loss(items)
        return items

    def backward(self) -> ItemWriter:
        items, networks, tables = ItemWriter(Phase.BACKWARD), self.networks, self.tables
        buckets = _Buckets(self.plan)
        if self.placed.sharding.sends_ids_ahead:
            tables.send_ids(items)
        networks.loss_backward(items)
        for gradient in networks.backward(items, "top", has_input=True):
            buckets.add(items, gradient)
        for gradient in networks.interact_backward(items):
            buckets.add(items, gradient)
        tables.send_gradients(items)
        own = data_parallel_gradients(self.placed)
        tables.update_replicated(items)
        if own:
            # A module of its own, so a reduction of its own: TorchRec wraps these tables apart.
            buckets.reduce(items, own, label="gradients of replicated tables")
        tables.update(items)
        for gradient in networks.backward(items, "bottom", has_input=False):
            buckets.add(items, gradient)
        buckets.close(items)
        items.wait(*buckets.waiting(items))
        self._update(items, [*buckets.sizes, *([own] if own else [])])
        return items

    def _update(self, items: ItemWriter, sizes: Sequence[int]) -> None:
        items.phase = Phase.OPTIMIZER
        dtype = self.plan.precision.gradients
        has_state = self.placed.sharding.optimizer is not TableOptimizer.SGD
        if self.plan.implementation.fuses_optimizer:
            reads, writes = (3, 2) if has_state else (2, 1)
            items.add("update", calls.fused((sum(sizes),), dtype, reads=reads, writes=writes))
            return
        for size in sizes:
            for name in _ADAGRAD if has_state else _SGD:
                reads = 3 if name.startswith("aten::addc") else 1 + (not has_state)
                items.add("update", calls.elementwise(name, (size,), dtype, reads=reads))


class _Buckets:
    """Gradients gather until there are enough of them for one reduction."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._number_bytes = num_bytes(1, plan.precision.reduced)
        self._limit = FIRST_BUCKET_BYTES
        self._gathered: list[Gradient] = []
        self._late: list[tuple[str, int]] = []
        self._positions: list[int] = []
        self.sizes: list[int] = []  # of all parameters, in numbers

    def add(self, items: ItemWriter, gradient: Gradient) -> None:
        """One more; a bucket that is full is reduced."""
        self.sizes.append(gradient.num_elements)
        self._gathered.append(gradient)
        if self._count * self._number_bytes >= self._limit:
            self.close(items)

    @property
    def _count(self) -> int:
        return sum(one.num_elements for one in self._gathered)

    def close(self, items: ItemWriter) -> None:
        """What has gathered is reduced."""
        if self._gathered:
            self.reduce(items, self._count)
            self._gathered = []
            self._limit = self._plan.bucket_bytes or DDP_BUCKET_BYTES

    def reduce(self, items: ItemWriter, numbers: int, label: str = _REDUCE) -> None:
        """One reduction, beside what follows or, if the plan wants no overlap, after all."""
        if self._plan.data == 1:
            return
        if not self._plan.overlap.gradients:
            self._late.append((label, numbers))
            return
        self._positions.append(self._exchange(items, label, numbers))

    def waiting(self, items: ItemWriter) -> tuple[int, ...]:
        """Reductions that the update must wait for; those that were put off are written now."""
        for label, numbers in self._late:
            self._positions.append(self._exchange(items, label, numbers))
        self._late = []
        return tuple(self._positions)

    def _exchange(self, items: ItemWriter, label: str, numbers: int) -> int:
        dtype = self._plan.precision.reduced
        return items.exchange(label, CollectiveKind.ALL_REDUCE, numbers=numbers, dtype=dtype)
