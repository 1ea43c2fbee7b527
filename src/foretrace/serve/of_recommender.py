"""`recommender_stages`: a recommender on a host with cards: where tables lie, what batches take.

The host sends ids to the cards that hold tables. Each reads its rows and pools them. Pooled vectors
go through the PCIe switch to a card that runs the networks. Batches go one behind the other.

Source:
    Anderson et al., "First-Generation Inference Accelerator Deployment at Facebook", arXiv
    2107.04140: six low-power cards beside one host, tables divided over cards, sparse and dense
    work of different requests at the same time, int8 networks and tables of 8 and 4 bits.
    FBGEMM, fbgemm_gpu/split_table_batched_embeddings_ops_inference.py: rows of 8 and 4 bits carry a
    scale and a bias of 16 bits each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from foretrace.base import WorkloadError, known_format
from foretrace.cost import FittedKernels, operation_of
from foretrace.graph import Phase
from foretrace.machine import Chip, Machine
from foretrace.serve.attention_grids import moved_ns
from foretrace.serve.stages import ServingStage, batch_times, sizes_up_to
from foretrace.workload import (
    ItemWriter,
    Networks,
    Operator,
    PlacedTables,
    Precision,
    Recommender,
    TableOptimizer,
    TableSharding,
    place_tables,
)

_SCALES = 4.0  # bytes of a row of 8 bits or fewer: a scale and a bias
_POOLED_BYTES = 2.0  # of a pooled number on its way: fp16
_ID_BYTES, _DENSE_BYTES = 4.0, 4.0
# From the call of a host copy of less than 64 KiB to its end: the median of six on a V100.
# Source: pytorch/kineto, tb_plugin/samples/resnet50_num_workers_0.
_COPY_NS = 15_500.0
_WHOLE_ROWS = 2.0  # bytes of a number from which rows have no scale


@dataclass(frozen=True, eq=False)
class RecommenderCards:
    """Which cards hold tables, which run the networks, and the stages that follow."""

    stages: tuple[ServingStage, ...]
    placed: PlacedTables
    row_bytes: float  # of a whole row, with its scale
    dense_cards: int

    @property
    def bytes_by_card(self) -> tuple[int, ...]:
        """Of tables, scales included."""
        scales = self.row_bytes - self._numbers_bytes
        found = list(self.placed.bytes_by_rank)
        for shard in self.placed.shards:
            found[shard.rank] += round(shard.num_rows * scales)
        return tuple(found)

    @property
    def _numbers_bytes(self) -> float:
        sharding = self.placed.sharding
        return self.placed.model.size * known_format(sharding.number_format).num_bytes


def recommender_stages(
    model: Recommender,
    machine: Machine,
    *,
    most_batch: int,
    tables: TableSharding | None = None,
    table_format: str = "fp16",
    dense_format: str = "fp16",
    dense_cards: int | None = None,
) -> RecommenderCards:
    """Stages of a recommender on a host's cards.

    Args:
        model: tables and networks.
        machine: one host with its cards.
        most_batch: samples of a batch at most.
        tables: where they stand, as a search or a plan says; dealt to cards by cost, if left out.
        table_format: of their numbers: fp32, fp16, int8 or int4.
        dense_format: of the networks' products.
        dense_cards: cards that run the networks; as many as give the highest throughput, if left
            out.

    Raises:
        WorkloadError: if the tables do not fit the cards that are left.
        MachineError: if the cards' memory cannot be costed.
    """
    cards = machine.num_ranks
    if cards == 1:
        raise WorkloadError(
            f"{machine.name} has one card, and tables and networks lie on cards of their own: name "
            "a machine with more"
        )
    room = (tables and tables.capacity_bytes) or machine.chip.memory_bytes
    sharding = replace(
        tables or TableSharding(),
        optimizer=TableOptimizer.SGD,
        number_format=known_format(table_format).name,
        capacity_bytes=room,
    )
    if dense_cards is not None and not 1 <= dense_cards < cards:
        raise WorkloadError(
            f"{dense_cards} of {cards} cards cannot run the networks: expected 1 to {cards - 1}, "
            "the others hold tables"
        )
    counts = range(1, cards) if dense_cards is None else [dense_cards]
    if sharding.places and dense_cards is None:
        used = 1 + max((rank for one in sharding.places for rank in one.ranks), default=0)
        if used >= cards:
            raise WorkloadError(
                f"tables stand on {used} ranks, and {machine.name} has {cards} cards, one of which "
                "runs the networks: search for places on fewer"
            )
        counts = [cards - used]
    sizes = sizes_up_to(most_batch)
    dense_ns = [_dense_ns(model, machine.chip, size, dense_format) for size in sizes]
    found: list[RecommenderCards] = []
    refused: WorkloadError | None = None
    for count in counts:
        try:
            placed = place_tables(model, sharding, num_ranks=cards - count, batch=most_batch)
        except WorkloadError as err:
            refused = err
            continue
        one = _cards(machine, placed, sizes, dense_ns, dense_cards=count)
        if max(one.bytes_by_card) <= room:
            found.append(one)
    if not found:
        reason = f": {refused}" if refused else ", scales included"
        raise WorkloadError(
            f"the tables of {model.name} in {table_format} do not fit the cards of {machine.name}"
            f"{reason}; take a narrower format, or more cards"
        )
    return max(found, key=lambda one: min(each.rate(most_batch) for each in one.stages))


def _cards(
    machine: Machine,
    placed: PlacedTables,
    sizes: Sequence[int],
    dense_ns: Sequence[float],
    *,
    dense_cards: int,
) -> RecommenderCards:
    """Stages of one division of the cards."""
    model, chip, ranks = placed.model, machine.chip, placed.num_ranks
    tier = machine.tiers[0]
    host_rate = chip.host_bytes_per_ns or tier.bytes_per_ns
    width = known_format(placed.sharding.number_format).num_bytes
    scales = _SCALES if width < _WHOLE_ROWS else 0.0
    row_bytes = model.size * width + scales
    fractions = np.array(placed.lookups_by_rank(1)) / ranks  # rows of each card for one sample
    read = np.zeros(ranks)
    pooled = np.zeros(ranks)
    for shard in placed.shards:
        columns = shard.num_columns * width + scales
        read[shard.rank] += placed.lookups(shard, 1) / ranks * columns
        pooled[shard.rank] += shard.num_columns * _POOLED_BYTES
    busiest_ids, busiest_read = float(fractions.max()) * _ID_BYTES, float(read.max())
    samples = np.array(sizes, np.float64)
    latency = tier.latency_ns or _COPY_NS
    sent_ns = _COPY_NS + samples * (busiest_ids + model.num_dense * _DENSE_BYTES) / host_rate
    lookup_ns = moved_ns(chip, samples * busiest_read)
    # All cards' vectors come in by the one link of the card that computes.
    peer_ns = latency + samples * float(pooled.sum()) / tier.bytes_per_ns
    stages = (
        ServingStage("ids to cards", "host", 1, batch_times(sizes, sent_ns.tolist())),
        ServingStage("lookups", f"{ranks} cards", 1, batch_times(sizes, lookup_ns.tolist())),
        ServingStage("vectors", "PCIe", dense_cards, batch_times(sizes, peer_ns.tolist())),
        ServingStage("networks", f"{dense_cards} cards", dense_cards, batch_times(sizes, dense_ns)),
    )
    return RecommenderCards(stages, placed, row_bytes, dense_cards)


def _dense_ns(model: Recommender, chip: Chip, batch: int, dtype: str) -> float:
    """Bottom network, interaction, top network."""
    items = ItemWriter(Phase.FORWARD)
    precision = Precision(products=dtype, activations="fp16", parameters=dtype)
    networks = Networks(model, batch, precision, is_replicated=False)
    networks.forward(items, "bottom")
    networks.interact(items)
    networks.forward(items, "top")
    operations = [
        operation_of(one.name, one.signature, "")
        for one in items.written
        if isinstance(one, Operator)
    ]
    return float(FittedKernels(chip).operation_costs(operations).duration_ns.sum())
