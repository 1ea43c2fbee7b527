"""Plans near one that does not fit, and that do: the fewest changes, then the fewest chips."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from typing import TypeAlias

from foretrace.answer import Column, Plain, Table, Unit
from foretrace.base import WorkloadError, key_text
from foretrace.machine import Chip
from foretrace.workload import Plan, PlanMemory, Recompute, Sharding, Transformer, check_plan

_MOST_CHANGES = 3
_MOST_PLANS = 6_000  # looked at: a second or two
_MOST_TOLD = 5
_FACTORS = (2, 4, 8, 16)

Fields: TypeAlias = Mapping[str, object]

_KEYS = {
    "sequence_parallel": "parallelism.sequence_parallel",
    "sharding": "sharding.level",
    "micro_batch": "batch.micro_batch",
    "recompute": "memory.recompute",
    "tensor": "parallelism.tp",
    "pipeline": "parallelism.pp",
    "context": "parallelism.cp",
    "expert": "parallelism.ep",
    "data": "parallelism.dp",
}


@dataclass(frozen=True)
class PlanChange(Plain):
    """One key of a plan with another value."""

    key: str  # "parallelism.tp"
    before: object
    after: object

    def __str__(self) -> str:
        """In words."""
        return f"{self.key.rpartition('.')[2]} {key_text(self.before)} -> {key_text(self.after)}"


@dataclass(frozen=True)
class NearestPlan(Plain):
    """A plan that fits, as it differs from the one that was asked for."""

    changes: tuple[PlanChange, ...]
    num_ranks: int
    peak_bytes: int  # of the fullest rank

    @property
    def words(self) -> str:
        """What changes."""
        return ", ".join(map(str, self.changes))


def nearest_plans(
    model: Transformer, plan: Plan, *, chip: Chip, most_ranks: int, capacity: int
) -> tuple[NearestPlan, ...]:
    """Plans that fit and differ in as few keys as can be, those of the fewest chips first.

    Where all of these take more chips than the plan has, one with as many follows, if there is any
    with a few more changes. dp follows from other degrees and is no change of its own then.

    Args:
        model: what is trained.
        plan: legal, and too large.
        chip: what it runs on.
        most_ranks: no plan takes more chips.
        capacity: bytes that one chip has for a rank.
    """
    memory = PlanMemory(model, chip=chip)
    found: list[NearestPlan] = []
    for count in range(1, _MOST_CHANGES + 1):
        fitting = [
            NearestPlan(changes, near.num_ranks, peak)
            for near, changes in _neighbours(plan, count, most_ranks)
            if (peak := _peak(memory, near, model)) is not None and peak <= capacity
        ]
        fitting.sort(key=lambda one: one.num_ranks)  # stable: cheaper changes stay in front
        same = [one for one in fitting if one.num_ranks <= plan.num_ranks]
        found += (fitting if not found else same)[: _MOST_TOLD - len(found)]
        if same:
            break
    return tuple(found)


def nearest_table(found: Sequence[NearestPlan]) -> Table:
    """What to change so that the plan fits."""
    title = (
        "nearest plans that fit: fewest changes, then fewest chips"
        if found
        else f"no plan with up to {_MOST_CHANGES} changes fits on this machine"
    )
    return Table.of(
        "nearest",
        found,
        Column("changes", "change", value="words"),
        Column("num_ranks", "chips", Unit.COUNT),
        Column("peak_bytes", "memory", Unit.BYTES),
        title=title,
    )


def _peak(memory: PlanMemory, plan: Plan, model: Transformer) -> int | None:
    """Bytes of a plan's fullest rank; `None` if it is not legal."""
    try:
        check_plan(plan, model)
        return int(memory.stage_bytes(plan).max())
    except WorkloadError:
        return None


def _neighbours(
    plan: Plan, count: int, most_ranks: int
) -> Iterator[tuple[Plan, tuple[PlanChange, ...]]]:
    """Plans with so many keys changed, those that cost least first."""
    keys = _alternatives(plan)
    seen = 0
    for chosen in combinations(keys, count):
        for values in product(*(keys[key] for key in chosen)):
            fields = dict(zip(chosen, values, strict=True))
            for near in _with_ranks(plan, fields):
                if near.num_ranks <= most_ranks and near != plan:
                    yield near, _changes(plan, near, fields)
                    seen += 1
                    if seen > _MOST_PLANS:
                        return


def _alternatives(plan: Plan) -> dict[str, tuple[object, ...]]:
    """Other values of each field that lessen memory; the cheap ones first."""
    found: dict[str, tuple[object, ...]] = {}
    if plan.tensor > 1 and not plan.sequence_parallel:
        found["sequence_parallel"] = (True,)
    levels, kinds = tuple(Sharding), tuple(Recompute)
    found["sharding"] = levels[levels.index(plan.sharding) + 1 :]
    found["micro_batch"] = tuple(
        plan.micro_batch // factor for factor in _FACTORS if plan.micro_batch % factor == 0
    )
    found["recompute"] = kinds[kinds.index(plan.recompute) + 1 :]
    for axis in ("tensor", "pipeline", "context", "expert", "data"):
        found[axis] = tuple(getattr(plan, axis) * factor for factor in _FACTORS)
    return {name: values for name, values in found.items() if values}


def _with_ranks(plan: Plan, fields: Mapping[str, object]) -> Iterator[Plan]:
    """The plan with fields changed: on as many chips where dp can give way, and on more."""
    near = replace(plan, **fields)  # type: ignore[arg-type]
    if near.pipeline != plan.pipeline:
        near = replace(near, layers_of_chunk=None)
    if "recompute" in fields:
        near = replace(near, recompute_modules=None, recompute_of_layer=None)
    factor, rest = divmod(near.ranks_of_replica, plan.ranks_of_replica)
    if "data" not in fields and factor > 1 and not rest and plan.data % factor == 0:
        yield _divided(replace(near, data=plan.data // factor))
    yield _divided(near)


def _divided(plan: Plan) -> Plan:
    """Shards over no more ranks than there are."""
    ranks = plan.data * plan.context
    return replace(plan, shard_ranks=None) if (plan.shard_ranks or 0) > ranks else plan


def _changes(plan: Plan, near: Plan, fields: Fields) -> tuple[PlanChange, ...]:
    names = [*fields, *(["data"] if near.data != plan.data and "data" not in fields else [])]
    return tuple(
        PlanChange(_KEYS[name], _plain(getattr(plan, name)), _plain(getattr(near, name)))
        for name in names
    )


def _plain(value: object) -> object:
    return str(value) if isinstance(value, str) else value
