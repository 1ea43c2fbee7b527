"""Recorded operators of one block, in order, become operators at other sizes.

Products are read first (`products`); what each makes and takes then tells its neighbours' widths
(`tensors`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from foretrace.graph import Part, Phase
from foretrace.operators import (
    OperatorClass,
    Shapes,
    Tensor,
    attention_shape,
    operator_class,
    parsed_shapes,
    work_of,
)
from foretrace.whatif.resize.named import (
    ATTENTION_WIDTH,
    QKV_WIDTH,
    VOCABULARY,
    Dimensions,
)
from foretrace.whatif.resize.products import (
    ANCHOR,
    WEIGHTS,
    Multiplied,
    ProductRole,
    is_weight_turned,
    multiplied,
    operand_positions,
    roles_of,
)
from foretrace.whatif.resize.tensors import FoundDimensions, TensorPlace, meaning_of, with_shapes
from foretrace.workload import Turn

ALL_WEIGHTS = tuple((one.outputs, one.inputs) for one in WEIGHTS)
_BETWEEN = (OperatorClass.ELEMENTWISE, OperatorClass.NORMALISATION, OperatorClass.COPY)
_ENDS = (Part.EMBEDDING, Part.HEAD, Part.LOSS)
OF_PARAMETERS = (Part.OPTIMIZER, Part.BUCKET)


@dataclass(frozen=True)
class RecordedOperator:
    """One recorded operator."""

    operator: str
    signature: str
    kernel: str = ""


@dataclass(frozen=True)
class Rewritten:
    """One operator at other sizes."""

    signature: str  # "" where nothing is known of its shapes
    is_known: bool  # every tensor's dimensions are known
    is_ambiguous: bool = False
    role: ProductRole | None = None  # of a product with a weight


@dataclass(frozen=True)
class Context:
    """Where a block stands."""

    part: Part
    phase: Phase
    known: Dimensions
    tables: tuple[int, ...] = ()  # rows of tables that stay
    weights: tuple[tuple[str, str], ...] = ALL_WEIGHTS  # outputs and inputs of the model's
    # What was found so far, for all blocks of one recording and edit.
    memo: dict[tuple[RecordedOperator, ProductRole | None, TensorPlace], Rewritten] = field(
        default_factory=dict, compare=False
    )


def rewritten_block(block: Sequence[RecordedOperator], context: Context) -> list[Rewritten]:
    """Every operator of a block with the shapes that it has after the edit.

    Raises:
        ScenarioError: if ranks cannot divide a size evenly.
    """
    parsed = [parsed_shapes(one.signature) for one in block]
    roles = _roles(block, parsed, context)
    widths = _neighbours(block, roles)
    found = []
    for one, shapes, role, likely in zip(block, parsed, roles, widths, strict=True):
        key = (one, role, _place(one, shapes, likely, context))
        if key not in context.memo:
            context.memo[key] = _rewritten(one, shapes, role, key[2], context.known)
        found.append(context.memo[key])
    return found


def base_name(operator: str) -> str:
    """`aten::addmm` becomes `addmm`."""
    return operator.rpartition("::")[2].partition(".")[0]


def _roles(
    block: Sequence[RecordedOperator], parsed: Sequence[Shapes | None], context: Context
) -> list[ProductRole | None]:
    at: list[int] = []
    products: list[Multiplied | str] = []
    for position, (one, shapes) in enumerate(zip(block, parsed, strict=True)):
        if shapes is None:
            continue
        base = base_name(one.operator)
        found = multiplied(base, shapes)
        if found is not None and is_beside_product(one):
            continue
        if found is not None:
            at.append(position)
            products.append(found)
        elif is_attention(one):
            at.append(position)
            products.append(ANCHOR)
    roles = roles_of(
        products,
        context.known,
        is_backward=context.phase is Phase.BACKWARD,
        is_layer=context.part in {Part.LAYER, Part.UNKNOWN},
    )
    found_roles: list[ProductRole | None] = [None] * len(block)
    for position, role in zip(at, roles, strict=True):
        found_roles[position] = role
    _lend_roles(block, found_roles)
    return found_roles


def is_beside_product(one: RecordedOperator) -> bool:
    """Whether a kernel only serves a product: clears its output, adds up its split sums."""
    lowered = one.kernel.lower()
    return lowered.startswith("memset") or "splitk" in lowered


def _lend_roles(block: Sequence[RecordedOperator], roles: list[ProductRole | None]) -> None:
    """What serves a product has its role: what is cleared the next one's, sums the last one's."""
    last = None
    for at, one in enumerate(block):
        if not is_beside_product(one):
            last = at
        elif last is not None and _are_one(block, at, last) and "splitk" in one.kernel.lower():
            roles[at] = roles[last]
    last = None
    for at in range(len(block) - 1, -1, -1):
        if not is_beside_product(block[at]):
            last = at
        elif last is not None and roles[at] is None and _are_one(block, at, last):
            roles[at] = roles[last]


def _are_one(block: Sequence[RecordedOperator], first: int, second: int) -> bool:
    one, other = block[first], block[second]
    return (one.operator, one.signature) == (other.operator, other.signature)


def is_attention(one: RecordedOperator) -> bool:
    """Whether an operator is fused attention, or one of plain attention's products."""
    if base_name(one.operator) in {"bmm", "baddbmm"}:
        return True
    return attention_shape(one.operator, one.signature) is not None


