"""`searched_tables`: where a recommender's tables stand so that its simulated step is shortest.

1. Every way to place each table gets its costs (`TableAccount`).
2. For each family of schemes, placements are dealt greedily and by differencing, the more promising
   is annealed, and the best of each is simulated.
3. What the simulated step does not wait for counts less, and the best placements are annealed
   once more, as long as that helps.
4. Single moves of the best are simulated, those that the account likes best first.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from foretrace.answer import bytes_text
from foretrace.base import MachineError, WorkloadError
from foretrace.cost import CostModel, Inflation
from foretrace.estimate import software_costs
from foretrace.machine import Machine, with_hosts
from foretrace.search.found_tables import Beside, TableSearch
from foretrace.search.table_account import BYTES, TableAccount, TableRoom, table_account
from foretrace.search.table_annealing import WORTH, annealed, annealed_families
from foretrace.search.table_floor import table_floor
from foretrace.search.table_moves import DealtTables
from foretrace.search.table_steps import PlacedStep, TableSteps, plan_with
from foretrace.workload import (
    MemoryTier,
    Plan,
    Recommender,
    TableScheme,
    TableSharding,
    check_plan,
    recommender_footprint,
    tables_of_plan,
)

# Of a chip's memory; what TorchRec's planner leaves free, planner/storage_reservations.py.
_RESERVED = 0.15
_SHARE_OF_FLOOR, _SHARE_OF_STARTS = 0.2, 0.6  # of the time
_ROUNDS = 3  # of weights by what the step waits for
_MOST_MOVES = 64  # that are simulated at a time


@dataclass(frozen=True)
class _Found:
    """A placement with its step."""

    placement: DealtTables
    step: PlacedStep
    name: str


def searched_tables(
    model: Recommender,
    plan: Plan,
    machine: Machine,
    *,
    schemes: Sequence[TableScheme] = tuple(TableScheme),
    tiers: Sequence[MemoryTier] = (MemoryTier.HBM,),
    time_s: float = 8.0,
    costs: CostModel | None = None,
    inflation: Inflation | None = None,
    progress: Callable[[str], None] | None = None,
) -> TableSearch:
    """The placement of a model's tables with the shortest simulated step that was found.

    Args:
        model: its tables.
        plan: of the job; its `tables` say optimizer, formats, ids and pieces' width.
        machine: that it runs on.
        schemes: that tables may have.
        tiers: that they may be in.
        time_s: seconds to spend, but for what is simulated last.
        costs: what predicts durations, as in `estimate`.
        inflation: so too.
        progress: called with what is done.

    Raises:
        WorkloadError: if the tables fit nowhere, or the plan is not legal.
        MachineError: if the machine has no such tier, or cannot be costed.
    """
    begin_s = time.monotonic()
    sharding = replace(plan.tables or TableSharding(), places=())
    plan = replace(plan, tables=sharding, shard_ranks=None)
    check_plan(plan, model)
    machine = with_hosts(machine, plan.num_ranks)
    _check_tiers(machine, tiers)
    costs = costs or software_costs(machine)
    room = _room(model, plan, machine, tiers)
    told = progress or (lambda _: None)
    told("costing tables")
    account = table_account(model, plan, costs=costs, room=room, schemes=schemes, tiers=tiers)
    floor = table_floor(account, whole_s=_SHARE_OF_FLOOR * time_s)
    if floor is None:
        raise _no_room(account, machine, tiers)
    steps = TableSteps(
        model, plan, ranks_per_host=room.ranks_per_host, costs=costs,
        inflation=inflation or Inflation(),
    )  # fmt: skip
    search = _TableSearch(account, steps, begin_s, time_s)
    told("dealing tables")
    rules = dict(_by_rule(steps, sharding, schemes, room=room, columns=model.size))
    found = search.with_rules(search.dealt(), list(rules.values()))
    if not found:
        raise _no_room(account, machine, tiers)
    told("moving tables")
    best = search.polished(search.reweighted(found))
    memory = recommender_footprint(
        model, plan_with(plan, best.step.placed), capacity=machine.chip.memory_bytes
    )
    whole = best.placement.under(account)
    return TableSearch(
        model=model,
        machine=machine.name,
        plan=plan_with(plan, best.step.placed),
        placed=best.step.placed,
        step_ns=best.step.step_ns,
        beside=tuple(_beside(rules, room)),
        account_ns=whole.value_ns,
        least_ns=floor.least_ns,
        footprint=memory,
        num_simulated=steps.num_simulated,
        start=best.name,
        spent_s=time.monotonic() - begin_s,
    )


class _TableSearch:
    """Placements, improved by the account and judged by their steps."""

    def __init__(
        self, account: TableAccount, steps: TableSteps, begin_s: float, time_s: float
    ) -> None:
        """Begin with nothing found."""
        self.account, self.steps = account, steps
        self.begin_s, self.time_s = begin_s, time_s

    def dealt(self) -> list[_Found]:
        """The best start of each family of schemes that has room; the shortest step first."""
        end_s = self.begin_s + _SHARE_OF_STARTS * self.time_s
        found = [
            _Found(best, self.steps.step(best.places()), name)
            for name, best in annealed_families(self.account, end_s)
        ]
        return sorted(found, key=lambda one: one.step.step_ns)

    def with_rules(self, found: list[_Found], rules: Sequence[PlacedStep]) -> list[_Found]:
        """These, and what rules give where every table's place is one of the account's."""
        for one in rules:
            places = one.placed.places()
            stated = DealtTables.of_places(self.account, places)
            if stated is not None and stated.fits:
                found.append(_Found(stated, self.steps.step(places), "all tables by one rule"))
        return sorted(found, key=lambda one: one.step.step_ns)

    def reweighted(self, found: list[_Found]) -> _Found:
        """The best placements, improved again by what their steps wait for."""
        best = found[0]
        for one in found[:2]:
            for _ in range(_ROUNDS):
                weighted = self.account.weighted(one.step.weights)
                moved = annealed(one.placement.under(weighted), self.begin_s + self.time_s)
                if not moved.fits:
                    break
                other = _Found(moved, self.steps.step(moved.places()), one.name)
                if other.step.step_ns >= one.step.step_ns:
                    break
                one = other  # noqa: PLW2901  goes on from there
            best = min(best, one, key=lambda each: each.step.step_ns)
        return best

    def polished(self, best: _Found) -> _Found:
        """The best, after single moves that made its simulated step shorter."""
        is_better = True
        while is_better:
            is_better = False
            moves = self._moves(best.placement.under(self.account.weighted(best.step.weights)))
            for moved in moves:
                if time.monotonic() > self.begin_s + self.time_s:
                    return best
                other = _Found(moved, self.steps.step(moved.places()), best.name)
                if other.step.step_ns < best.step.step_ns:
                    best, is_better = other, True
                    break
        return best

    def _moves(self, placement: DealtTables) -> list[DealtTables]:
        """Placements a move away, those first that the account likes best."""
        found = []
        limit = WORTH * _score(placement)
        for table in range(len(placement.chosen)):
            found += [
                (score, table, one) for score, one in placement.scored_ways(table) if score <= limit
            ]
        found.sort(key=lambda each: each[0])
        return [placement.with_table(table, one) for _, table, one in found[:_MOST_MOVES]]


def _score(placement: DealtTables) -> float:
    return float(placement.scores(placement.loads[None], placement.copied)[0])


def _by_rule(
    steps: TableSteps,
    sharding: TableSharding,
    schemes: Sequence[TableScheme],
    *,
    room: TableRoom,
    columns: int,
) -> Iterator[tuple[str, PlacedStep]]:
    """What rules give: all tables by one scheme, dealt by the planner's closed forms."""
    for scheme in schemes:
        is_cut = columns >= 2 * sharding.column_width
        if (scheme is TableScheme.TABLE_ROW and room.num_hosts == 1) or (
            scheme is TableScheme.COLUMN and not is_cut
        ):
            continue  # the same as by another scheme
        with suppress(WorkloadError):  # columns that pieces do not divide
            yield scheme.value, steps.of_rule(replace(sharding, scheme=scheme, capacity_bytes=None))


