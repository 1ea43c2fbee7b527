"""`PlanSpace`: the plans that a search looks through, stated before it begins.

A variable has values; what the user's draft states has that one. dp follows from the number of
ranks. Combinations that mean the same plan (schedules without a pipeline) come once.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

from foretrace.answer import Plain
from foretrace.base import ScenarioError, WorkloadError
from foretrace.workload import (
    Plan,
    PlanDraft,
    Recompute,
    Sharding,
    Transformer,
    chunk_layers,
    with_fields,
)

_MOST_TENSOR, _MOST_CONTEXT, _MOST_PIPELINE, _MOST_EXPERT = 16, 16, 64, 256
_MICRO_BATCHES = (1, 2, 4)
_MOST_CHUNKS = 16
_MOST_CONTIGUOUS = 64
_MOST_PLANS = 2_000_000  # combinations: what is listed one by one
_DEGREES = ("tensor", "context", "pipeline")
MEMORY = "peak_gb"  # a column of plans whose memory is known
_DOES_NOT_FIT = "memory does not fit"


@dataclass(frozen=True)
class Variable:
    """One key of a plan, or several that go together, and what they may be."""

    name: str  # as in tables and constraints
    choices: tuple[Mapping[str, Any], ...]  # fields of `Plan`


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
        for chosen in product(*(variable.choices for variable in self.variables)):
            fields = {name: value for choice in chosen for name, value in choice.items()}
            tensor, context, pipeline = (
                fields.get(name, getattr(self.base, name)) for name in _DEGREES
            )
            if pipeline == 1 and not _is_flat(fields):
                continue
            data, rest = divmod(self.num_ranks, tensor * context * pipeline)
            if rest == 0:
                fewer = fields.pop(_FEWER_AT_ENDS, None)
                plan = replace(self.base, data=data, **fields)
                if fewer is not None:
                    split = _uneven_layers(plan, *fewer)
                    if split is None:
                        continue
                    plan = replace(plan, layers_of_chunk=split)
                yield plan


def _is_flat(fields: Mapping[str, object]) -> bool:
    """Whether a choice of schedules is the one that stands for all without a pipeline."""
    return fields.get("schedule", "1f1b") == "1f1b"


@dataclass(frozen=True, kw_only=True)
class SpaceLimits:
    """What of a job's model bounds the values of variables."""

    num_layers: int
    num_heads: int | None = None
    num_experts: int | None = None
    context: int | None = None  # tokens of a sequence, where nobody states them
    schedules: tuple[str, ...] = ("1f1b", "gpipe", "zb-h1", "dualpipe")  # of one chunk a stage

    @classmethod
    def of(cls, model: Transformer) -> SpaceLimits:
        """Those of a model."""
        return cls(
            num_layers=model.num_layers,
            num_heads=model.attention.num_heads,
            num_experts=None if model.experts is None else model.experts.count,
            context=model.context,
        )


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
    more = (_more(name, draft, limits, num_ranks) for name in vary)
    found = PlanSpace(base, num_ranks, (*_variables(draft, limits, num_ranks), *more))
    if found.num_combinations > _MOST_PLANS:
        raise WorkloadError(
            f"the space has {found.num_combinations:,} combinations, and a search lists at most "
            f"{_MOST_PLANS:,}: state some keys, as in --tp 8 or --recompute none"
        )
    return found