def _neighbours(
    block: Sequence[RecordedOperator], roles: Sequence[ProductRole | None]
) -> list[tuple[str, ...]]:
    """Widths of what was made last and what is taken next, for each operator."""
    made: list[str] = []
    last = ""
    sums = ""  # width of the gradients that a bias's gradient sums, behind those of its weight
    for one, role in zip(block, roles, strict=True):
        made.append(sums if sums and base_name(one.operator) == "sum" else last)
        is_gradient = role is not None and role.turn is Turn.WEIGHT_GRADIENT
        sums = role.weight.outputs if role is not None and is_gradient else ""
        if role is not None and role.turn is not Turn.WEIGHT_GRADIENT:
            last = role.names[2]
        elif is_attention(one):
            last = ATTENTION_WIDTH
    taken: list[str] = []
    following = ""
    for one, role in zip(reversed(block), reversed(roles), strict=True):
        taken.append(following)
        if role is not None and role.turn is not Turn.WEIGHT_GRADIENT:
            following = role.names[1]
        elif is_attention(one):
            following = QKV_WIDTH
    pairs = zip(made, reversed(taken), strict=True)
    return [tuple(dict.fromkeys(name for name in pair if name)) for pair in pairs]


def _place(
    one: RecordedOperator, shapes: Shapes | None, likely: tuple[str, ...], context: Context
) -> TensorPlace:
    kind = operator_class(one.kernel or one.operator, one.operator)
    is_by_row = kind is OperatorClass.NORMALISATION
    tensors = () if shapes is None else shapes.single
    is_flat = all(len(each.shape) <= 1 for each in tensors)
    return TensorPlace(
        likely=likely,
        weights=context.weights,
        is_parameter=context.part in OF_PARAMETERS,
        is_between=kind in _BETWEEN,
        is_at_end=context.part in _ENDS,
        is_by_row=is_by_row,
        is_flat=is_flat and context.part not in OF_PARAMETERS,
        tables=context.tables if context.phase is Phase.BACKWARD else (),
    )


