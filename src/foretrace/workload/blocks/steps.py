"""`Step`: one operator of the model both ways; steps in a row become the blocks of a part.

A step's items refer to each other by distance (`after=(-1,)`: the item before). Joined into a
block, an exchange that names nothing sends what the last operator made, and one that no item of
its own step waits for is waited for by what comes next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foretrace.base import CollectiveKind
from foretrace.graph import Part, Phase
from foretrace.workload.blocks.block import Block, Item, Operator, ParameterCount, Passes, only
from foretrace.workload.blocks.calls import cast, fused
from foretrace.workload.blocks.signatures import STATE_PRODUCT, OperatorCall
from foretrace.workload.exchanges.exchange import Exchange
from foretrace.workload.models.recompute import Recompute, RecomputeModule
from foretrace.workload.plan.plan import Plan, Sharding

Items = tuple[Item, ...]

_PRODUCTS = ("aten::mm", "aten::addmm", "aten::_scaled_mm", "aten::bmm", STATE_PRODUCT)


@dataclass(frozen=True)
class Step:
    """Forward work, and the backward work that belongs to it."""

    forward: Items = ()
    backward: Items = ()
    modules: frozenset[RecomputeModule] = frozenset()  # that it is a part of
    # Whether a backward pass needs anything of it: not so of a layer's last product and sum.
    is_needed_again: bool = True
    is_again: bool = True  # whether recompute does it again
    # So many steps pass before what comes next waits for its exchanges.
    delay: int = 0


def operator(
    label: str, one: OperatorCall, *after: int, is_weight_gradient: bool = False
) -> Operator:
    """An operator of a step; `after` are distances, below 0."""
    return Operator(
        label,
        one.name,
        one.signature,
        Phase.FORWARD,
        after=after,
        is_weight_gradient=is_weight_gradient,
    )


def passes_of(
    part: Part,
    steps: Sequence[Step],
    parameters: ParameterCount,
    plan: Plan,
    *,
    opening: Items = (),
) -> Passes:
    """Forward and backward block of steps in a row; layers begin with what is recomputed.

    `opening` comes before all else in the backward pass.
    """
    forward = joined(_forward(steps, Phase.FORWARD))
    again = _recomputed(steps, plan) if part is Part.LAYER else ()
    opened = joined([_Run(opening, Phase.BACKWARD, 0)])
    again = (*opened, *moved(again, len(opened)))
    turned = [_Run(step.backward, Phase.BACKWARD, step.delay) for step in reversed(steps)]
    backward = joined(turned, before=again)
    if plan.adapters is not None:
        backward = _trained(backward)
    return Passes(part, Block(part, forward), Block(part, backward), parameters)


@dataclass(frozen=True)
class _Run:
    """Items of one step in one direction."""

    items: Items
    phase: Phase
    delay: int


def _forward(steps: Sequence[Step], phase: Phase) -> list[_Run]:
    return [_Run(step.forward, phase, step.delay) for step in steps]


def joined(runs: Sequence[_Run], *, before: Items = ()) -> Items:
    """Items of steps one after the other, their distances turned into positions."""
    found = list(before)
    last = next((at for at in reversed(range(len(found))) if _is_operator(found[at])), None)
    due = dict.fromkeys(_unawaited(found, 0), 0)  # exchanges, and the step that waits for each
    for number, run in enumerate(runs):
        first = len(found)
        for item in run.items:
            at = len(found)
            after = {at + distance for distance in item.after if at + distance >= 0}
            is_sent = isinstance(item, Exchange)
            if not is_sent or not item.after:
                after.update(one for one, step in due.items() if step <= number)
            if is_sent and last is not None and not item.after:
                after.add(last)
            if not is_sent:
                due, last = {one: step for one, step in due.items() if step > number}, at
            found.append(replace(item, after=tuple(sorted(after)), phase=run.phase))
        due.update(dict.fromkeys(_unawaited(found, first), number + 1 + run.delay))
    return tuple(found)


def moved(items: Items, distance: int) -> Items:
    """Items whose positions all rise by as much."""
    if not distance:
        return items
    return tuple(replace(item, after=tuple(at + distance for at in item.after)) for item in items)


def shard_copies(num_parameters: int, plan: Plan) -> tuple[Items, Items]:
    """Parameters after they are gathered, and gradients before they are reduced: FSDP2."""
    is_copied = plan.sharding is Sharding.ZERO3 and plan.implementation.copies_shards
    if not is_copied or not num_parameters:
        return (), ()
    shape, precision = (num_parameters,), plan.precision
    copied = operator("copy of gathered parameters", fused(shape, precision.parameters, reads=1))
    sent = operator(
        "copy of gradients to be reduced",
        cast(shape, precision.parameters, precision.reduced),
        is_weight_gradient=True,
    )
    return (copied,), (sent,)


def _unawaited(items: Sequence[Item], first: int) -> tuple[int, ...]:
    """Exchanges from a position on that no item waits for."""
    awaited_at = {at for item in items[first:] for at in item.after}
    return tuple(
        at
        for at in range(first, len(items))
        if isinstance(items[at], Exchange) and at not in awaited_at
    )


def _is_operator(item: Item) -> bool:
    return isinstance(item, Operator)


def _trained(items: Items) -> Items:
    """Without gradients of frozen weights, and what ranks exchange for them alone."""
    kept = {
        at
        for at, item in enumerate(items)
        if not item.is_weight_gradient or (isinstance(item, Operator) and item.is_of_adapter)
    }
    awaited = {at for one in kept for at in items[one].after}
    return only(items, kept | awaited)


def within(module: RecomputeModule, steps: Sequence[Step]) -> list[Step]:
    """Steps as parts of a module that recompute can name."""
    return [replace(step, modules=step.modules | {module}) for step in steps]


def modules_again(plan: Plan) -> frozenset[RecomputeModule] | None:
    """Parts of layers that are done again one by one; `None`: none, or layers as a whole."""
    if plan.recompute is not Recompute.SELECTIVE:
        return None
    if plan.recompute_modules is not None:
        return frozenset(plan.recompute_modules)
    is_scores = plan.implementation.selective == "scores"
    return frozenset({RecomputeModule.CORE_ATTENTION}) if is_scores else None


def _recomputed(steps: Sequence[Step], plan: Plan) -> Items:
    """What the backward pass of a layer computes again before it starts."""
    if plan.recompute is Recompute.NONE:
        return ()
    implementation = plan.implementation
    steps = [step for step in steps if step.is_again]
    if (chosen := modules_again(plan)) is not None:
        return joined(_forward([step for step in steps if step.modules & chosen], Phase.RECOMPUTE))
    if implementation.stops_recompute_early:
        last = max((at for at, step in enumerate(steps) if step.is_needed_again), default=-1)
        steps = steps[: last + 1]
    again = joined(_forward(steps, Phase.RECOMPUTE))
    return again if plan.recompute is Recompute.FULL else but_saved(again)


def but_saved(items: Items) -> Items:
    """Without what torchtitan's policy "op" saves: attention, scattered sums, every other product.

    Source:
        pytorch/torchtitan, torchtitan/distributed/activation_checkpoint.py: products are
        counted from 1, those of even number are computed again.
    """
    saved: set[int] = set()
    num_products = 0
    for at, item in enumerate(items):
        if isinstance(item, Exchange):
            if item.collective == CollectiveKind.REDUCE_SCATTER:
                saved.add(at)
        elif item.name in _PRODUCTS:
            num_products += 1
            if num_products % 2:
                saved.add(at)
        elif "attention" in item.name or "attn" in item.name:
            saved.add(at)
    return only(items, set(range(len(items))) - saved)
