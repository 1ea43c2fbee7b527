"""Products of a block: which weight each multiplies, told by its sizes and by the order.

A layer's forward pass is projections to queries, keys and values, attention, the output
projection, then the feed-forward products; its backward pass the same, backwards, with two
products a weight. Where sizes fit several weights, the cheapest reading of the whole sequence
decides, as each weight is multiplied once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from foretrace.operators import Shapes, Tensor
from foretrace.whatif.resize.named import (
    ATTENTION_WIDTH,
    EXPERTS,
    FEED_FORWARD,
    GATE_AND_UP,
    HIDDEN,
    KEY_WIDTH,
    KEYS_AND_VALUES,
    QKV_WIDTH,
    TOKENS,
    VOCABULARY,
    Dimensions,
)
from foretrace.workload import Turn

# Where a product's operands stand among an operator's inputs.
_OPERANDS = {
    **dict.fromkeys(("mm", "matmul", "mv", "_scaled_mm", "_int_mm"), (0, 1)),
    **dict.fromkeys(("addmm", "_addmm_activation", "addmv"), (1, 2)),
    **dict.fromkeys(("linear", "mkldnn_linear"), (0, 1)),
}
_TURNED = ("linear", "mkldnn_linear")  # their weight is n x k

ANCHOR = "attention"


@dataclass(frozen=True)
class SizedWeight:
    """A matrix of the model, by the names of its two sizes, and when in a layer it is used."""

    name: str
    inputs: str
    outputs: str
    place: int  # in a layer's forward pass; attention stands at 1
    is_single: bool  # one such matrix a layer


WEIGHTS = (
    SizedWeight("qkv", HIDDEN, QKV_WIDTH, 0, is_single=True),
    SizedWeight("query", HIDDEN, ATTENTION_WIDTH, 0, is_single=False),
    SizedWeight("key or value", HIDDEN, KEY_WIDTH, 0, is_single=False),
    SizedWeight("keys and values", HIDDEN, KEYS_AND_VALUES, 0, is_single=True),
    SizedWeight("output", ATTENTION_WIDTH, HIDDEN, 2, is_single=True),
    SizedWeight("router", HIDDEN, EXPERTS, 3, is_single=True),
    SizedWeight("up", HIDDEN, FEED_FORWARD, 3, is_single=False),
    SizedWeight("gate and up", HIDDEN, GATE_AND_UP, 3, is_single=True),
    SizedWeight("down", FEED_FORWARD, HIDDEN, 4, is_single=True),
    SizedWeight("square", HIDDEN, HIDDEN, 5, is_single=False),
    SizedWeight("head", HIDDEN, VOCABULARY, 6, is_single=True),
)
ATTENTION_PLACE = 1
_ENDS = ("square", "head")
_WHOLE = ("qkv", "gate and up")  # of several weights one
# What a reading of the sequence costs; only the order of sizes matters: to multiply by one weight
# twice is worse than to begin another layer, which is worse than to leave a product out.
_REPEATED, _NEW_LAYER, _LEFT_OUT = 5.0, 3.0, 1.0
# A weight's gradient right behind the input gradient of another, whose own comes later then.
_TORN = 0.5
_MUST = (2, 3, 4)  # places that no dense layer leaves out


@dataclass(frozen=True)
class Multiplied:
    """One product as it was recorded: (rows, inner) x (inner, columns)."""

    rows: int
    inner: int
    columns: int
    is_first_turned: bool | None  # whether the first operand lies column by column; None: unknown


@dataclass(frozen=True)
class ProductRole:
    """What one product is."""

    weight: SizedWeight
    turn: Turn
    is_swapped: bool = False  # of a weight's gradient: inputs x outputs, not outputs x inputs

    @property
    def names(self) -> tuple[str, str, str]:
        """Names of rows, inner dimension and columns."""
        weight = self.weight
        names = {
            Turn.FORWARD: (TOKENS, weight.inputs, weight.outputs),
            Turn.INPUT_GRADIENT: (TOKENS, weight.outputs, weight.inputs),
            Turn.WEIGHT_GRADIENT: (weight.outputs, TOKENS, weight.inputs),
        }[self.turn]
        return (names[2], names[1], names[0]) if self.is_swapped else names


def multiplied(base: str, shapes: Shapes) -> Multiplied | None:
    """A product of tokens and a weight; none if the operator is none, or of many matrices."""
    if base not in _OPERANDS:
        return None
    first, second = (shapes.tensor(at) for at in _OPERANDS[base])
    if first is None or second is None or len(first.shape) < 2 or len(second.shape) != 2:  # noqa: PLR2004
        return None
    right = second.shape[::-1] if base in _TURNED else second.shape
    if first.shape[-1] != right[0]:
        return None
    rows = 1
    for size in first.shape[:-1]:
        rows *= size
    return Multiplied(rows, right[0], right[1], _is_turned(first))


def operand_positions(base: str) -> tuple[int, int]:
    """Where the operands stand among a product's inputs."""
    return _OPERANDS[base]