def _beside(rules: Mapping[str, PlacedStep], room: TableRoom) -> Iterator[Beside]:
    for name, one in rules.items():
        fullest = max(one.placed.bytes_by_rank)
        yield Beside(name, one.step_ns, fullest, fullest <= room.hbm)


def _check_tiers(machine: Machine, tiers: Sequence[MemoryTier]) -> None:
    chip, host = machine.chip, machine.host
    for tier, has_way, has_size, key in (
        (MemoryTier.HOST, chip.host_bytes_per_ns, host.cpu_memory_bytes, "cpu_memory"),
        (MemoryTier.SSD, chip.storage_bytes_per_ns, host.storage_bytes, "storage"),
    ):
        if tier in tiers and (has_way is None or has_size is None):
            way = "host_bandwidth of its chip" if tier is MemoryTier.HOST else "storage_bandwidth"
            raise MachineError(
                f"{machine.name} does not say what its tier {tier.value!r} holds or how fast it "
                f"is: state {key} and {way} in the host's file, or leave the tier out"
            )


def _room(
    model: Recommender, plan: Plan, machine: Machine, tiers: Sequence[MemoryTier]
) -> TableRoom:
    """Bytes that tables may take: what networks and activations leave of each tier."""
    host = machine.host
    inside = host.num_chips if plan.data % host.num_chips == 0 else plan.data
    rule = replace(plan.tables or TableSharding(), scheme=TableScheme.ROW, capacity_bytes=None)
    whole = recommender_footprint(model, replace(plan, tables=rule))
    (stage,) = whole.stages
    tables = max(tables_of_plan(model, plan, rule).bytes_by_rank)
    free = (1 - _RESERVED) * machine.chip.memory_bytes - (stage.total - tables)
    stated = (plan.tables or rule).capacity_bytes
    return TableRoom(
        hbm=max(0.0, free if stated is None else min(free, stated)),
        host=(host.cpu_memory_bytes or 0) * (1 - _RESERVED) if MemoryTier.HOST in tiers else 0,
        ssd=(host.storage_bytes or 0) if MemoryTier.SSD in tiers else 0,
        num_ranks=plan.data,
        ranks_per_host=inside,
    )


