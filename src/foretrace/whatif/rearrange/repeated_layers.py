"""Which recorded layer each layer of a new job takes its work from.

The layer that a chunk's pass begins with waits for what came before: a transfer, the embedding.
So the first layer of a pass repeats one that was first, and the others repeat others. That is why
the forward and the backward pass of one layer may come from different ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_Chunks = Mapping[int, tuple[int, ...]]


@dataclass(frozen=True)
class LayerSources:
    """For every new layer the recorded one that it repeats."""

    forward: dict[int, int]
    backward: dict[int, int]

    def of(self, *, is_forward: bool) -> dict[int, int]:
        """Of one pass."""
        return self.forward if is_forward else self.backward


def layer_sources(
    before: _Chunks,
    after: _Chunks,
    kind_of_layer: Mapping[int, object],
    duration_ns: Mapping[int, float] | None = None,
) -> LayerSources:
    """For every new layer the recorded one that it repeats.

    Chunks that stay keep their own layers' work, so that a slow stage stays slow; where layers are
    divided anew, the model as a whole is stretched. Layers of kinds that take turns keep their
    turns.

    Args:
        before: recorded layers of each chunk.
        after: new layers of each chunk.
        kind_of_layer: what tells recorded layers apart that do different work.
        duration_ns: what each recorded layer took.
    """
    known = duration_ns or {}
    if before.keys() != after.keys():
        layers = sorted(layer for chunk in before.values() for layer in chunk)
        every = period([kind_of_layer.get(layer) for layer in layers])
        return LayerSources(
            _divided_anew(before, after, every, known, is_forward=True),
            _divided_anew(before, after, every, known, is_forward=False),
        )
    forward: dict[int, int] = {}
    backward: dict[int, int] = {}
    for chunk, new in after.items():
        old = before[chunk]
        every = period([kind_of_layer.get(layer) for layer in old])
        took_ns = [known[layer] for layer in old if layer in known]
        places = stretched(len(new), len(old), every, took_ns)
        forward.update(dict(zip(new, (old[place] for place in places), strict=True)))
        if every == 1:
            mirrored = stretched(len(new), len(old), 1, took_ns[::-1])
            places = tuple(len(old) - 1 - place for place in reversed(mirrored))
        backward.update(dict(zip(new, (old[place] for place in places), strict=True)))
    return LayerSources(forward, backward)


def stretched(
    num_new: int, num_old: int, every: int = 1, duration_ns: Sequence[float] = ()
) -> tuple[int, ...]:
    """Places among `num_old` layers that `num_new` layers repeat.

    The first and the last stay what they are, since they may be special. Those between are
    repeated, or left out, evenly: twice as many layers repeat each about twice.

    Args:
        num_new: layers to make.
        num_old: layers that there are.
        every: kinds of layers that take turns.
        duration_ns: of each that there is; what is repeated once more than others, or kept when
            others go, is chosen so that their mean stays. Unknown: evenly by place.

    Raises:
        ValueError: if there is nothing to repeat.
    """
    if num_new == num_old or not num_new:
        return tuple(range(num_new))
    if not num_old:
        raise ValueError("no layer was recorded that could be repeated")
    if 1 in {num_new, num_old}:
        return (0,) * num_new
    last = num_old - 1
    last -= (last - (num_new - 1)) % every
    known = dict(enumerate(duration_ns)) if len(duration_ns) == num_old else {}
    target = sum(known.values()) * num_new / num_old - known.get(0, 0.0) - known.get(last, 0.0)
    inside = spread(
        range(1, num_new - 1),
        range(1, num_old - 1) or (num_old - 1,),
        every,
        duration_ns=known,
        target_ns=target,
    )
    return (0, *inside, last)


def spread(
    new: Sequence[int],
    old: Sequence[int],
    every: int = 1,
    *,
    duration_ns: Mapping[int, float] | None = None,
    target_ns: float | None = None,
) -> list[int]:
    """For each new number an old one, evenly and in order; of the same turn among `every`.

    Args:
        new: rising.
        old: rising.
        every: turns.
        duration_ns: of old numbers; see `stretched`.
        target_ns: what all together should take; in proportion to the old ones, if left out.
    """
    found: dict[int, int] = {}
    for turn in range(every):
        wanted = [number for number in new if number % every == turn]
        choices = [number for number in old if number % every == turn] or list(old)
        known = duration_ns if duration_ns and all(each in duration_ns for each in choices) else {}
        if known and every == 1:
            chosen = _chosen(len(wanted), choices, known, target_ns)
        else:
            chosen = [choices[at * len(choices) // len(wanted)] for at in range(len(wanted))]
        found.update(zip(wanted, chosen, strict=True))
    return [found[number] for number in new]


def _chosen(
    count: int, choices: Sequence[int], duration_ns: Mapping[int, float], target_ns: float | None
) -> list[int]:
    """Each choice as often as any other, or once more; those so that the sum meets its target."""
    turns, rest = divmod(count, len(choices))
    total = sum(duration_ns[each] for each in choices)
    if target_ns is None:
        target_ns = total * count / len(choices)
    ranked = sorted(choices, key=lambda each: (duration_ns[each], each))
    # One of each stretch of the ranking, so that slow and fast ones keep their shares.
    more = {ranked[(2 * at + 1) * len(ranked) // (2 * rest)] for at in range(rest)}
    missing = target_ns - turns * total - sum(duration_ns[each] for each in more)
    swaps = [
        (abs(missing - duration_ns[other] + duration_ns[each]), each, other)
        for each in sorted(more)
        for other in choices
        if other not in more
    ]
    if swaps and min(swaps)[0] < abs(missing):
        _, each, other = min(swaps)
        more = (more - {each}) | {other}
    return [each for each in choices for _ in range(turns + (each in more))]


def period(kinds: Sequence[object]) -> int:
    """After how many layers their kinds repeat, the first and the last left aside; 1 if never."""
    inside = list(kinds[1:-1])
    for every in range(1, len(inside) // 2 + 1):
        if all(one == other for one, other in zip(inside, inside[every:], strict=False)):
            return every
    return 1


def _divided_anew(
    before: _Chunks,
    after: _Chunks,
    every: int,
    duration_ns: Mapping[int, float],
    *,
    is_forward: bool,
) -> dict[int, int]:
    """Layers that begin a chunk's pass, then all others, each over their like."""
    begins = 0 if is_forward else -1
    old_firsts = {chunk: layers[begins] for chunk, layers in before.items() if layers}
    new_firsts = {chunk: layers[begins] for chunk, layers in after.items() if layers}
    opening = (min, max)[not is_forward]
    old_opening, new_opening = opening(old_firsts), opening(new_firsts)
    found = {new_firsts[new_opening]: old_firsts[old_opening]}
    receiving = sorted(each for chunk, each in old_firsts.items() if chunk != old_opening)
    wanted = sorted(each for chunk, each in new_firsts.items() if chunk != new_opening)
    old_rest = sorted(
        layer
        for chunk, layers in before.items()
        for layer in layers
        if layer != old_firsts.get(chunk)
    )
    if receiving:
        found.update(zip(wanted, spread(wanted, receiving, every), strict=True))
    rest = sorted(layer for layers in after.values() for layer in layers if layer not in found)
    old_rest = old_rest or sorted(old_firsts.values())
    chosen = spread(rest, old_rest, every, duration_ns=duration_ns)
    found.update(zip(rest, chosen, strict=True))
    return found