def _variables(draft: PlanDraft, limits: SpaceLimits, num_ranks: int) -> Iterator[Variable]:
    def degrees(most: int) -> list[int]:
        return [one for one in range(1, most + 1) if num_ranks % one == 0]

    if not draft.states("tensor"):
        turn_on = not draft.states("sequence_parallel")
        yield Variable(
            "tp",
            tuple(
                {"tensor": one, **({"sequence_parallel": one > 1} if turn_on else {})}
                for one in degrees(_MOST_TENSOR)
                if limits.num_heads is None or limits.num_heads % one == 0
            ),
        )
    if not draft.states("context"):
        yield _of_field("cp", "context", degrees(_MOST_CONTEXT))
    if not draft.states("pipeline"):
        most = min(_MOST_PIPELINE, limits.num_layers + 2)
        yield _of_field("pp", "pipeline", degrees(most))
    if limits.num_experts is not None and not draft.states("expert"):
        most = min(_MOST_EXPERT, limits.num_experts)
        counts = [one for one in degrees(most) if limits.num_experts % one == 0]
        alone = {} if draft.states("expert_tensor") else {"expert_tensor": 1}
        yield Variable("ep", tuple({"expert": one, **alone} for one in counts))
    if not draft.states("micro_batch"):
        yield _of_field("micro_batch", "micro_batch", _MICRO_BATCHES)
    yield from _of_schedules(draft, limits)
    if not draft.states("sharding"):
        yield _of_field("sharding", "sharding", tuple(Sharding))
    if not draft.states("recompute"):
        yield _of_field("recompute", "recompute", tuple(Recompute))


def _of_schedules(draft: PlanDraft, limits: SpaceLimits) -> Iterator[Variable]:
    chunks = range(2, min(_MOST_CHUNKS, limits.num_layers) + 1)
    if not draft.states("schedule"):
        names = limits.schedules
        if draft.states("num_chunks"):
            is_one = draft.plan().num_chunks == 1
            names = names if is_one else ("interleaved",)
            yield _of_field("schedule", "schedule", names)
            return
        plain = [{"schedule": name, "num_chunks": 1} for name in names]
        several = [{"schedule": "interleaved", "num_chunks": one} for one in chunks]
        yield Variable("schedule", (*plain, *several))
    elif not draft.states("num_chunks") and draft.plan().schedule == "interleaved":
        yield _of_field("schedule", "num_chunks", list(chunks))


_FEWER_AT_ENDS = "fewer_at_ends"  # in the place of `Plan.layers_of_chunk`, which follows from it
_FIELDS = {  # of `Plan`, by the variable's name
    "order": "order",
    "contiguous": "contiguous",
    "shard_ranks": "shard_ranks",
    "overlap": "overlap",
    "precision": "precision",
    "layers": "layers_of_chunk",
}
MORE_VARIABLES = tuple(_FIELDS)


def _more(name: str, draft: PlanDraft, limits: SpaceLimits, num_ranks: int) -> Variable:
    """A variable that is searched where that is asked for."""
    if name not in _FIELDS:
        raise WorkloadError(
            f"no variable is called {name!r}: besides those that are always searched there are "
            f"{', '.join(_FIELDS)}"
        )
    field, plan = _FIELDS[name], draft.plan()
    if any(one.partition(".")[0] == field for one in draft.stated):
        raise WorkloadError(f"{name} is stated, and so there is nothing to search: leave one out")
    sizes = [2**at for at in range(1, num_ranks.bit_length()) if num_ranks % 2**at == 0]
    if name == "order":  # tensor ranks stay neighbours
        inner, *others = plan.order
        return _of_field(name, field, [(inner, *rest) for rest in permutations(others)])
    if name == "contiguous":
        return _of_field(name, field, [None, *(size for size in sizes if size <= _MOST_CONTIGUOUS)])
    if name == "shard_ranks":
        return _of_field(name, field, [None, *sizes])
    if name == "overlap":
        flags = ("pipeline", "gradients", "parameters")
        choices = product((True, False), repeat=len(flags))
        values = [replace(plan.overlap, **dict(zip(flags, one, strict=True))) for one in choices]
        return _of_field(name, field, values)
    if name == "precision":
        formats = dict.fromkeys((plan.precision.products, "fp8"))
        return _of_field(name, field, [replace(plan.precision, products=one) for one in formats])
    ends = [one for one in product(range(3), repeat=2) if any(one)]
    uneven = tuple({_FEWER_AT_ENDS: (*one, limits.num_layers)} for one in ends)
    return Variable(name, ({_FEWER_AT_ENDS: None}, *uneven))