def _no_room(account: TableAccount, machine: Machine, tiers: Sequence[MemoryTier]) -> WorkloadError:
    """Why no placement fits, and what would."""
    room, model = account.room, account.model
    least = sum(
        min(
            (one.total[list(BYTES.values())].sum() for one in own if not one.copied),
            default=min(one.total[BYTES[MemoryTier.HBM]] for one in own),
        )
        for own in account.options
    )
    there = room.hbm * room.num_ranks + (room.host + room.ssd) * room.num_hosts
    each = room.hbm + (room.host + room.ssd) / room.ranks_per_host
    ranks = math.ceil(least / max(each, 1.0))
    advice = []
    if least > there and each > 0:
        advice.append(f"{ranks:,} GPUs would hold them")
    elif least <= there:
        advice.append("but no placement with room for each was found: allow row-wise, or more time")
    if MemoryTier.HOST not in tiers and machine.host.cpu_memory_bytes:
        own = machine.host.cpu_memory_bytes * (1 - _RESERVED) * room.num_hosts
        holds = "would hold them" if own + there >= least else "holds more"
        advice.append(f"memory of the hosts, {bytes_text(round(own))}, {holds}: --tiers hbm,host")
    return WorkloadError(
        f"tables of {model.name!r} fit nowhere: with their optimizer they take "
        f"{bytes_text(round(least))}, and {room.num_ranks} ranks have {bytes_text(round(there))} "
        f"for them in {', '.join(tiers)}: {'; '.join(advice) or 'take more GPUs'}"
    )
