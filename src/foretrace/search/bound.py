"""`StepBound`: times that no simulation of a plan's step is below.

Every number here leaves something of the step out and adds nothing: operators alone without what
communication slows, a host that takes no time, transfers that wait for nobody. `quick_ns` is a
closed form of the stages' work and of how a pipeline fills and drains; `run_ns` runs the plan's
schedule unit by unit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from foretrace.base import CollectiveKind, Int64s
from foretrace.cost import CollectiveRequests, CostModel, Inflation, KernelRequests
from foretrace.graph import Phase
from foretrace.search.unit_times import MicrobatchWork, UnitClock
from foretrace.workload import (
    Block,
    Exchange,
    Group,
    KeptSchedules,
    Operator,
    Pass,
    Passes,
    Plan,
    Schedule,
    Sharding,
    Transformer,
    UnitTimes,
    block_of,
    buckets_of,
    chunk_layers,
    gathered,
    is_written,
    kinds_of_passes,
    norm_place,
    optimizer_block,
    pools_of,
    ranks_of,
    reduced,
    shard_count,
    stage_ends_ns,
    total_parameters,
)

_DUALPIPE = "dualpipe"


class Prices:
    """Times of single exchanges and operators, each distinct one asked once."""

    def __init__(self, costs: CostModel) -> None:
        """Ask nothing yet."""
        self._costs = costs
        self._exchanges: dict[object, int] = {}
        self._operators: dict[tuple[str, str], int] = {}
        self._groups: dict[object, tuple[int, ...]] = {}

    def exchanges_ns(self, exchanges: Iterable[Exchange], plan: Plan) -> int:
        """Of several, one after the other."""
        return sum(self._exchange_ns(one, self._group(plan, one.group)) for one in exchanges)

    def transfers_ns(self, exchange: Exchange, plan: Plan) -> Int64s:
        """Between every stage and the next, the last one's with the first; int64[stages]."""
        ranks = self._group(plan, Group.PIPELINE)
        pairs = [*pairwise(ranks), (ranks[0], ranks[-1])]
        return np.array([self._exchange_ns(exchange, pair) for pair in pairs], np.int64)

    def operators_ns(self, block: Block) -> Int64s:
        """Of every operator of a block that has nothing else; int64[operators]."""
        found = [
            self.operator_ns(item.name, item.signature)
            for item in block.items
            if isinstance(item, Operator)
        ]
        return np.array(found, np.int64)

    def operator_ns(self, name: str, signature: str) -> int:
        """Of one operator."""
        key = (name, signature)
        if key not in self._operators:
            self._operators[key] = self._asked_ns(*key)
        return self._operators[key]

    def _asked_ns(self, name: str, signature: str) -> int:
        one = np.zeros(1, np.int32)
        requests = KernelRequests(one, one, one - 1, (name,), (signature,), ())
        return int(self._costs.kernel_costs(requests).duration_ns[0])

    def _exchange_ns(self, exchange: Exchange, ranks: tuple[int, ...]) -> int:
        key = (exchange.name, exchange.num_bytes, exchange.dtype, ranks)
        found = self._exchanges.get(key)
        if found is None:
            one = np.zeros(1, np.int32)
            requests = CollectiveRequests(
                one,
                np.array([exchange.num_bytes], np.int64),
                one,
                one,
                (exchange.name,),
                (exchange.dtype,),
                (ranks,),
            )
            found = int(self._costs.collective_costs(requests).duration_ns[0])
            self._exchanges[key] = found
        return found

    def _group(self, plan: Plan, group: Group) -> tuple[int, ...]:
        key = (*plan.places, group)
        if key not in self._groups:
            self._groups[key] = ranks_of(plan, group, 0)
        return self._groups[key]


