"""`PlanSpace`: the plans that a search looks through, stated before it begins.

A variable has values; what the user's draft states has that one. dp follows from the number of
ranks. Combinations that mean the same plan (schedules without a pipeline) come once.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

from foretrace.answer import Plain
from foretrace.base import ScenarioError, WorkloadError
from foretrace.search.variables import (
    MADE,
    SpaceLimits,
    Variable,
    more_of,
    named,
    variables,
)
from foretrace.workload import (
    Axis,
    Plan,
    PlanDraft,
    Recompute,
    axis_sizes,
    with_fields,
)

_MOST_PLANS = 2_000_000  # combinations: what is listed one by one
_MOST_IN_TURN = 100_000  # of them, which take a few seconds
_DEGREES = ("tensor", "context", "pipeline")
MEMORY = "peak_gb"  # a column of plans whose memory is known
_DOES_NOT_FIT = "memory does not fit"

Row = Mapping[str, object]  # the columns of a plan

_OFTEN = 500  # plans between two looks at the clock

_GOLDEN = 0.618  # of all plans: after steps of so many, plans of every kind come early
# Of a layer's forward and backward pass, what computing all of it again adds: a forward pass.
_AGAIN = {Recompute.NONE: 0.0, Recompute.SELECTIVE: 0.0, Recompute.FULL: 1 / 3}
_ALIKE = 0.1  # shares of a step's work within which plans promise as much


@dataclass(frozen=True)
class PlanSpace:
    """All combinations of variables, beside what is the same for all."""

    base: Plan
    num_ranks: int
    variables: tuple[Variable, ...]

    @property
    def num_combinations(self) -> int:
        """Before any is refused."""
        found = 1
        for variable in self.variables:
            found *= len(variable.choices)
        return found

    def plans(self) -> Iterator[Plan]:
        """Every combination whose degrees divide the ranks, each plan once; in a fixed order."""
        for chosen in self._combinations():
            fields = {name: value for choice in chosen for name, value in choice.items()}
            tensor, context, pipeline = (
                fields.get(name, getattr(self.base, name)) for name in _DEGREES
            )
            if pipeline == 1 and not _is_flat(fields):
                continue
            data, rest = divmod(self.num_ranks, tensor * context * pipeline)
            if rest == 0:
                made = {name: fields.pop(name, None) for name in MADE}
                plan: Plan | None = replace(self.base, data=data, **fields)
                for name, value in made.items():
                    if plan is not None and value is not None:
                        plan = MADE[name](plan, value)
                if plan is not None and self._is_first(plan):
                    yield plan

    def _combinations(self) -> Iterator[tuple[Mapping[str, Any], ...]]:
        """In turn; of very many, those in a row are far apart, so that the first are of all kinds.

        Who has no time for all of them has looked everywhere.
        """
        choices = [variable.choices for variable in self.variables]
        count = self.num_combinations
        if count <= _MOST_IN_TURN:
            yield from product(*choices)
            return
        for number in far_apart(count):
            chosen, left = list[Mapping[str, Any]](), number
            for own in reversed(choices):
                left, at = divmod(left, len(own))
                chosen.append(own[at])
            yield tuple(reversed(chosen))

    def _is_first(self, plan: Plan) -> bool:
        """Whether it is the one that stands for all whose ranks stand alike."""
        sizes = axis_sizes(plan)
        long = [axis for axis in plan.order if sizes[axis] > 1]
        if (plan.outer_data or 1) > 1 and long[-1:] == [Axis.DATA]:
            return False
        in_turn = iter(long)
        return plan.order == tuple(
            next(in_turn) if sizes[axis] > 1 else axis for axis in self.base.order
        )


def _is_flat(fields: Mapping[str, object]) -> bool:
    """Whether a choice of schedules is the one that stands for all without a pipeline."""
    return fields.get("schedule", "1f1b") == "1f1b"


def plan_space(
    draft: PlanDraft, limits: SpaceLimits, num_ranks: int, *, vary: Sequence[str] = ()
) -> PlanSpace:
    """The space of a job on so many ranks; what a draft states is left as it is.

    Args:
        draft: what is stated.
        limits: of the job's model.
        num_ranks: that every plan has.
        vary: names of more variables, of `MORE_VARIABLES`.

    Raises:
        WorkloadError: if the batch is not stated, the space is too large to be listed, or a
            variable is none or is stated.
    """
    if not draft.states("global_batch"):
        raise WorkloadError(
            "a search needs to know how many sequences a step has: state global_batch "
            "(--global-batch 2048)"
        )
    if draft.states("data"):
        raise WorkloadError(
            "dp follows from the number of GPUs and the other degrees in a search: leave it out, "
            "and state tp, cp or pp"
        )
    base = draft.plan()
    if not draft.states("sequence") and limits.context is not None:
        base = with_fields(base, {"sequence": limits.context})
    if draft.states("tensor") and not draft.states("sequence_parallel"):
        base = with_fields(base, {"sequence_parallel": base.tensor > 1})  # as where tp is searched
    return space_over(base, draft, limits, num_ranks, vary=vary)


def space_over(
    base: Plan,
    draft: PlanDraft,
    limits: SpaceLimits,
    num_ranks: int,
    *,
    vary: Sequence[str] = (),
) -> PlanSpace:
    """All that a draft leaves open, over a plan that has the rest.

    Raises:
        WorkloadError: as `plan_space`.
    """
    names = (one for name in vary for one in named(name))
    more = (more_of(name, draft, limits, num_ranks) for name in dict.fromkeys(names))
    found = PlanSpace(base, num_ranks, (*variables(draft, limits, num_ranks), *more))
    if found.num_combinations > _MOST_PLANS:
        raise WorkloadError(
            f"the space has {found.num_combinations:,} combinations, and a search lists at most "
            f"{_MOST_PLANS:,}: state some keys, as in --tp 8 or --recompute none"
        )
    return found


def columns_of(plan: Plan) -> dict[str, int | str]:
    """What tables show of a plan, and constraints may name."""
    return {
        "tp": plan.tensor,
        "cp": plan.context,
        "pp": plan.pipeline,
        "dp": plan.data,
        "ep": plan.expert,
        "micro_batch": plan.micro_batch,
        "microbatches": plan.num_microbatches,
        "schedule": plan.schedule,
        "chunks": plan.num_chunks,
        "sharding": plan.sharding.value,
        "recompute": plan.recompute.value,
        "order": "-".join(axis.value for axis in plan.order),
        "outer_dp": plan.outer_data or 1,
        "experts": plan.expert_stride or 1,
        "contiguous": str(plan.contiguous or "pp"),
        "buckets": str(plan.bucket_bytes or "rule"),
        "reduced": plan.precision.reduced,
        "channels": str(plan.channels.data or "rule"),
        "first": "" if plan.first is None else plan.first.value,
        "local_steps": plan.local_steps or 1,
        "shard_ranks": plan.shard_ranks or 0,
        "overlap": "+".join(name for name, on in vars(plan.overlap).items() if on),
        "precision": plan.precision.products,
        "layers": "even" if plan.layers_of_chunk is None else _ends_text(plan.layers_of_chunk),
        "gpus": plan.num_ranks,
    }


def _ends_text(layers: Sequence[int]) -> str:
    """Of the first chunk, of those between at most, and of the last one."""
    return f"{layers[0]}..{max(layers)}..{layers[-1]}"


@dataclass(frozen=True)
class Refusal(Plain):
    """Why plans of the space are none to choose from."""

    reason: str  # with N in the place of numbers
    count: int
    example: str  # of the first of them, in full


@dataclass(frozen=True)
class Listed:
    """Plans that can run, in the order of the space."""

    plans: tuple[Plan, ...]
    peak_bytes: tuple[int | None, ...]  # of the fullest stage; `None`: not known
    num_seen: int
    refusals: tuple[Refusal, ...]  # the most frequent first
    is_whole: bool = True  # no plan of the spaces was left for want of time

    def all_refusals(self, late: Iterable[str]) -> tuple[Refusal, ...]:
        """Why plans were left out, when they were listed or, later, when they were simulated."""
        counts = Counter({one.reason: one.count for one in self.refusals})
        examples = {one.reason: one.example for one in self.refusals}
        for text in late:
            counts[short_reason(text)] += 1
            examples.setdefault(short_reason(text), text)
        return tuple(Refusal(one, count, examples[one]) for one, count in counts.most_common())

    def nothing(self, late: Collection[str], on: Sequence[str]) -> WorkloadError:
        """That none of them can run on what is named, or was simulated in time."""
        if self.plans and not late:
            return WorkloadError(
                "the search was stopped before any plan was simulated: give it more time (--time)"
            )
        most = "; ".join(f"{one.count:,} x {one.example}" for one in self.all_refusals(late)[:2])
        return WorkloadError(
            f"no plan of {self.num_seen:,} can run {' on '.join(on)} "
            f"as asked ({most or 'none was listed in time'}): take more GPUs, or ask for less"
        )


@dataclass(frozen=True)
class ListedSoFar:
    """How far plans are listed."""

    num_plans: int  # that were looked at
    num_fit: int  # of them
    share: float  # of the spaces, with the one that is being listed


class Listing:
    """The plans of spaces that are legal, meet the constraints and fit, as far as there is time."""

    def __init__(
        self,
        spaces: Sequence[PlanSpace],
        peak_bytes: Callable[[Plan], int | None],
        *,
        capacity: int | None,
        assumed: Plan | None = None,
        check: Callable[[Row], None] | None = None,
    ) -> None:
        """Nothing is looked at yet.

        Args:
            spaces: as stated.
            peak_bytes: of the fullest stage of a plan, `None` if that is not known; refuses plans
                that cannot run.
            capacity: bytes of one chip that plans may take; `None`: not known.
            assumed: the plan that is taken where nobody searches, which comes first.
            check: refuses plans by their columns.
        """
        self._peak_bytes, self._capacity, self._check = peak_bytes, capacity, check
        self._assumed = assumed
        self._left = [space.plans() for space in spaces]
        self._num_spaces, self._num_seen = len(spaces), 0
        self._plans: list[Plan] = []
        self._peaks: list[int | None] = []
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}
        if assumed is not None:
            self._look_at(assumed)

    def more(self, goes_on: Callable[[ListedSoFar], bool] = lambda _: True) -> Listed:
        """All that is listed, with plans that were not looked at before.

        Args:
            goes_on: called now and then; says whether to go on with the same space.
        """
        unfinished = []
        for at, space in enumerate(self._left, 1 + self._num_spaces - len(self._left)):
            for plan in space:
                if plan != self._assumed:
                    self._look_at(plan)
                self._num_seen += 1
                seen = ListedSoFar(self._num_seen, len(self._plans), at / self._num_spaces)
                if self._num_seen % _OFTEN == 0 and not goes_on(seen):
                    unfinished.append(space)
                    break
        self._left = unfinished
        refusals = tuple(
            Refusal(reason, count, self._examples[reason])
            for reason, count in self._counts.most_common()
        )
        return Listed(
            tuple(self._plans), tuple(self._peaks), self._num_seen, refusals, not unfinished
        )

    def _look_at(self, plan: Plan) -> None:
        """Take a plan in, or count why not."""
        try:
            peak = self._peak_bytes(plan)
            if peak is not None and self._capacity is not None and peak > self._capacity:
                _refuse(peak, self._capacity)
            if self._check is not None:
                self._check({**columns_of(plan), **_memory_column(peak)})
        except (WorkloadError, ScenarioError) as err:
            reason = short_reason(str(err))
            self._counts[reason] += 1
            self._examples.setdefault(reason, str(err))
        else:
            self._plans.append(plan)
            self._peaks.append(peak)


def short_reason(text: str) -> str:
    """Why a plan was refused, without its numbers: the same for plans alike."""
    return re.sub(r"\d[\d,.]*", "N", text.partition(":")[0])


def _memory_column(peak: int | None) -> dict[str, float]:
    return {} if peak is None else {MEMORY: peak / 1e9}


def _refuse(peak: int, capacity: int) -> None:
    raise WorkloadError(
        f"{_DOES_NOT_FIT}: {peak / 1e9:.1f} GB on the fullest stage, and a chip has "
        f"{capacity / 1e9:.1f} GB for it"
    )


def far_apart(count: int) -> Iterator[int]:
    """The numbers below `count`, each once, those in a row far apart."""
    stride = max(round(_GOLDEN * count), 1)
    while math.gcd(stride, count) > 1:
        stride += 1
    return (at * stride % count for at in range(count))


def promising_last(plans: Sequence[Plan], numbers: Sequence[int]) -> list[int]:
    """Numbers of plans, those that idle and repeat least at the end.

    Plans that are about alike by that are far apart, so that some of every kind are near the end.

    Args:
        plans: of a space.
        numbers: of some of them.
    """
    spread = [numbers[at] for at in far_apart(len(numbers))]
    return sorted(spread, key=lambda number: -_wasted(plans[number]))


def _wasted(plan: Plan) -> int:
    """What a plan adds to its work, in `_ALIKE`: computed again, and to fill and drain stages."""
    idle = (plan.pipeline - 1) / (plan.num_microbatches * plan.num_chunks)
    return int(((1 + _AGAIN[plan.recompute]) * (1 + idle) - 1) / _ALIKE)
