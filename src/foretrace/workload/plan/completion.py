"""What a draft leaves open: the legal plans that agree with it, and what they assume.

An axis of which nothing is said is not used: tp, cp, pp and ep are 1; but where nothing at all is
said of how a model with experts is divided, these lie over the chips of a fast domain first. dp
follows from the number of ranks where that is known. The batch has to be stated, since any number
would be legal. Number formats, overlap and kernels are `Plan`'s own defaults; a preset of the
software states them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import gcd
from typing import ClassVar

from foretrace.answer import Answer, Column, Json, Plain, Table, Told, Unit, count_text, plain
from foretrace.base import WorkloadError
from foretrace.operators import ModuleProgram
from foretrace.workload.models.diffusion import Diffusion
from foretrace.workload.models.parameters import Model
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.models.recompute import Recompute
from foretrace.workload.models.transformer import Experts, Transformer
from foretrace.workload.plan.draft import PlanDraft, field_value, key_of, plan_table, with_fields
from foretrace.workload.plan.keys import Value
from foretrace.workload.plan.legality import check_plan
from foretrace.workload.plan.of_program import settled_by_program
from foretrace.workload.plan.plan import Plan, Sharding

_MOST_PLANS = 16  # each is laid out and simulated: what a user waits for grows with them
DIVISION = ("tensor", "context", "pipeline", "expert", "sharding")  # of a model over ranks
_MICRO_BATCHES = (1, 2, 4)  # the sizes of nearly all published runs that state theirs

Fields = Mapping[str, Value]


@dataclass(frozen=True)
class Assumption(Plain):
    """A key that was left open."""

    json_only: ClassVar = ("key", "shown", "reason")
    json_names: ClassVar = {"shown": "values"}

    key: str  # "memory.recompute"
    values: tuple[Value, ...]  # what the plans have there, the first plan's first
    reason: str  # why these, and why the first one comes first

    @property
    def shown(self) -> tuple[object, ...]:
        """The values as plain ones."""
        return tuple(str(value) if isinstance(value, str) else value for value in self.values)


@dataclass(frozen=True, repr=False)
class Completions(Answer):
    """Complete plans that agree with a draft."""

    plans: tuple[Plan, ...]  # the one with all defaults first, where it is legal
    assumptions: tuple[Assumption, ...]  # none: the draft was complete

    @property
    def plan(self) -> Plan:
        """The plan that counts as the answer; the others give the spread."""
        return self.plans[0]

    @property
    def headline(self) -> str:
        """How many plans, and how much was left open."""
        open_keys = count_text(len(self.assumptions), "key")
        return f"{count_text(len(self.plans), 'plan')}, {open_keys} left open"

    def parts(self) -> tuple[Told, ...]:
        """What was assumed."""
        return (
            Table.of(
                "assumptions",
                self.assumptions,
                Column("key", unit=Unit.WORD),
                Column("values", value=lambda each: ", ".join(map(str, each.shown))),
                Column("reason"),
            ),
        )

    def as_json(self) -> Json:
        """The plans as their files have them, and what was assumed."""
        return {
            "plans": [plan_table(plan) for plan in self.plans],
            "assumptions": plain(self.assumptions),
        }


@dataclass(frozen=True)
class _Open:
    """Alternatives for fields that depend on each other; the default first."""

    alternatives: tuple[Fields, ...]
    reason: str


def complete(draft: PlanDraft, model: Model | ModuleProgram, num_ranks: int | None = None) -> Plan:
    """The one plan that counts as the answer for a draft.

    Raises:
        WorkloadError: as `completions`.
    """
    return completions(draft, model, num_ranks).plan


def completions(
    draft: PlanDraft,
    model: Model | ModuleProgram,
    num_ranks: int | None = None,
    *,
    fits: Callable[[Plan], bool] | None = None,
    domain: int = 1,
    at_most: int = _MOST_PLANS,
) -> Completions:
    """Legal plans that agree with a draft, with what they assume beyond it.

    All combinations of what is open, where these are few; else the defaults, and each other value
    of one key beside the defaults of all others.

    Args:
        num_ranks: ranks that there are, if that is known.
        fits: whether a plan's memory fits; those that do not are left out, unless none does.
        domain: chips that the machine joins by its fastest links.
        at_most: combinations beyond which keys are varied one by one, and plans in all.

    Raises:
        WorkloadError: if the batch is not stated, or no plan that agrees is legal.
    """
    num_ranks = draft.sizes.num_ranks if num_ranks is None else num_ranks
    settled = _settled(draft, model, num_ranks)
    opens = tuple(_opens(settled, model, domain))
    legal = _legal(settled, _combined(opens, at_most), model, num_ranks)
    plans = tuple(plan for plan in legal if fits(plan)) if fits is not None else legal
    plans = (plans or legal)[:at_most]
    assumptions = [
        Assumption(key_of(name), _values(plans, name), each.reason)
        for each in opens
        for name in each.alternatives[0]
    ]
    is_assumed = not isinstance(model, ModuleProgram)  # which was captured with one
    if is_assumed and not draft.states("sequence") and settled.states("sequence"):
        reason = f"the longest that {model.name} was made for"
        assumptions.insert(0, Assumption(key_of("sequence"), _values(plans, "sequence"), reason))
    return Completions(plans, tuple(assumptions))


def _settled(draft: PlanDraft, model: Model | ModuleProgram, num_ranks: int | None) -> PlanDraft:
    """The draft with what follows from the model and the number of ranks."""
    if not draft.states("global_batch") and draft.sizes.passes is None:
        what, count = ("images" if isinstance(model, Diffusion) else "sequences"), 2_048
        if isinstance(model, Recommender):
            what, count = "samples", 65_536
        raise WorkloadError(
            f"the plan does not say how many {what} a step has: state global_batch "
            f"(--global-batch {count}), as in global_batch = {count} of [batch] in a plan's file"
        )
    if isinstance(model, ModuleProgram):
        own = settled_by_program(model)
        stated = {name: one for name, one in own.items() if not draft.states(name)}
        draft = draft.with_fields(stated)
    plan = draft.plan()
    fields: dict[str, Value] = {}
    others = plan.ranks_of_replica
    if not draft.states("data") and num_ranks is not None:
        if num_ranks % others:
            raise WorkloadError(
                f"tp {plan.tensor} x cp {plan.context} x pp {plan.pipeline} = {others} does not "
                f"divide {num_ranks:,} ranks: state dp, or take {num_ranks // others * others:,} "
                "ranks"
            )
        fields["data"] = num_ranks // others
    draft = _with_sizes(draft.with_fields(fields))
    if not draft.states("sequence") and isinstance(model, Transformer):
        if not model.context:
            raise WorkloadError(
                f"the plan does not say how long a sequence is, and nor does {model.name}: state "
                "sequence of [batch], in tokens"
            )
        return draft.with_fields({"sequence": model.context})
    return draft


def _with_sizes(draft: PlanDraft) -> PlanDraft:
    """The draft with what follows from sizes that other software states, now that dp is known."""
    plan, sizes = draft.plan(), draft.sizes
    if sizes.passes is not None and not draft.states("global_batch"):
        batch = plan.micro_batch * plan.data * sizes.passes
        draft = draft.with_fields({"global_batch": batch})
    ranks = plan.data * plan.context
    copies = sizes.replicas or 1
    if copies > 1 and not draft.states("shard_ranks") and plan.sharding is not Sharding.NONE:
        draft = draft.with_fields({"shard_ranks": max(ranks // copies, 1)})
    return draft


def _opens(draft: PlanDraft, model: Model | ModuleProgram, domain: int) -> Iterator[_Open]:
    plan = draft.plan()
    if isinstance(model, Transformer) and model.experts is not None:
        yield from _open_experts(draft, model.experts, domain)
    is_sharded = not isinstance(model, Recommender)  # which divides its tables instead
    if plan.data * plan.context > 1 and is_sharded and not draft.states("sharding"):
        yield _open_sharding(plan, is_small=isinstance(model, Diffusion))
    if isinstance(model, Transformer):
        if not draft.states("recompute"):
            values = (Recompute.NONE, Recompute.SELECTIVE, Recompute.FULL)
            yield _one_field("recompute", values, "none costs no time, if its memory fits")
        if plan.tensor > 1 and not draft.states("sequence_parallel"):
            yield _open_sequence_parallel(model)
        if plan.tensor > 1 and model.experts is not None and not draft.states("expert_tensor"):
            reason = "Megatron-Bridge's recipes divide no expert; Megatron-LM does unless told"
            yield _one_field("expert_tensor", (1, plan.tensor), reason)
        if plan.pipeline > 1:
            yield from _open_schedule(draft, model)
    if isinstance(model, ModuleProgram):
        yield from _opens_of_program(draft, model)
    if not draft.states("micro_batch"):
        yield _open_micro_batch(plan, model)


def _open_experts(draft: PlanDraft, experts: Experts, domain: int) -> Iterator[_Open]:
    """Experts over as many chips of a fast domain as divide them and the copies of the model.

    Source:
        NVIDIA-NeMo/Megatron-Bridge v0.2.0 to v0.6.0, scripts/performance/configs: of 478 recipes
        with experts over ranks on hosts of eight GPUs 294 have eight, and none has fewer; on 388
        for NVL72 none has more than 64.
    """
    if any(map(draft.states, DIVISION)):
        return
    both = gcd(experts.count, draft.plan().data)
    size = max(one for one in range(1, max(domain, 1) + 1) if both % one == 0)
    if size > 1:
        reason = "experts lie over the chips that the fastest links join, as recipes have it"
        yield _one_field("expert", (size, 1), reason)


def _open_micro_batch(plan: Plan, model: Model | ModuleProgram) -> _Open:
    own = max(plan.global_batch // plan.data, 1)
    if isinstance(model, Recommender):
        return _one_field("micro_batch", (own,), "a recommender accumulates no gradients")
    sizes = tuple(size for size in _MICRO_BATCHES if own % size == 0)
    if isinstance(model, Diffusion):
        reason = "4 on each GPU is what Stable Diffusion 1's model card states"
        return _one_field("micro_batch", sizes[::-1], reason)
    return _one_field("micro_batch", sizes, "small ones need least memory, and fill pipelines")


def _opens_of_program(draft: PlanDraft, program: ModuleProgram) -> Iterator[_Open]:
    if not draft.states("recompute"):
        few = (Recompute.NONE, Recompute.FULL)  # selective is for software to define
        yield _one_field("recompute", few, "none costs no time, if its memory fits")
    if draft.plan().pipeline > 1:
        yield from _open_schedule(draft, program)


def _one_field(name: str, values: Sequence[Value], reason: str) -> _Open:
    return _Open(tuple({name: value} for value in values), reason)


def _open_sharding(plan: Plan, *, is_small: bool) -> _Open:
    if is_small:
        whole = (Sharding.NONE, Sharding.ZERO1, Sharding.ZERO3)
        return _one_field("sharding", whole, "a U-Net fits a chip whole, and was trained so (DDP)")
    if plan.tensor == plan.pipeline == 1:
        values = (Sharding.ZERO3, Sharding.ZERO1, Sharding.NONE)
        return _one_field("sharding", values, "FSDP is what torchtitan and llm-foundry do")
    few = (Sharding.ZERO1, Sharding.NONE)
    return _one_field("sharding", few, "with tp or pp, Megatron's distributed optimizer")


def _open_sequence_parallel(model: Transformer) -> _Open:
    if model.experts is not None:
        reason = "Megatron-LM refuses experts with tp and without it"
        return _one_field("sequence_parallel", (True,), reason)
    return _one_field(
        "sequence_parallel", (True, False), "Megatron-Bridge's recipes with tp turn it on"
    )


def _open_schedule(draft: PlanDraft, model: Transformer | ModuleProgram) -> Iterator[_Open]:
    is_open, chunks_are_open = not draft.states("schedule"), not draft.states("num_chunks")
    plan = draft.plan()
    several = _even_chunks(plan.pipeline, model.num_layers)
    reason = "1F1B, or interleaved as Megatron-LM does with several chunks"
    if is_open and chunks_are_open:
        alternatives: list[Fields] = [{"schedule": "1f1b", "num_chunks": 1}]
        alternatives += [{"schedule": "interleaved", "num_chunks": each} for each in several]
        yield _Open(tuple(alternatives), reason)
    elif is_open:
        name = "interleaved" if plan.num_chunks > 1 else "1f1b"
        yield _one_field("schedule", (name,), reason)
    elif chunks_are_open and plan.schedule == "interleaved" and several:
        yield _one_field("num_chunks", several, "few, more, and one layer in each")


def _even_chunks(num_stages: int, num_layers: int) -> tuple[int, ...]:
    """Numbers of chunks per stage that split layers evenly: the least, one between, the most.

    Where none does, those that do if the embedding and the output stand where a layer would.
    """
    for places in (num_layers, num_layers + 2):
        each_stage, rest = divmod(places, num_stages)
        found = [chunks for chunks in range(2, each_stage + 1) if each_stage % chunks == 0]
        if found and not rest:
            return tuple(dict.fromkeys((found[0], found[len(found) // 2], found[-1])))
    return ()


def _combined(opens: Sequence[_Open], at_most: int) -> Iterator[dict[str, Value]]:
    """Choices of one alternative for each; all defaults first."""
    count = 1
    for each in opens:
        count *= len(each.alternatives)
    if count <= at_most:
        for choice in product(*(each.alternatives for each in opens)):
            yield {name: value for fields in choice for name, value in fields.items()}
        return
    defaults = {name: value for each in opens for name, value in each.alternatives[0].items()}
    yield defaults
    for each in opens:
        for fields in each.alternatives[1:]:
            yield {**defaults, **fields}


def _legal(
    draft: PlanDraft,
    choices: Iterator[dict[str, Value]],
    model: Model | ModuleProgram,
    num_ranks: int | None,
) -> tuple[Plan, ...]:
    plans, first_error = [], None
    for fields in choices:
        plan = with_fields(draft.plan(), fields)
        try:
            check_plan(plan, model, num_ranks)
        except WorkloadError as err:
            first_error = first_error or err
        else:
            plans.append(plan)
    if not plans and first_error is not None:
        raise first_error
    return tuple(plans)


def _values(plans: Sequence[Plan], name: str) -> tuple[Value, ...]:
    found = (field_value(plan, name) for plan in plans)
    return tuple(dict.fromkeys(value for value in found if value is not None))
