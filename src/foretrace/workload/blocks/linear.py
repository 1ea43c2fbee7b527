"""Products with weights under tensor parallelism: forward, and both gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from foretrace.base import known_format
from foretrace.workload.blocks.block import Item, Operator
from foretrace.workload.blocks.calls import (
    accumulated_product,
    cast,
    elementwise,
    product,
    product_with_bias,
    quantised,
    quantised_rows,
    row_sum,
    turned_copy,
)
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import OperatorCall, array, call
from foretrace.workload.blocks.steps import Items, Step, operator
from foretrace.workload.exchanges.activations import around_columns, around_rows, num_pieces
from foretrace.workload.exchanges.exchange import Anchored, Turn, standing
from foretrace.workload.plan.plan import AdaptedModule


@dataclass(frozen=True)
class Weight:
    """One matrix, as large as this rank's share of it."""

    label: str
    inputs: int
    outputs: int
    has_bias: bool = False
    module: AdaptedModule | None = None  # that an adapter may stand beside

    @property
    def shape(self) -> tuple[int, int]:
        """As it is stored."""
        return self.outputs, self.inputs


@dataclass(frozen=True)
class _Products:
    """The products of one weight or of several with the same input."""

    setting: Setting
    weights: tuple[Weight, ...]
    rows: int
    dtype: str
    adds_bias: bool = True  # else what follows does
    gathered: Turn | None = None  # in which ranks of TENSOR gather what is quantised

    def forward(self, rows: int) -> tuple[Operator, ...]:
        share = self._share(Turn.FORWARD)
        found = [*self._quantised("input", (rows // share, self.weights[0].inputs))]
        for weight in self.weights:
            if self._is_quantised:
                found.extend(weight_cast(self.setting, weight.label, weight.shape))
            make = product_with_bias if weight.has_bias and self.adds_bias else product
            found.append(
                operator(weight.label, make(rows, weight.outputs, weight.inputs, self.dtype))
            )
            found.extend(adapted_output(self.setting, weight, rows))
        return tuple(found)

    def inputs(self) -> tuple[Operator, ...]:
        """Gradient of the input: a product each, and their sum."""
        found: list[Operator] = []
        for at, weight in enumerate(self.weights):
            share = self._share(Turn.INPUT_GRADIENT)
            found.extend(self._quantised("gradient", (self.rows // share, weight.outputs)))
            if self._is_quantised:
                found.extend(weight_cast_again(self.setting, weight.label, weight.shape))
            one = product(self.rows, weight.inputs, weight.outputs, self.dtype)
            found.append(operator(f"{weight.label} input gradient", one))
            if at:
                shape = (self.rows, weight.inputs)
                total = elementwise("aten::add", shape, self.setting.made, reads=2)
                found.append(operator("sum of input gradients", total))
            found.extend(adapted_input_gradient(self.setting, weight, self.rows))
        return tuple(found)

    def weight_gradients(self) -> tuple[Operator, ...]:
        found = [*self._turned(), *self._other_sides()]
        for weight in self.weights:
            # Adapters' first: what they multiply is waited for by the first one.
            for half in adapter_halves(self.setting, weight):
                own = weight_gradient(self.setting, half, self.rows, self.setting.made)
                found.extend(replace(one, is_of_adapter=True) for one in own)
        for weight in self.weights:
            dtype = self.setting.multiplied_for_weights if self._is_quantised else self.dtype
            found.extend(weight_gradient(self.setting, weight, self.rows, dtype))
        return tuple(found)

    @property
    def _is_quantised(self) -> bool:
        """Whether operands have the format of the plan's products."""
        return self.dtype == self.setting.multiplied

    def _share(self, turn: Turn) -> int:
        """Among how many ranks the tokens lie that are quantised before they are gathered."""
        is_whole = self.gathered is not turn or self.setting.plan.precision.scales_rows
        return 1 if is_whole else self.setting.plan.tensor

    def _turned(self) -> tuple[Operator, ...]:
        """What was gathered with one scale, transposed; blocks' scales are gathered both ways.

        Source:
            NVIDIA/TransformerEngine, transformer_engine/pytorch/distributed.py, `_all_gather_fp8`.
        """
        turn, weight = self.gathered, self.weights[0]
        if turn is None or not _is_scaled_whole(self.setting, self.dtype):
            return ()
        width = weight.inputs if turn is Turn.FORWARD else weight.outputs
        one = turned_copy((self.rows, width), self.dtype)
        what = "input" if turn is Turn.FORWARD else "gradient"
        label = f"gathered {what} of {weight.label} transposed"
        return (operator(label, one, is_weight_gradient=True),)

    def _quantised(self, what: str, shape: tuple[int, int]) -> tuple[Operator, ...]:
        if not self._is_quantised:
            return ()
        return quantising(self.setting, f"{what} of {self.weights[0].label}", shape)

    def _other_sides(self) -> tuple[Operator, ...]:
        """Of the input, and of every gradient."""
        if not self._is_quantised:
            return ()
        setting, first = self.setting, self.weights[0]
        found = [*quantising_again(setting, f"input of {first.label}", (self.rows, first.inputs))]
        for weight in self.weights:
            shape = (self.rows, weight.outputs)
            found.extend(quantising_again(setting, f"gradient of {weight.label}", shape))
        return tuple(found)


def quantising(setting: Setting, label: str, shape: tuple[int, int]) -> tuple[Operator, ...]:
    """An operand becomes one of eight bits or fewer: of blocks or as a whole for all products.

    With a scale for each row it is for the products along its rows alone.
    """
    if not setting.is_quantised:
        return ()
    if setting.plan.precision.scales_rows:
        by_rows = quantised_rows(shape, setting.made, setting.multiplied)
        return (operator(f"{label} quantised by rows", by_rows),)
    one = quantised(shape, setting.made, setting.multiplied)
    return (*_measured(setting, label, shape), operator(f"{label} quantised", one))


def quantising_again(setting: Setting, label: str, shape: tuple[int, int]) -> tuple[Operator, ...]:
    """What has a scale for each row, quantised along its columns for a weight's gradient.

    A compiler cannot find a column's largest number while it turns the matrix: two kernels.

    Source:
        pytorch/ao, torchao/testing/training/roofline_utils.py, recipe "rowwise".
    """
    precision = setting.plan.precision
    if not precision.scales_rows or precision.wide_weight_gradients:
        return ()
    return _by_columns(setting, label, shape, setting.made, is_weight_gradient=True)


def weight_cast(setting: Setting, label: str, shape: tuple[int, int]) -> tuple[Operator, ...]:
    """A weight of outputs x inputs in the products' format, where it is not kept in that."""
    if not setting.casts_weights:
        return ()
    precision = setting.plan.precision
    if precision.scales_rows:
        one = quantised_rows(shape, precision.parameters, setting.multiplied)
    else:
        one = cast(shape, precision.parameters, setting.multiplied)
    measured = _measured(setting, f"weight of {label}", shape)
    return (*measured, operator(f"cast of {label} weight", one))


def weight_cast_again(setting: Setting, label: str, shape: tuple[int, int]) -> tuple[Operator, ...]:
    """The same weight for its input's gradient; beside wide gradients it has one scale there."""
    precision = setting.plan.precision
    if not setting.casts_weights or not precision.scales_rows:
        return ()
    what = f"{label} weight"
    if precision.wide_weight_gradients:
        one = cast(shape, precision.parameters, setting.multiplied)
        return (operator(f"cast of {what} by one scale", one),)
    return _by_columns(setting, what, shape, precision.parameters)


def _by_columns(
    setting: Setting,
    label: str,
    shape: tuple[int, int],
    source: str,
    *,
    is_weight_gradient: bool = False,
) -> tuple[Operator, ...]:
    rows, columns = shape
    turned = turned_copy(shape, source)
    one = quantised_rows((columns, rows), source, setting.multiplied)
    return (
        operator(f"{label} transposed", turned, is_weight_gradient=is_weight_gradient),
        operator(f"{label} quantised by columns", one, is_weight_gradient=is_weight_gradient),
    )


def _measured(setting: Setting, label: str, shape: tuple[int, int]) -> tuple[Operator, ...]:
    """The largest number of what is about to be quantised, where software looks for it."""
    is_whole = _is_scaled_whole(setting, setting.multiplied)
    if not is_whole or not setting.plan.implementation.measures_scales:
        return ()
    largest = call("aten::amax", array(shape, setting.made))
    return (operator(f"largest {label}", largest),)


def _is_scaled_whole(setting: Setting, dtype: str) -> bool:
    """Whether operands are quantised with one scale for all of their numbers."""
    if not setting.is_quantised or setting.plan.precision.scales_rows:
        return False
    return dtype == setting.multiplied and not known_format(dtype).scale_bytes


def adapter_halves(setting: Setting, weight: Weight) -> tuple[Weight, ...]:
    """A and B of the adapter beside a weight; none where it has none."""
    adapters = setting.plan.adapters
    if adapters is None or weight.module not in adapters.modules:
        return ()
    down = Weight(f"{weight.label} adapter, down", weight.inputs, adapters.rank)
    return (down, Weight(f"{weight.label} adapter, up", adapters.rank, weight.outputs))


def adapted_output(setting: Setting, weight: Weight, rows: int) -> list[Operator]:
    """What an adapter makes of a product's input, added to the product."""
    halves = adapter_halves(setting, weight)
    found = [
        operator(one.label, product(rows, one.outputs, one.inputs, setting.made)) for one in halves
    ]
    if halves:
        shape = (rows, weight.outputs)
        total = elementwise("aten::add", shape, setting.made, reads=2)
        found.append(operator(f"{weight.label} with its adapter", total))
    return found


def adapted_input_gradient(setting: Setting, weight: Weight, rows: int) -> list[Operator]:
    """The input's gradient through an adapter, added to that through the product."""
    halves = adapter_halves(setting, weight)
    found = [
        operator(
            f"{one.label} input gradient", product(rows, one.inputs, one.outputs, setting.made)
        )
        for one in reversed(halves)
    ]
    if halves:
        shape = (rows, weight.inputs)
        total = elementwise("aten::add", shape, setting.made, reads=2)
        found.append(operator(f"sum of {weight.label} input gradients", total))
    return found


def weight_gradient(
    setting: Setting, weight: Weight, rows: int, dtype: str
) -> tuple[Operator, ...]:
    """Gradient of a weight and its bias, and their way to where gradients are gathered."""
    shape = (weight.outputs, weight.inputs)
    label = f"{weight.label} weight gradient"
    precision = setting.plan.precision
    is_fused = setting.accumulates and setting.plan.implementation.fuses_gradients
    one: OperatorCall
    if is_fused:
        one = accumulated_product(*shape, rows, (dtype, precision.gradients))
    else:
        one = product(*shape, rows, dtype)
    found = [operator(label, one, is_weight_gradient=True)]
    if weight.has_bias:
        sums = row_sum((rows, weight.outputs), setting.made, 0)
        found.append(operator(f"{weight.label} bias gradient", sums, is_weight_gradient=True))
    if not setting.is_quantised and setting.casts_weights:
        one = cast(shape, dtype, precision.parameters)
        found.append(operator(f"cast of {label}", one, is_weight_gradient=True))
    if setting.accumulates and not is_fused:
        found.append(accumulation(setting, label, shape))
    return tuple(found)


def accumulation(setting: Setting, label: str, shape: tuple[int, ...]) -> Operator:
    """A gradient is added to what microbatches before left."""
    precision = setting.plan.precision
    kept, found = array(shape, precision.gradients), array(shape, precision.parameters)
    one = call("aten::add", kept, found)
    return operator(f"accumulation of {label}", one, is_weight_gradient=True)


def plain(setting: Setting, weights: tuple[Weight, ...], rows: int, dtype: str) -> Step:
    """Products that no ranks share."""
    products = _Products(setting, weights, rows, dtype)
    return Step(products.forward(rows), (*products.inputs(), *products.weight_gradients()))


def columns(setting: Setting, weights: tuple[Weight, ...], *, is_wide: bool = False) -> Step:
    """Products of a microbatch's tokens whose outputs are divided over the ranks of TENSOR.

    Args:
        setting: model and plan.
        weights: all of the same input.
        is_wide: the operands are never quantised.
    """
    dtype = setting.multiplied_wide if is_wide else setting.multiplied
    gathered = Turn.FORWARD if setting.is_sequence_parallel else None
    products = _Products(setting, weights, setting.tokens, dtype, gathered=gathered)
    around = around_columns(
        setting.plan,
        weights[0].label,
        setting.tokens * weights[0].inputs,
        operands=setting.made if is_wide else "",
    )
    return _step(products, around)


def rows_divided(setting: Setting, weight: Weight, *, is_last: bool = False) -> Step:
    """A product whose inputs are divided over the ranks of TENSOR, and its sum over them.

    A bias is added after the sum, by what follows. `is_last`: of a layer.
    """
    is_alone = setting.plan.tensor == 1
    products = _Products(
        setting,
        (weight,),
        setting.tokens,
        setting.multiplied,
        adds_bias=is_alone,
        gathered=Turn.INPUT_GRADIENT if setting.is_sequence_parallel else None,
    )
    around = around_rows(setting.plan, weight.label, setting.tokens * weight.outputs)
    return replace(_step(products, around), is_needed_again=not is_last)


def _step(products: _Products, around: Sequence[Anchored]) -> Step:
    """Products with what is exchanged around them; the forward ones at once or piece by piece."""
    pieces = num_pieces(products.setting.plan, products.rows)
    if pieces > 1:
        forward = _in_pieces(products, around, pieces)
    else:
        forward = placed({Turn.FORWARD: products.forward(products.rows)}, around)
    gradients = {
        Turn.INPUT_GRADIENT: products.inputs(),
        Turn.WEIGHT_GRADIENT: products.weight_gradients(),
    }
    return Step(forward, placed(gradients, around))


def placed(work: Mapping[Turn, Items], around: Sequence[Anchored]) -> Items:
    """Work in order, with the exchanges that stand before and behind it."""
    found: list[Item] = []
    firsts: dict[Turn, int] = {}
    at: dict[Anchored, int] = {}
    for turn, items in work.items():
        for is_behind in (False, True):
            for one in around:
                if (one.turn, one.is_behind) == (turn, is_behind):
                    at[one] = len(found)
                    found.append(one.exchange)
            if not is_behind:
                firsts[turn] = len(found)
                found.extend(items)
    for one, place in at.items():
        if one.awaited_by is not None:
            first = firsts[one.awaited_by]
            found[first] = replace(found[first], after=(*found[first].after, place - first))
    return tuple(found)


def _in_pieces(products: _Products, around: Sequence[Anchored], pieces: int) -> Items:
    """Forward products piece by piece, each with its piece of what is exchanged around it."""
    before, behind = (
        [
            replace(one, num_bytes=one.num_bytes // pieces)
            for one in standing(around, Turn.FORWARD, is_behind=is_behind)
        ]
        for is_behind in (False, True)
    )
    first, *others = products.forward(products.rows // pieces)
    first = replace(first, after=(*first.after, -1)) if before else first
    found: list[Item] = []
    for _ in range(pieces):
        # All pieces are on their way from the start: each waits for what the first waits for.
        back = (-1 - len(found),) if found else ()
        found += [*(replace(one, after=back) for one in before), first, *others]
        # A piece is sent as soon as its product is done; the products go on.
        found += [replace(one, after=(-1,)) for one in behind]
    return tuple(found)