def is_weight_turned(base: str) -> bool:
    """Whether the operator takes its weight as outputs x inputs."""
    return base in _TURNED


def _is_turned(first: Tensor) -> bool | None:
    if len(first.strides) != 2 or 1 in first.shape:  # noqa: PLR2004
        return None
    return first.strides[0] == 1 and first.strides[1] != 1


def roles_of(
    products: Sequence[Multiplied | str], known: Dimensions, *, is_backward: bool, is_layer: bool
) -> list[ProductRole | None]:
    """What each product of a block is; none where no weight fits, and for anchors.

    Args:
        products: in the order in which they ran; ANCHOR where attention did.
        known: named dimensions.
        is_backward: of a backward pass, which may repeat forward work first.
        is_layer: of a layer; else of what stands before or behind.
    """
    readings = [
        []
        if isinstance(one, str)
        else _readings(one, known, is_backward=is_backward, is_layer=is_layer)
        for one in products
    ]
    # The cheapest way to each reading of each product, found one after the other.
    states: list[_State] = [(0.0, -1, None, ())]
    for one, found in zip(products, readings, strict=True):
        if not found and not isinstance(one, str):
            states = [(cost, place, last, (*way, None)) for cost, place, last, way in states]
            continue
        choices: list[ProductRole | None] = [None] if isinstance(one, str) else list(found)
        grown = []
        for role in choices:
            best = min(
                (
                    (cost + _step(place, last, role, is_backward=is_backward), at)
                    for at, (cost, place, last, _) in enumerate(states)
                )
            )
            place = ATTENTION_PLACE if role is None else role.weight.place
            grown.append((best[0], place, role, (*states[best[1]][3], role)))
        states = grown

    def whole(state: _State) -> float:
        cost, place, _, _ = state
        missing = [one for one in _MUST if (one < place if is_backward else one > place)]
        return cost + _LEFT_OUT * len(missing)

    return list(min(states, key=whole)[3])


# Cost so far, place of the last product, the product, and all so far.
_State = tuple[float, int, ProductRole | None, tuple[ProductRole | None, ...]]


def _readings(
    one: Multiplied, known: Dimensions, *, is_backward: bool, is_layer: bool
) -> list[ProductRole]:
    turns = (Turn.INPUT_GRADIENT, Turn.WEIGHT_GRADIENT) if is_backward else (Turn.FORWARD,)
    if is_backward and one.is_first_turned:
        turns = (Turn.WEIGHT_GRADIENT,)
    found = []
    for weight in WEIGHTS:
        if is_layer == (weight.name in _ENDS):
            continue
        for turn in turns:
            roles = [ProductRole(weight, turn)]
            if turn is Turn.WEIGHT_GRADIENT:
                roles.append(ProductRole(weight, turn, is_swapped=True))
            found += [role for role in roles if _fits(one, role, known)][:1]
    if one.is_first_turned is False:  # as a gradient of inputs is, if it may be one
        inputs = [role for role in found if role.turn is not Turn.WEIGHT_GRADIENT]
        return inputs or found
    return found


def _fits(one: Multiplied, role: ProductRole, known: Dimensions) -> bool:
    sizes = [known.by_name.get(name) for name in role.names]
    recorded = (one.rows, one.inner, one.columns)
    pairs = zip(sizes, recorded, strict=True)
    return all(size is not None and size.before == value for size, value in pairs)


def _step(
    place: int, last: ProductRole | None, role: ProductRole | None, *, is_backward: bool
) -> float:
    """What it costs to read `role` (`None`: attention) behind the one before."""
    now = ATTENTION_PLACE if role is None else role.weight.place
    if place < 0:
        return _LEFT_OUT * sum(one > now if is_backward else one < now for one in _MUST)
    if role is not None and last is not None and role.weight == last.weight:
        is_pair = is_backward and role.turn != last.turn
        return _REPEATED if role.weight.is_single and not is_pair else 0.0
    if now == place and role is not None and role.weight.name in _WHOLE:
        return _LEFT_OUT  # beside what it would be a part of
    forward = (now - place) * (-1 if is_backward else 1)
    low, high = sorted((place, now))
    if forward >= 0:
        torn = _TORN if _is_torn(last, role) else 0.0
        return torn + _LEFT_OUT * sum(low < one < high for one in _MUST)
    around = sum(one > high or one < low for one in _MUST)
    return _NEW_LAYER + _LEFT_OUT * around


def _is_torn(last: ProductRole | None, role: ProductRole | None) -> bool:
    if last is None or role is None or not last.weight.is_single or last.weight == role.weight:
        return False
    return (last.turn, role.turn) == (Turn.INPUT_GRADIENT, Turn.WEIGHT_GRADIENT)