def _uneven_layers(plan: Plan, first: int, last: int, num_layers: int) -> tuple[int, ...] | None:
    """Layers of chunks of which the first and the last have fewer; `None` where that is none.

    What does not come out even the chunks between have, the first of them.
    """
    parts = plan.pipeline * plan.num_chunks
    most, rest = divmod(num_layers + first + last, parts)
    if most < max(first, last) or rest > parts - 2:
        return None
    found = [most + (0 < at <= rest) for at in range(parts)]
    found[0] -= first
    found[-1] -= last
    even = chunk_layers(replace(plan, layers_of_chunk=None), num_layers)
    return None if tuple(found) == even else tuple(found)


def _of_field(name: str, field: str, values: Sequence[object]) -> Variable:
    return Variable(name, tuple({field: value} for value in values))


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
        "contiguous": str(plan.contiguous or "pp"),
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


Row = Mapping[str, object]  # the columns of a plan


@dataclass(frozen=True)
class Listed:
    """Plans that can run, in the order of the space."""

    plans: tuple[Plan, ...]
    peak_bytes: tuple[int | None, ...]  # of the fullest stage; `None`: not known
    num_seen: int
    refusals: tuple[Refusal, ...]  # the most frequent first

    @classmethod
    def joined(cls, several: Sequence[Listed]) -> Listed:
        """Plans of several spaces, one behind the other."""
        counts: Counter[str] = Counter()
        examples: dict[str, str] = {}
        for refusal in (refusal for one in several for refusal in one.refusals):
            counts[refusal.reason] += refusal.count
            examples.setdefault(refusal.reason, refusal.example)
        return cls(
            plans=tuple(plan for one in several for plan in one.plans),
            peak_bytes=tuple(peak for one in several for peak in one.peak_bytes),
            num_seen=sum(one.num_seen for one in several),
            refusals=tuple(
                Refusal(reason, count, examples[reason]) for reason, count in counts.most_common()
            ),
        )


def listed(
    space: PlanSpace,
    peak_bytes: Callable[[Plan], int | None],
    *,
    capacity: int | None,
    check: Callable[[Row], None] | None = None,
    progress: Callable[[int], bool] | None = None,
) -> Listed:
    """The plans of a space that are legal, meet the constraints and fit.

    Args:
        space: as stated.
        peak_bytes: of the fullest stage of a plan, `None` if that is not known; refuses plans that
            cannot run.
        capacity: bytes of one chip; `None`: not known.
        check: refuses plans by their columns.
        progress: called now and then with plans seen; says whether to go on.
    """
    plans, peaks = [], []
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    num_seen = 0
    for num_seen, plan in enumerate(space.plans(), 1):
        if progress is not None and num_seen % _OFTEN == 0 and not progress(num_seen):
            break
        try:
            peak = peak_bytes(plan)
            if peak is not None and capacity is not None and peak > capacity:
                _refuse(peak, capacity)
            if check is not None:
                check({**columns_of(plan), **_memory_column(peak)})
        except (WorkloadError, ScenarioError) as err:
            reason = short_reason(str(err))
            counts[reason] += 1
            examples.setdefault(reason, str(err))
            continue
        plans.append(plan)
        peaks.append(peak)
    refusals = tuple(
        Refusal(reason, count, examples[reason]) for reason, count in counts.most_common()
    )
    return Listed(tuple(plans), tuple(peaks), num_seen, refusals)


_OFTEN = 500  # plans between two looks at the clock


def short_reason(text: str) -> str:
    """Why a plan was refused, without its numbers: the same for plans alike."""
    return re.sub(r"\d[\d,.]*", "N", text.partition(":")[0])


def _memory_column(peak: int | None) -> dict[str, float]:
    return {} if peak is None else {MEMORY: peak / 1e9}


def _refuse(peak: int, capacity: int) -> None:
    raise WorkloadError(
        f"{_DOES_NOT_FIT}: {peak / 1e9:.1f} GB on the fullest stage, and a chip has "
        f"{capacity / 1e9:.1f} GB"
    )
