"""What each layer computes again, so that a plan fits and loses least time: a knapsack per stage.

Kept bytes and times are those of `footprint` and of the blocks. The worst moment of a stage depends
on the choice, so moments are added to the program as they turn out to be the worst, until the
choice fits by `PlanMemory`'s own count.

Source:
    the peer is `torch.distributed._tools.sac_ilp`: the same choice, by module, for one rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp

from foretrace.base import Float64s, Int64s
from foretrace.cost import CostModel
from foretrace.graph import Phase
from foretrace.machine import Chip
from foretrace.search.bound import Prices
from foretrace.workload import (
    Layer,
    Operator,
    Pass,
    Plan,
    PlanMemory,
    Recompute,
    RecomputeModule,
    Schedule,
    Transformer,
    blocks_of_model,
    check_plan,
    chunk_layers,
    layer_bytes,
    plan_of_layer,
    schedule_of,
    software_of,
)

_MOST_ROUNDS = 16  # worst moments that are added, and cuts of what was let through
_MOST_MODULES = 2  # named together, beside all of them
_TIME_LIMIT_S = 10.0
_GIB = 2**30  # what the program counts in, so that its numbers are of one size


@dataclass(frozen=True)
class RecomputeChoice:
    """A plan with what each layer computes again."""

    plan: Plan
    again_ns: int  # of one microbatch, on the stage that computes most again
    peak_bytes: int  # of the fullest rank


@dataclass(frozen=True)
class _AgainOption:
    """One thing that a layer can compute again."""

    word: str
    kept: int  # bytes of a microbatch
    again_ns: int


@dataclass(frozen=True)
class _Variable:
    """So many layers of one kind in one chunk of a route take an option."""

    place: int  # of the chunk along the model
    kind: Layer
    option: _AgainOption


def chosen_recompute(
    model: Transformer, plan: Plan, *, capacity: int, costs: CostModel, chip: Chip | None = None
) -> RecomputeChoice | None:
    """The plan with what each layer computes again: it fits, and the slowest stage loses least.

    Never slower than the same for all layers (none, selective, full) where that fits. `None`, if
    nothing fits.

    Args:
        model: what is trained.
        plan: legal; what it says of recompute is put aside.
        capacity: bytes that a rank may hold.
        costs: of what is computed again.
        chip: what it runs on, as in `footprint`.

    Raises:
        WorkloadError: if the plan is not legal for the model.
    """
    plan = replace(plan, recompute=Recompute.NONE, recompute_modules=None, recompute_of_layer=None)
    check_plan(plan, model)
    asked = _Program(model, plan, capacity=capacity, prices=Prices(costs), chip=chip)
    candidates = [*(asked.uniform(kind) for kind in Recompute), asked.solved()]
    fitting = [one for one in candidates if one is not None and one.peak_bytes <= capacity]
    return min(fitting, key=lambda one: (one.again_ns, one.peak_bytes), default=None)


class _Program:
    """The integer program of one plan, and its worst moments so far."""

    def __init__(
        self, model: Transformer, plan: Plan, *, capacity: int, prices: Prices, chip: Chip | None
    ) -> None:
        self._model, self._plan, self._capacity = model, plan, capacity
        self._prices = prices
        self._memory = PlanMemory(model, chip=chip)
        self._schedule: Schedule = schedule_of(plan)
        self._split = chunk_layers(plan, model.num_layers)
        kinds = {layer.kind: layer for layer in reversed(model.layers)}
        self._options = {kind: self._options_of(layer) for kind, layer in kinds.items()}
        self._counts = self._layers_by_place()
        self._variables = [
            _Variable(place, kind, option)
            for place, counts in enumerate(self._counts)
            for kind in counts
            for option in self._options[kind]
        ]

    def uniform(self, kind: Recompute) -> RecomputeChoice:
        """All layers alike."""
        return self._choice(replace(self._plan, recompute=kind))

    def solved(self) -> RecomputeChoice | None:
        """The best choice that fits by the exact count; `None` if none was found."""
        moments: list[tuple[Float64s, float]] = []
        plan = self._plan
        for _ in range(_MOST_ROUNDS):
            found = self._choice(plan)
            if found.peak_bytes <= self._capacity and moments:
                return found
            moments += self._worst_moments(plan)
            words = self._solved_words(moments)
            if words is None:
                return None
            plan = replace(self._plan, recompute_of_layer=words)
        return None

    def _solved_words(self, moments: Sequence[tuple[Float64s, float]]) -> tuple[str, ...] | None:
        """What each layer computes again if these moments are all; `None` if nothing would fit."""
        size = len(self._variables)
        # One more variable: the time of the slowest stage, which is what is made small.
        times = np.array([one.option.again_ns for one in self._variables], float) / 1e3
        goal = np.append(times * 1e-6, 1.0)
        rows, low, high = [], [], []
        for stage in range(self._schedule.num_stages):
            rows.append(np.append(times * self._held_by(stage), -1.0))
            low.append(-np.inf)
            high.append(0.0)
        for place, counts in enumerate(self._counts):
            for kind, count in counts.items():
                own = [one.place == place and one.kind == kind for one in self._variables]
                rows.append(np.append(np.array(own, float), 0.0))
                low.append(float(count))
                high.append(float(count))
        for weights, most in moments:
            rows.append(np.append(weights, 0.0))
            low.append(-np.inf)
            high.append(most)
        found = milp(
            goal,
            constraints=LinearConstraint(np.array(rows), np.array(low), np.array(high)),
            integrality=np.append(np.ones(size), 0.0),
            bounds=Bounds(0, np.inf),
            options={"time_limit": _TIME_LIMIT_S, "mip_rel_gap": 1e-4},
        )
        if found.x is None:
            return None
        return self._words(np.rint(found.x[:-1]).astype(int).tolist())

    def _words(self, numbers: Sequence[int]) -> tuple[str, ...]:
        """Numbers of layers as a word for each: the first of a chunk compute most again."""
        words: list[str] = []
        at = 0
        for place, size in enumerate(self._split):
            pools: dict[Layer, list[_AgainOption]] = {}
            for one, number in zip(self._variables, numbers, strict=True):
                if one.place == place:
                    pools.setdefault(one.kind, []).extend([one.option] * number)
            for pool in pools.values():
                pool.sort(key=lambda option: option.again_ns)
            words += [pools[layer.kind].pop().word for layer in self._model.layers[at : at + size]]
            at += size
        return tuple(words)

    def _choice(self, plan: Plan) -> RecomputeChoice:
        peak = int(self._memory.stage_bytes(plan).max())
        return RecomputeChoice(plan, self._again_ns(plan), peak)

    def _again_ns(self, plan: Plan) -> int:
        """Of the slowest stage, for one microbatch of each of its chunks."""
        layers = blocks_of_model(self._model, plan).layers
        times = [self._items_ns(one.backward.items, plan) for one in layers]
        ends = np.cumsum([0, *self._split])
        by_place = [sum(times[ends[at] : ends[at + 1]]) for at in range(len(self._split))]
        stages = [0] * self._schedule.num_stages
        for route in self._schedule.routes:
            for place, chunk in enumerate(route):
                stages[self._schedule.stage_of_chunk[chunk]] += by_place[place]
        return max(stages)

    def _items_ns(self, items: Sequence[object], plan: Plan) -> int:
        total = 0
        for item in items:
            if getattr(item, "phase", None) != Phase.RECOMPUTE:
                continue
            if isinstance(item, Operator):
                total += self._prices.operator_ns(item.name, item.signature)
            else:
                total += self._prices.exchanges_ns([item], plan)  # type: ignore[list-item]
        return total

    def _options_of(self, layer: Layer) -> tuple[_AgainOption, ...]:
        """What a layer of a kind can compute again, without what keeps more in more time."""
        software = software_of(self._plan)
        found: list[_AgainOption] = []
        for word in _words_of(self._model, layer):
            plan = replace(self._plan, recompute_of_layer=(word,) * self._model.num_layers)
            own = plan_of_layer(plan, layer.index)
            passes = blocks_of_model(self._model, own).layers[layer.index]
            again_ns = self._items_ns(passes.backward.items, own)
            kept = layer_bytes(self._model, own, software, layer=layer).kept_bytes
            found.append(_AgainOption(word, kept, again_ns))
        found.sort(key=lambda one: (one.again_ns, one.kept))
        best: list[_AgainOption] = []
        for one in found:
            if not best or one.kept < best[-1].kept:
                best.append(one)
        return tuple(best)

    def _layers_by_place(self) -> list[Mapping[Layer, int]]:
        """How many layers of each kind each chunk of a route has."""
        counts: list[Mapping[Layer, int]] = []
        at = 0
        for size in self._split:
            own: dict[Layer, int] = {}
            for layer in self._model.layers[at : at + size]:
                own[layer.kind] = own.get(layer.kind, 0) + 1
            counts.append(own)
            at += size
        return counts

    def _held_by(self, stage: int) -> Float64s:
        """How often each variable's layers stand on a stage: once for each route."""
        schedule = self._schedule
        times = np.zeros(len(self._split))
        for route in schedule.routes:
            for place, chunk in enumerate(route):
                times[place] += schedule.stage_of_chunk[chunk] == stage
        return np.array([times[one.place] for one in self._variables], float)

    def _worst_moments(self, plan: Plan) -> list[tuple[Float64s, float]]:
        """Of every stage that is too full, its worst moment as a row of the program."""
        found = self._memory.footprint(plan, self._schedule)
        words = plan.recompute_of_layer or (Recompute.NONE.value,) * self._model.num_layers
        kept_of = self._kept_by_place(words)
        rows = []
        for stage in found.stages:
            flying = self._in_flight(stage.stage, stage.peak_unit)
            linear = float(flying @ kept_of)
            # What lives for a moment beside what is kept; it is taken to stay as it is.
            rest = stage.total - linear
            weights = [flying[one.place] * one.option.kept / _GIB for one in self._variables]
            rows.append((np.array(weights), (self._capacity - rest) / _GIB))
        return rows

    def _kept_by_place(self, words: Sequence[str]) -> Float64s:
        """Bytes that the layers of each chunk keep of one microbatch."""
        by_word = {
            (kind, one.word): one.kept for kind, some in self._options.items() for one in some
        }
        kept = [by_word[layer.kind, words[layer.index]] for layer in self._model.layers]
        ends = np.cumsum([0, *self._split])
        return np.array(
            [sum(kept[ends[at] : ends[at + 1]]) for at in range(len(self._split))], float
        )

    def _in_flight(self, stage: int, unit: int) -> Float64s:
        """Microbatches of each chunk along the model that a stage keeps at one of its units."""
        orders = self._schedule.orders
        first = int(orders.begin[stage])
        kinds, chunks = orders.kind[first:], orders.chunk[first:]
        begun = np.bincount(
            chunks[: unit + 1][kinds[: unit + 1] == Pass.FORWARD], minlength=len(self._place)
        )
        done = (kinds[:unit] == Pass.BACKWARD) | (kinds[:unit] == Pass.INPUT)
        ended = np.bincount(chunks[:unit][done], minlength=len(self._place))
        flying = np.zeros(len(self._split))
        np.add.at(flying, self._place, (begun - ended)[: len(self._place)])
        return flying

    @cached_property
    def _place(self) -> Int64s:
        """int64[chunks], where each stands along the model."""
        found = np.zeros(len(self._schedule.stage_of_chunk), np.int64)
        for route in self._schedule.routes:
            found[list(route)] = np.arange(len(route))
        return found


def _words_of(model: Transformer, layer: Layer) -> tuple[str, ...]:
    """What a layer of a kind can be told to compute again."""
    modules = [RecomputeModule.CORE_ATTENTION, RecomputeModule.LAYER_NORM]
    if model.attention.latent is not None:
        modules.append(RecomputeModule.LATENT_UP)
    if layer.has_experts and model.experts is not None:
        modules += [RecomputeModule.EXPERT_ACTIVATION, RecomputeModule.EXPERTS]
        modules += [RecomputeModule.SHARED_EXPERTS] if model.experts.num_shared else []
    elif layer.has_feed_forward:
        modules.append(RecomputeModule.FEED_FORWARD)
    named = [
        "+".join(some)
        for count in range(1, _MOST_MODULES + 2)
        for some in combinations(modules, count)
    ]
    return (*map(str, Recompute), *named, "+".join(modules))