@dataclass(frozen=True)
class _Shared:
    """What ranks with the same parameters exchange, and what ends a step."""

    begin_ns: Int64s  # int64[stages], before the first unit
    gathered_ns: Int64s  # int64[stages], until which parameters of the first unit are gathered
    unit_gather_ns: Int64s  # int64[chunks of a route], gathered by every pass: ZeRO-3
    unit_reduce_ns: Int64s  # int64[chunks of a route], reduced behind every backward pass
    last_ns: Int64s  # int64[stages], reduced behind the last unit
    of_last_ns: Int64s  # int64[stages], reduced since that unit began
    norm_ns: Int64s  # int64[stages], behind that
    closing_ns: int  # once all stages have come so far


class StepBound:
    """Lower bounds of steps of one model on one machine."""

    def __init__(self, model: Transformer, costs: CostModel, inflation: Inflation) -> None:
        """Time nothing yet.

        Args:
            model: as in `unit_step`, as all that follow.
            costs: so too.
            inflation: so too.
        """
        self._model, self._asked = model, (model, costs, inflation)
        self._clock = UnitClock(model, costs, inflation)
        self._prices = Prices(costs)
        self.schedules = KeptSchedules()

    def __reduce__(self) -> tuple[object, ...]:
        """Another process times for itself."""
        return StepBound, self._asked

    @property
    def num_timed(self) -> int:
        """Distinct works of a rank for a microbatch that were timed."""
        return self._clock.num_timed

    def quick_ns(self, plan: Plan) -> int:
        """From the work of stages, and how long the pipeline takes to fill and to drain."""
        if is_written(plan.schedule):
            return self._busiest_ns(plan)
        alone, operators, host = self._chunks_ns(plan)
        passes = _passes_of(plan)
        stages, count = plan.pipeline, plan.num_microbatches
        # Woven pairs hide communication of one behind operators of the other.
        is_hidden = plan.schedule == _DUALPIPE or _hides_experts(plan)
        own = operators if is_hidden else alone
        work_ns, launches_ns = (
            count * table[passes].sum(axis=0).reshape(-1, stages).sum(axis=0)
            for table in (own, host)
        )
        # What is hidden beside operators still comes one after the other on its own stream.
        sent_ns = np.zeros_like(work_ns)
        if is_hidden and plan.expert > 1:
            of_chunks = self._experts_ns(plan)
            sent_ns = count * of_chunks[passes].sum(axis=0).reshape(-1, stages).sum(axis=0)
        if plan.schedule == _DUALPIPE:
            return int(max((one + one[::-1]).max() // 2 for one in (work_ns, sent_ns)))
        ends_ns = work_ns + fill_and_drain_ns(alone[:, :stages], passes)
        return int(max(ends_ns.max(), launches_ns.max(), sent_ns.max()))

    def run_ns(self, plan: Plan) -> int:
        """From the plan's schedule, run unit by unit."""
        if is_written(plan.schedule):
            return self._busiest_ns(plan)
        if _hides_experts(plan):  # what one of a woven pair makes is there before the pair is done
            return self.quick_ns(plan)
        alone, operators, host = self._chunks_ns(plan)
        work = self._clock.work(plan)
        schedule = self.schedules.of(plan)
        places = places_on_route(schedule)
        shared = self._shared_ns(plan, work)
        backward = np.zeros((len(Pass), 1), np.int64)
        backward[[Pass.BACKWARD, Pass.WEIGHT]] = 1
        before_ns, behind_ns = self._around_ns(plan, work)
        # Its operators, or its launches, whichever hold up its end.
        last_unit_ns = np.maximum(alone, host)[_passes_of(plan)[-1], : plan.pipeline]
        gathering = np.ones((len(Pass), 1), np.int64)
        gathering[Pass.WEIGHT] = 0
        times = UnitTimes(
            alone_ns=np.ascontiguousarray(alone[:, places]),
            joined_ns=np.ascontiguousarray(operators[:, places]),
            transfer_ns=self._transfer_ns(plan, work)[(places - 1) % plan.pipeline],
            begin_ns=shared.begin_ns,
            entry_ns=np.ascontiguousarray(before_ns[:, places]),
            exit_ns=np.ascontiguousarray(behind_ns[:, places]),
            host_ns=np.ascontiguousarray(host[:, places]),
            gather_ns=gathering * shared.unit_gather_ns[places],
            reduce_ns=backward * shared.unit_reduce_ns[places],
            reduces_runs=plan.sharding is Sharding.ZERO2 and plan.pipeline > 1,
            shared_ns=shared.gathered_ns,
            tail_ns=np.maximum(shared.last_ns, shared.of_last_ns - last_unit_ns),
        )
        ends_ns = stage_ends_ns(schedule, times)
        assert ends_ns is not None  # noqa: S101  the plan is legal
        return int((ends_ns + shared.norm_ns).max()) + shared.closing_ns

    def _busiest_ns(self, plan: Plan) -> int:
        """The operators of the stage with most: what no order beats, wherever chunks lie."""
        schedule = self.schedules.of(plan)
        orders = schedule.orders
        _, operators, _ = self._chunks_ns(plan)
        unit_ns = operators[orders.kind, places_on_route(schedule)[orders.chunk]]
        return int(np.add.reduceat(unit_ns, orders.begin[:-1]).max())

    def _experts_ns(self, plan: Plan) -> Int64s:
        """What every pass of a chunk sends to experts; int64[kinds of passes, chunks]."""
        work = self._clock.work(plan)
        chunks = _parts_of_chunks(work, chunk_layers(plan, self._model.num_layers))
        known: dict[tuple[int, Pass], int] = {}

        def sent_ns(part: Passes, kind: Pass) -> int:
            key = (id(part), kind)
            if key not in known:
                exchanges = [one for one in block_of(part, kind).items if isinstance(one, Exchange)]
                own = [one for one in exchanges if one.group is Group.EXPERT]
                known[key] = self._prices.exchanges_ns(own, plan)
            return known[key]

        found = np.zeros((len(Pass), len(chunks)), np.int64)
        for kind in _passes_of(plan):
            found[kind] = [sum(sent_ns(part, kind) for part in chunk) for chunk in chunks]
        return found

    def _around_ns(self, plan: Plan, work: MicrobatchWork) -> tuple[Int64s, Int64s]:
        """Exchanges of tensor ranks that every pass of chunks begins and ends with.

        int64[kinds of passes, chunks of a route] each.
        """
        chunks = _parts_of_chunks(work, chunk_layers(plan, self._model.num_layers))
        known: dict[tuple[int, Pass], tuple[int, int]] = {}

        def around(part: Passes, kind: Pass) -> tuple[int, int]:
            key = (id(part), kind)
            if key not in known:
                leading, trailing = _around(block_of(part, kind))
                ns = self._prices.exchanges_ns
                known[key] = ns(leading, plan), ns(trailing, plan)
            return known[key]

        found = np.zeros((2, len(Pass), len(chunks)), np.int64)
        for at, chunk in enumerate(chunks):
            for kind in _passes_of(plan) if chunk else ():
                parts = (chunk[0], chunk[-1]) if kind is Pass.FORWARD else (chunk[-1], chunk[0])
                found[0, kind, at] = around(parts[0], kind)[0]
                found[1, kind, at] = around(parts[1], kind)[1]
        return found[0], found[1]

    def _transfer_ns(self, plan: Plan, work: MicrobatchWork) -> Int64s:
        """Between every stage and the next; int64[stages], the last one's with the first."""
        if plan.pipeline == 1:
            return np.zeros(1, np.int64)
        return self._prices.transfers_ns(transfer_of(work), plan)

    def _chunks_ns(self, plan: Plan) -> tuple[Int64s, Int64s, Int64s]:
        """Of every chunk of a route and each pass: alone, its operators, its launches."""
        layers = chunk_layers(plan, self._model.num_layers)
        alone, operators, host = self._clock.work(plan).chunks_ns(layers)
        return operators if _hides_experts(plan) else alone, operators, host

    def _shared_ns(self, plan: Plan, work: MicrobatchWork) -> _Shared:
        """What ranks with the same parameters exchange."""
        stages = plan.pipeline
        chunks = _parts_of_chunks(work, chunk_layers(plan, self._model.num_layers))
        known: dict[object, tuple[int, ...]] = {}

        def once(
            function: Callable[[Plan, Sequence[Passes]], tuple[int, ...]], parts: Sequence[Passes]
        ) -> tuple[int, ...]:
            key = (function.__name__, tuple(map(id, parts)))
            if key not in known:
                known[key] = function(plan, parts)
            return known[key]

        # The first chunk on the route is the first that a stage runs, and the last it has back.
        ends = np.array([once(self._ends_ns, chunk) for chunk in chunks[:stages]], np.int64)
        units = np.array([once(self._units_ns, chunk) for chunk in chunks], np.int64)
        own = [[part for chunk in chunks[at::stages] for part in chunk] for at in range(stages)]
        norm_ns, update_ns = np.array([once(self._update_ns, parts) for parts in own], np.int64).T
        if plan.schedule == _DUALPIPE:  # which begins and ends with chunks of either way
            ends, norm_ns, update_ns = ends * 0, norm_ns * 0, update_ns * 0
        begin_ns, gathered_ns, last_ns, of_last_ns = ends.T
        return _Shared(
            begin_ns=begin_ns.copy(),
            gathered_ns=gathered_ns,
            unit_gather_ns=units[:, 0],
            unit_reduce_ns=units[:, 1],
            last_ns=last_ns,
            of_last_ns=of_last_ns,
            norm_ns=norm_ns,
            closing_ns=int(update_ns.max()),
        )

    def _ends_ns(self, plan: Plan, chunk: Sequence[Passes]) -> tuple[int, ...]:
        """Before a stage's first chunk and behind its last backward pass.

        The first part's parameters and all of them, gathered; the last gradients and all of them,
        reduced.
        """
        if plan.sharding is Sharding.ZERO3:
            return 0, 0, 0, 0
        first, everything, last, all_reduced = 0, 0, 0, 0
        buckets = buckets_of(chunk[::-1], pools_of(plan), plan)
        for is_expert in (False, True):  # whose exchanges have streams of their own
            own = [one for one in buckets if one.pool.is_expert is is_expert]
            gathers = [
                self._prices.exchanges_ns(
                    (gathered(one.num_parameters, one.pool, plan, phase=Phase.FORWARD),), plan
                )
                for one in own[::-1]
                if one.pool.num_shards > 1 and plan.overlap.parameters
            ]
            reductions = [
                self._prices.exchanges_ns(reduced(one.num_parameters, one.pool, plan)[:1], plan)
                for one in own
            ]
            everything = max(everything, sum(gathers))
            all_reduced = max(all_reduced, sum(reductions))
            if own and own[-1].complete_at == len(chunk) - 1:
                first = max(first, *gathers[:1], 0)
                last = max(last, reductions[-1])
        if not plan.overlap.gradients and plan.sharding is not Sharding.ZERO2:
            last = all_reduced
        return first, everything, last, all_reduced

    def _units_ns(self, plan: Plan, chunk: Sequence[Passes]) -> tuple[int, ...]:
        """What every pass of a chunk gathers, and every backward pass leaves to be reduced."""
        is_gathering = plan.sharding is Sharding.ZERO3 and plan.reshard_after_forward
        if plan.sharding not in {Sharding.ZERO2, Sharding.ZERO3}:
            return 0, 0
        found = [(0, 0)]
        for pool in pools_of(plan):
            counts = [count for part in chunk if (count := pool.count(part.parameters))]
            if pool.num_shards > 1:
                gathers = [gathered(one, pool, plan, phase=Phase.FORWARD) for one in counts]
                if plan.sharding is Sharding.ZERO2:
                    buckets = buckets_of(chunk[::-1], (pool,), plan)
                    counts = [one.num_parameters for one in buckets]
                reductions = [one for count in counts for one in reduced(count, pool, plan)[:1]]
                exchanges = (gathers if is_gathering else [], reductions)
                gather_ns, reduce_ns = (self._prices.exchanges_ns(one, plan) for one in exchanges)
                found.append((gather_ns, reduce_ns))
        return max(found, key=sum)  # of streams beside each other, the busier one

    def _update_ns(self, plan: Plan, parts: Sequence[Passes]) -> tuple[int, ...]:
        """The norm of a stage's gradients, and what follows once all stages have told theirs."""
        total, pools = total_parameters(parts), pools_of(plan)
        own = shard_count(total, pools)
        keeps_all = plan.sharding in {Sharding.NONE, Sharding.ZERO1}
        block = optimizer_block(
            own, plan, num_gradients=total.dense + total.expert if keeps_all else own
        )
        times_ns = self._prices.operators_ns(block)
        place = norm_place(block)
        assert place is not None  # noqa: S101  every update begins with it
        return int(times_ns[: place + 1].sum()), int(times_ns[place + 1 :].sum())


def fill_and_drain_ns(first: Int64s, passes: Sequence[Pass]) -> Int64s:
    """How long each stage waits for its first unit, and others work behind its last.

    Args:
        first: int64[kinds of passes, stages], of the first chunk on a route that each stage has.
        passes: that there are.
    """
    fill_ns: Int64s = np.cumsum(first[Pass.FORWARD]) - first[Pass.FORWARD]
    if Pass.BACKWARD in passes:
        fill_ns = fill_ns + np.cumsum(first[Pass.BACKWARD]) - first[Pass.BACKWARD]
    return fill_ns


def places_on_route(schedule: Schedule) -> Int64s:
    """Which chunk of a route each of the schedule's is; int64[chunks]."""
    places = np.zeros(len(schedule.stage_of_chunk), np.int64)
    for route in schedule.routes:
        places[list(route)] = np.arange(len(route))
    return places


def _hides_experts(plan: Plan) -> bool:
    """Whether other work runs beside exchanges of experts: another pass, or shared experts."""
    return plan.overlap.expert and plan.expert > 1


def _passes_of(plan: Plan) -> list[Pass]:
    """What each microbatch passes through; backward as a whole where the schedule knows both."""
    kinds = kinds_of_passes(plan)
    return [Pass.FORWARD, Pass.BACKWARD] if Pass.BACKWARD in kinds else list(kinds)


def _around(block: Block) -> tuple[list[Exchange], list[Exchange]]:
    """Exchanges that a block's first operator waits for, and those that send the last one's."""
    places = [at for at, item in enumerate(block.items) if isinstance(item, Operator)]
    if not places:
        return [], []
    first, last = places[0], places[-1]
    items = list(enumerate(block.items))
    tensor = [
        (at, item)
        for at, item in items
        if isinstance(item, Exchange) and item.group is Group.TENSOR
    ]
    leading = [
        item
        for at, item in tensor
        if at < first and not item.after and at in block.items[first].after
    ]
    trailing = [item for at, item in tensor if at > last and last in item.after]
    return leading, trailing


def transfer_of(work: MicrobatchWork) -> Exchange:
    """What stages send each other for a microbatch."""
    blocks = work.blocks
    size, dtype = blocks.transfer_bytes, blocks.transfer_dtype
    kind = CollectiveKind.SEND_RECV
    return Exchange(
        "activations",
        kind,
        Group.PIPELINE,
        size,
        dtype,
        Phase.FORWARD,
        channels=blocks.transfer_channels,
    )


def _parts_of_chunks(work: MicrobatchWork, num_layers: Sequence[int]) -> list[tuple[Passes, ...]]:
    """Parts of every chunk of a route."""
    blocks = work.blocks
    ends = list(accumulate(num_layers, initial=0))
    found = [blocks.layers[at:end] for at, end in pairwise(ends)]
    if blocks.embedding is not None:
        found[0] = (blocks.embedding, *found[0])
    if blocks.head is not None:
        found[-1] = (*found[-1], blocks.head)
    return found
