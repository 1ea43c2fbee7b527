"""`searched`: best first, from bounds over units to kernels, until the gap is closed.

1. Plans of the space that are legal and fit get a closed lower bound. Where there is no time for
   all of them, some of every kind have one, and the search goes on with these.
2. The plan whose bound is the lowest is looked at next: its schedule is run for a higher bound,
   then its step is simulated unit by unit. No plan that is left can be better than the lowest
   bound of all, so that bound and the best step found say how much there is still to gain.
3. The best few are simulated kernel by kernel, which decides between them.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from foretrace.base import Mapper, ScenarioError, WorkloadError, mapped
from foretrace.search.alone import Freed, best_alone, freed_in_turn
from foretrace.search.constraints import Constraint
from foretrace.search.found import Evaluated, PlanSearch, SearchMoment, Stopped, value_table
from foretrace.search.grounds import NUM_LEADERS, SearchGround, asked
from foretrace.search.looked import Looked, unbeaten
from foretrace.search.objectives import Objective, Target
from foretrace.search.progress import Progress, Rung, SearchClock, SearchOptions
from foretrace.search.space import (
    Listed,
    ListedSoFar,
    Listing,
    columns_of,
    promising_last,
)
from foretrace.search.state import P95, QUICK, RUN, UNITS, SearchState, kept_state
from foretrace.workload import Plan

_ALONE = 3  # times as long as all at once, for dimensions alone
# Shares of the time: then what is listed is gone on with, though there are more plans; of what
# listing left, plans with bounds are simulated then though others have none yet; then the best
# are simulated kernel by kernel.
_TO_LIST, _TO_BOUND, _TO_SIMULATE = 0.3, 0.6, 0.9
_OFTEN = 50  # bounds, then plans are simulated again
_GROUPS = 8  # of plans that are bounded together, for each process at once


def searched_on(
    ground: SearchGround, options: SearchOptions | None = None, *, beside: Plan | None = None
) -> PlanSearch:
    """The best plan of a ground's spaces.

    Args:
        ground: plans, their bounds, and how one is simulated.
        options: as in `searched`.
        beside: a complete plan that the best is held beside.

    Raises:
        WorkloadError: as `searched`.
    """
    options = options or SearchOptions()
    with mapped(options.workers, options.engine) as over:
        return _Search(ground, options, beside, over).found()


@dataclass
class _Search:
    """One search, and what it is about."""

    ground: SearchGround
    options: SearchOptions
    beside: Plan | None
    over: Mapper
    wanted: Constraint | None = field(init=False)
    target: Target = field(init=False)
    state: SearchState = field(init=False)
    listing: Listing = field(init=False)
    listed: Listed = field(init=False)
    refused: dict[int, str] = field(init=False, default_factory=dict)  # when simulated
    freed: dict[str, Freed] = field(init=False, default_factory=dict)  # by dimension
    kernels: dict[int, Looked] = field(init=False, default_factory=dict)
    works: set[Hashable] = field(init=False, default_factory=set)  # of ranks, that were timed

    def __post_init__(self) -> None:
        where = self.options.where
        self.wanted = None if where is None else Constraint.of(where)
        promises = self.wanted.promises if self.wanted else ()
        self.target = replace(self.options.target, promises=promises)

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Those that can run and fit."""
        return self.listed.plans

    def found(self) -> PlanSearch:
        """The answer, as far as time allows."""
        clock, resume = SearchClock(self.options.limits), self.options.resume
        self.listing = self.ground.listing(self.wanted, margin=self.options.margin)
        self.listed = self._more(clock)
        if not self.plans:
            raise self.listed.nothing(self.refused.values(), self.ground.names)
        question, own = dict[str, object](), self.options
        if resume is not None:
            question = asked(
                self.ground, self.plans, self.wanted, version=own.version, margin=own.margin
            )
        with kept_state(resume, question) as self.state:
            return self._found(clock)

    def _found(self, clock: SearchClock) -> PlanSearch:
        history, stopped = list[SearchMoment](), Stopped.INTERRUPTED
        chosen, *worse = self.target.groups(self.plans, self.listed.peak_bytes)
        of_alone = _ALONE if self.options.alone else 0
        own = clock.part(1 / (1 + len(self.target.also) + of_alone))
        with suppress(KeyboardInterrupt):
            stopped = self._best_first(chosen, own, history)
            while stopped is not Stopped.TIME:
                if not self.listed.is_whole and own.is_past(_TO_SIMULATE):
                    stopped = Stopped.TIME
                    break
                if not self.listed.is_whole:
                    self.listed = self._more(own)
                    chosen, *worse = self.target.groups(self.plans, self.listed.peak_bytes)
                elif worse and stopped is Stopped.EXHAUSTED and not self._times(chosen):
                    chosen = worse.pop(0)
                else:
                    break
                stopped = self._best_first(chosen, own, history)
            took_s = own.spent_s
            self._ends_of_front(clock, took_s, of_alone)
            if self.options.alone:
                self._each_alone(chosen, clock.part(1.0, most_s=_ALONE * took_s))
        return self._answer(chosen, clock, stopped, tuple(history))

    def _ends_of_front(self, clock: SearchClock, took_s: float, of_others: int) -> None:
        """Look for the best by each of the other objectives too, as long as the first took."""
        target = self.target
        for at, objective in enumerate(target.also):
            self.target = target.first(objective)
            rest = clock.part(1 / (len(target.also) - at + of_others), most_s=took_s)
            self._best_first(self.target.groups(self.plans, self.listed.peak_bytes)[0], rest, [])
        self.target = target

    def _each_alone(self, chosen: Sequence[int], rest: SearchClock) -> None:
        """Look for the best of each dimension with all others as by default, and from the best."""

        def look(plans: Sequence[int]) -> tuple[int, bool]:
            stopped = self._best_first(plans, rest, [])
            self._closely(plans, rest)
            return min(self.kernels.values(), key=self._order).number, stopped is Stopped.TIME

        default = self.beside or self.ground.assumed
        if default is not None:
            columns = {plan: columns_of(self.plans[plan]) for plan in chosen}
            over = partial(rest.is_past, 1.0)
            self.freed = freed_in_turn(columns_of(default), columns, look, is_over=over)

    def _more(self, clock: SearchClock) -> Listed:
        """All that is listed, with what part of the time that is left is enough for."""
        total = sum(one.num_combinations for one in self.ground.spaces)
        own = clock.part(_TO_LIST)

        def goes_on(seen: ListedSoFar) -> bool:
            self.options.progress(Progress(Rung.LISTED, seen.num_plans, total))
            return not (own.is_past(seen.share) if seen.num_fit else clock.is_over)

        return self.listing.more(goes_on)

    def _value(self, plan: int, step_ns: int) -> float:
        return self.target.value(self.plans[plan], step_ns)

    def _times(self, chosen: Sequence[int]) -> dict[int, int]:
        """Of plans that were simulated and keep what is asked."""
        found = self.state.found[self.last]
        return {plan: found[plan] for plan in self._left(chosen) if plan in found}

    def _left(self, numbers: Sequence[int]) -> list[int]:
        """Those that were not refused."""
        return [one for one in numbers if one not in self.refused]

    def _breaks(self, plan: int, step_ns: int) -> bool:
        """Leave a plan out whose step, or a bound of it, breaks a promise."""
        if broken := self.target.broken(self.plans[plan], step_ns):
            self.refused[plan] = broken
        return bool(broken)

    def _best_first(
        self, chosen: Sequence[int], clock: SearchClock, history: list[SearchMoment]
    ) -> Stopped:
        """Look at the plan with the lowest bound, until none is left that could be much better."""
        todo, heap = self._grouped(chosen), list[tuple[float, int]]()
        best = self._assumed(chosen)
        self._bound_some(todo, heap, clock, share=_TO_BOUND)
        while heap or todo:
            gap = 1.0 if best is None or not heap else max(1 - heap[0][0] / best[0], 0.0)
            is_near = gap <= self.options.limits.gap
            if best is not None:
                self._told(history, clock, best[1], gap=None if todo else gap, left=len(heap))
            if is_near and not todo:
                return Stopped.EXHAUSTED if gap == 0 else Stopped.GAP
            if best is not None and clock.is_past(_TO_SIMULATE):
                return Stopped.TIME
            if todo and (is_near or not heap):
                self._bound_some(todo, heap, clock, most=_OFTEN)
                continue
            plans = self._next(heap, best, clock)
            self._simulate(plans)
            for plan in self._left(plans):
                own = (self._value(plan, self.state.found[self.last][plan]), plan)
                best = own if best is None else min(best, own)
        if best is not None:
            self._told(history, clock, best[1], gap=0.0, left=0)
        return Stopped.EXHAUSTED

    def _assumed(self, chosen: Sequence[int]) -> tuple[float, int] | None:
        """The plan that `estimate` would assume, simulated first: what is found is never worse."""
        assumed = self.ground.assumed
        numbers = [one for one in chosen if self.plans[one] == assumed][:1]
        self._simulate(numbers)
        times = self._times(numbers).items()
        return next(((self._value(number, own_ns), number) for number, own_ns in times), None)

    def _next(
        self, heap: list[tuple[float, int]], best: tuple[float, int] | None, clock: SearchClock
    ) -> list[int]:
        """Plans to simulate: as many as there are processes, of those with the lowest bounds."""
        found: list[int] = []
        enough = math.inf if best is None else best[0] * (1 - self.options.limits.gap)
        while heap and len(found) < self.options.workers and heap[0][0] < enough:
            if best is not None and clock.is_past(_TO_SIMULATE):
                break
            plan = heapq.heappop(heap)[1]
            if self.state.known(RUN, plan) is None:
                self.state.tell(RUN, plan, self.ground.run_ns(self.plans[plan]))
                if not self._breaks(plan, self.state.bound_ns(plan)):
                    heapq.heappush(heap, (self._bound(plan), plan))
            elif self.last == P95 and self.state.known(UNITS, plan) is None:
                self._reach(UNITS, [plan])
                if plan not in self.refused:
                    heapq.heappush(heap, (self._bound(plan), plan))
            else:
                found.append(plan)
        return found

    def _simulate(self, numbers: Sequence[int]) -> None:
        """Simulate plans unit by unit that were not yet; sample their steps where that decides."""
        self._reach(UNITS, numbers)
        for plan in self._left(numbers):
            self._breaks(plan, self.state.found[UNITS][plan])
        if self.last == P95:
            self._reach(P95, self._left(numbers))

    def _reach(self, rung: str, numbers: Sequence[int]) -> None:
        new = [one for one in numbers if self.state.known(rung, one) is None]
        if not new:
            return
        finds = self.ground.samples if rung == P95 else self.ground.simulates
        for number, found in zip(
            new, self.over(finds, [self.plans[one] for one in new]), strict=True
        ):
            if isinstance(found, str):
                self.refused[number] = found
            else:
                self.state.tell(rung, number, found)

    @property
    def last(self) -> str:
        """The rung that decides."""
        return P95 if self.target.objective is Objective.P95 else UNITS

    def _bound(self, plan: int) -> float:
        rungs = (QUICK, RUN, UNITS) if self.last == P95 else (QUICK, RUN)
        return self._value(plan, self.state.bound_ns(plan, rungs))

    def _grouped(self, chosen: Sequence[int]) -> list[list[int]]:
        """Plans whose ranks do the same together, the most promising groups at the end."""
        groups: dict[Hashable, list[int]] = {}
        for plan in reversed(promising_last(self.plans, chosen)):
            groups.setdefault(self.ground.work_key(self.plans[plan]), []).append(plan)
        return list(groups.values())[::-1]

    def _bound_some(
        self,
        todo: list[list[int]],
        heap: list[tuple[float, int]],
        clock: SearchClock,
        *,
        most: int | None = None,
        share: float = _TO_SIMULATE,
    ) -> None:
        """Give groups that have none their bounds: at least one, and until so much time is over."""
        left = sum(map(len, todo))
        total, until = left + len(heap), 0 if most is None else max(left - most, 0)
        workers = self.options.workers
        at_once = 1 if workers == 1 or most is not None else _GROUPS * workers
        while left > until:
            groups = [todo.pop() for _ in range(min(at_once, len(todo)))]
            self._bound_all(groups)
            for plan in (one for group in groups for one in group if one not in self.refused):
                if not self._breaks(plan, self.state.bound_ns(plan)):
                    heapq.heappush(heap, (self._bound(plan), plan))
            left -= sum(map(len, groups))
            if most is None:
                self.options.progress(Progress(Rung.BOUNDED, total - left, total))
            if clock.is_past(share):
                break

    def _bound_all(self, groups: Sequence[Sequence[int]]) -> None:
        """Give plans their bounds, each group's by one process."""
        self.works.update(self.ground.work_key(self.plans[group[0]]) for group in groups)
        new = [[one for one in group if self.state.known(QUICK, one) is None] for group in groups]
        new = [group for group in new if group]
        asked_of = [[self.plans[one] for one in group] for group in new]
        for group, found in zip(new, self.over(self.ground.bounds, asked_of), strict=True):
            for plan, bound in zip(group, found, strict=True):
                if isinstance(bound, str):
                    self.refused[plan] = bound
                else:
                    self.state.tell(QUICK, plan, bound)

    def _told(
        self,
        history: list[SearchMoment],
        clock: SearchClock,
        best: int,
        *,
        gap: float | None,
        left: int,
    ) -> None:
        known = self.state.found[self.last]
        best_ns, simulated = known[best], len(known)
        last = history[-1] if history else None
        if gap is not None and (last is None or (last.best_ns, last.gap) != (best_ns, gap)):
            history.append(SearchMoment(clock.spent_s, best_ns, gap))
        self.options.progress(Progress(Rung.SIMULATED, simulated, simulated + left, best_ns, gap))

    def _answer(
        self,
        chosen: Sequence[int],
        clock: SearchClock,
        stopped: Stopped,
        history: tuple[SearchMoment, ...],
    ) -> PlanSearch:
        state, times = self.state, self._times(chosen)
        if not times:
            raise self.listed.nothing(self.refused.values(), self.ground.names)
        self.options.progress(Progress(Rung.LEADERS, 0, 1))
        self._closely(chosen, clock)
        leaders = sorted(self.kernels.values(), key=self._order)[:NUM_LEADERS]
        best = leaders[0]
        others = [plan for plan in self._left(chosen) if plan not in times]
        is_bounded = self.listed.is_whole and all(
            state.known(QUICK, plan) is not None for plan in others
        )
        found = min(self._value(plan, step_ns) for plan, step_ns in times.items())
        lower = min((self._bound(plan) for plan in others), default=found)
        reached = self._value(best.number, times[best.number])
        return PlanSearch(
            model=self.ground.names[0],
            machine=self.ground.names[1],
            is_recorded=self.ground.is_recorded,
            objective=self.target.objective.value,
            objectives=self.target.objectives,
            best=best,
            leaders=tuple(leaders),
            own=self._held(self.beside),
            default=self._held(self.ground.assumed),
            gap=max(1 - min(lower, found) / reached, 0.0) if is_bounded else None,
            stopped=stopped,
            evaluated=Evaluated(
                listed=self.listed.num_seen,
                is_whole=self.listed.is_whole,
                fit=len(self.plans) - len(self.refused),
                bounded=len(state.found[QUICK]),
                run=len(state.found[RUN]),
                units=len(state.found[UNITS]),
                kernels=sum(one.step_parts is not None for one in self.kernels.values()),
                rank_works=len(self.works),
            ),
            refusals=self.listed.all_refusals(self.refused.values()),
            pareto=self._pareto(),
            worth=value_table(
                {plan: columns_of(self.plans[plan]) for plan in (*times, *others)},
                state.found[UNITS],
                {plan: ns for plan in others if (ns := state.bound_ns(plan))},
            ),
            alone=best_alone(self.freed, sorted(self.kernels.values(), key=self._order)),
            history=history,
            spent_s=clock.spent_s,
        )

    def _order(self, one: Looked) -> tuple[bool, float, int]:
        """The best first, of what was simulated kernel by kernel."""
        value = self._value(one.number, one.p95_ns or one.step_ns)
        return bool(self.target.broken(one.plan, one.step_ns)), value, one.number

    def _closely(self, plans: Sequence[int], clock: SearchClock) -> None:
        """Simulate the best kernel by kernel, one at least and others while there is time."""
        times = self._times(plans)
        ranked = sorted(times, key=lambda plan: (self._value(plan, times[plan]), plan))
        for place, plan in enumerate(ranked[: self.ground.num_leaders]):
            if place and clock.is_over:
                break
            if plan not in self.kernels:
                found = self.ground.looked(
                    self.plans[plan], number=plan, unit_ns=self.state.known(UNITS, plan)
                )
                p95_ns = self.state.known(P95, plan)
                self.kernels[plan] = self._told_of(replace(found, p95_ns=p95_ns))

    def _told_of(self, one: Looked) -> Looked:
        """With what each objective says of it, and how failures are recovered from."""
        figures = {
            objective.value: self.target.figure(objective, one.plan, one.step_ns)
            for objective in self.target.asked
            if objective not in {Objective.STEP, Objective.HEADROOM, Objective.P95}
        }
        return replace(one, figures=figures, recovery=self.target.recovery(one.plan))

    def _held(self, plan: Plan | None) -> Looked | None:
        """A plan that the best is held beside, if it can run."""
        if known := next((one for one in self.kernels.values() if one.plan == plan), None):
            return known
        with suppress(WorkloadError, ScenarioError):
            if plan is not None:
                return self._told_of(self.ground.looked(plan, number=-1, unit_ns=None))
        return None

    def _pareto(self) -> tuple[Looked, ...]:
        """Of the simulated plans, those that none is better than by all objectives at once."""
        simulated = {
            plan: Looked.by_units(
                self.plans[plan],
                step_ns,
                number=plan,
                peak_bytes=self.listed.peak_bytes[plan],
                p95_ns=self.state.known(P95, plan),
                capacity=self.ground.capacity,
            )
            for plan, step_ns in self.state.found[UNITS].items()
            if plan not in self.refused
        }
        best = unbeaten({plan: self.target.front(one) for plan, one in simulated.items()})
        return tuple(self._told_of(simulated[plan]) for plan in best)