def _rewritten(
    one: RecordedOperator,
    shapes: Shapes | None,
    role: ProductRole | None,
    place: TensorPlace,
    known: Dimensions,
) -> Rewritten:
    if shapes is None or shapes.is_untold:
        return Rewritten("" if shapes is None else one.signature, is_known=False)
    if role is not None:
        return Rewritten(_product(one, shapes, role, known), is_known=True, role=role)
    new: list[tuple[int, ...] | tuple[tuple[int, ...], ...] | None] = []
    is_known, is_ambiguous = True, False
    for at, given in enumerate(shapes.inputs):
        if not given:
            new.append(None)
            continue
        tensors = (given,) if isinstance(given, Tensor) else given
        here = replace(
            place,
            is_table=at == 0 and _is_other_table(one, tensors[0], known),
            is_kernel=at == _kernel_of_convolution(one.operator),
        )
        found = [meaning_of(each.shape, each.dtype, known, here) for each in tensors]
        is_known = is_known and all(each is not None for each in found)
        is_ambiguous = is_ambiguous or any(each.is_ambiguous for each in found if each is not None)
        sizes = tuple(
            _filled(each.shape, meaning) for each, meaning in zip(tensors, found, strict=True)
        )
        new.append(sizes[0] if isinstance(given, Tensor) else sizes)
    signature = with_shapes(one.signature, new, known.gaps)
    if work_of(one.operator, one.signature) and not work_of(one.operator, signature):
        return Rewritten(one.signature, is_known=False)  # operands that no longer fit each other
    return Rewritten(signature, is_known=is_known, is_ambiguous=is_ambiguous)


def _kernel_of_convolution(operator: str) -> int:
    """Where a convolution's kernel stands among its inputs; -1: it has none, or is no convolution.

    Schemas: torch/aten native_functions.yaml; gradients take the result's gradient first.
    """
    base = base_name(operator)
    if "convolution" not in base or base.endswith("backward_weight"):
        return -1
    return 2 if "backward" in base else 1


def _is_other_table(one: RecordedOperator, table: Tensor, known: Dimensions) -> bool:
    """Whether rows of a table that is not the vocabulary's are looked up: learned positions."""
    words = known.by_name.get(VOCABULARY)
    is_words = words is not None and table.shape[:1] == (words.before,)
    return base_name(one.operator) in {"embedding", "index_select"} and not is_words


def _filled(shape: tuple[int, ...], found: FoundDimensions | None) -> tuple[int, ...]:
    if found is None:
        return shape
    return tuple(size if new is None else new for size, new in zip(shape, found.shape, strict=True))


def _product(one: RecordedOperator, shapes: Shapes, role: ProductRole, known: Dimensions) -> str:
    """A product's operands and what is added to it, by its role."""
    base = base_name(one.operator)
    rows, inner, columns = (known.by_name[name] for name in role.names)
    first_at, second_at = operand_positions(base)
    new: list[tuple[int, ...] | None] = [None] * len(shapes.inputs)
    first, second = shapes.tensor(first_at), shapes.tensor(second_at)
    if first is None or second is None:
        return one.signature
    new[first_at] = (*_rows(first.shape[:-1], rows.new, known), inner.new)
    is_turned = is_weight_turned(base)
    new[second_at] = (columns.new, inner.new) if is_turned else (inner.new, columns.new)
    for at, given in enumerate(shapes.inputs):
        if at in {first_at, second_at} or not isinstance(given, Tensor) or not given.shape:
            continue
        wide = columns.new if given.shape[-1] == columns.before else given.shape[-1]
        outer = _rows(given.shape[:-1], rows.new, known) if given.shape[-1] != 1 else ()
        new[at] = (*outer, wide)
    return with_shapes(one.signature, new, known.gaps)


def _rows(outer: tuple[int, ...], rows: int, known: Dimensions) -> tuple[int, ...]:
    """Rows, which stand as batch and sequence where the product takes them so."""
    if len(outer) < 2:  # noqa: PLR2004
        return (rows,) * len(outer)
    found = meaning_of((*outer, 1), "", known, TensorPlace())
    return tuple(
        size if new is None else new
        for size, new in zip(outer, found.shape if found else outer, strict=False)
    )
