"""Products with weights under tensor parallelism: forward, both gradients, and what is exchanged.

Outputs divided over ranks ("columns"): the input is the same on all of them, so its gradients are
summed; inputs divided ("rows"): results are summed. With sequence parallelism each sum leaves a
rank its share of the tokens only (reduce-scatter), and they are gathered before the next product.

Source:
    Shoeybi et al., "Megatron-LM", arXiv:1909.08053; Korthikanti et al., arXiv:2205.05198, which
    gathers the input once more for the weights' gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.workload.blocks.block import Operator
from foretrace.workload.blocks.calls import (
    accumulated_product,
    cast,
    elementwise,
    product,
    product_with_bias,
    row_sum,
)
from foretrace.workload.blocks.setting import Setting
from foretrace.workload.blocks.signatures import Call, array, call, num_bytes
from foretrace.workload.blocks.steps import Items, Step, exchange, operator
from foretrace.workload.plan.plan import Group

# Into how many pieces a product and its exchange are cut where they overlap.
# Source: Transformer Engine, `initialize_ub`: `num_splits` 4.
_PIECES = 4


@dataclass(frozen=True)
class Weight:
    """One matrix, as large as this rank's share of it."""

    label: str
    inputs: int
    outputs: int
    has_bias: bool = False


@dataclass(frozen=True)
class _Products:
    """The products of one weight or of several with the same input."""

    setting: Setting
    weights: tuple[Weight, ...]
    rows: int
    dtype: str

    def forward(self, rows: int) -> tuple[Operator, ...]:
        found = [*self._measured("input", (rows, self.weights[0].inputs))]
        for weight in self.weights:
            found.extend(self._cast(weight))
            make = product_with_bias if weight.has_bias else product
            found.append(
                operator(weight.label, make(rows, weight.outputs, weight.inputs, self.dtype))
            )
        return tuple(found)

    def inputs(self) -> tuple[Operator, ...]:
        """Gradient of the input: a product each, and their sum."""
        found: list[Operator] = []
        for at, weight in enumerate(self.weights):
            found.extend(self._measured("gradient", (self.rows, weight.outputs)))
            one = product(self.rows, weight.inputs, weight.outputs, self.dtype)
            found.append(operator(f"{weight.label} input gradient", one))
            if at:
                shape = (self.rows, weight.inputs)
                total = elementwise("aten::add", shape, self.setting.made, reads=2)
                found.append(operator("sum of input gradients", total))
        return tuple(found)

    def weight_gradients(self) -> tuple[Operator, ...]:
        found: list[Operator] = []
        for weight in self.weights:
            found.extend(weight_gradient(self.setting, weight, self.rows, self.dtype))
        return tuple(found)

    def gathered_size(self, width: int) -> tuple[int, str]:
        """Of tokens before they are multiplied: quantised first, then gathered.

        Source:
            NVIDIA/TransformerEngine, transformer_engine/pytorch/module/linear.py.
        """
        dtype = self.dtype if self.setting.is_quantised else self.setting.made
        return num_bytes(self.rows * width, dtype), dtype

    def _cast(self, weight: Weight) -> tuple[Operator, ...]:
        setting = self.setting
        if not setting.casts_weights or self.dtype != setting.multiplied:
            return ()
        shape = (weight.outputs, weight.inputs)
        one = cast(shape, setting.plan.precision.parameters, setting.multiplied)
        return (*self._measured("weight", shape), operator(f"cast of {weight.label} weight", one))

    def _measured(self, what: str, shape: tuple[int, int]) -> tuple[Operator, ...]:
        """The largest number of what is about to be quantised, where software looks for it."""
        setting = self.setting
        is_narrow = setting.is_quantised and self.dtype == setting.multiplied
        if not is_narrow or not setting.plan.implementation.measures_scales:
            return ()
        largest = call("aten::amax", array(shape, setting.made))
        return (operator(f"largest {what} of {self.weights[0].label}", largest),)


def weight_gradient(
    setting: Setting, weight: Weight, rows: int, dtype: str
) -> tuple[Operator, ...]:
    """Gradient of a weight and its bias, and their way to where gradients are gathered."""
    shape = (weight.outputs, weight.inputs)
    label = f"{weight.label} weight gradient"
    precision = setting.plan.precision
    is_fused = setting.accumulates and setting.plan.implementation.fuses_gradients
    one: Call
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


def columns(
    setting: Setting, weights: tuple[Weight, ...], *, rows: int | None = None, dtype: str = ""
) -> Step:
    """Products whose outputs are divided over the ranks of TENSOR.

    Args:
        setting: model and plan.
        weights: all of the same input.
        rows: tokens; those of a microbatch if left out.
        dtype: of the operands; as the plan says if left out.
    """
    rows = setting.tokens if rows is None else rows
    products = _Products(setting, weights, rows, dtype or setting.multiplied)
    forward, inputs = products.forward(rows), products.inputs()
    gradients = products.weight_gradients()
    if setting.plan.tensor == 1:
        return Step(forward, (*inputs, *gradients))
    size = _size(setting, rows * weights[0].inputs)
    label = weights[0].label
    is_beside = setting.plan.overlap.tensor_backward
    if not setting.is_sequence_parallel:
        total = exchange(f"sum of {label} input gradients", "all_reduce", Group.TENSOR, size)
        gradients = gradients if is_beside else _after(gradients, -1)
        return Step(forward, (*inputs, total, *gradients))
    return Step(
        _gathered(products, label),
        _scattered_back(products, (inputs, gradients), label, size),
    )


def _scattered_back(
    products: _Products,
    backward: tuple[tuple[Operator, ...], tuple[Operator, ...]],
    label: str,
    size: tuple[int, str],
) -> Items:
    """The input is gathered again for the weights' gradient, the input's gradient scattered."""
    inputs, gradients = backward
    setting = products.setting
    gathered = exchange(
        f"gathered input of {label}",
        "all_gather",
        Group.TENSOR,
        products.gathered_size(products.weights[0].inputs),
        is_weight_gradient=True,
    )
    scattered = exchange(f"sum of {label} input gradients", "reduce_scatter", Group.TENSOR, size)
    if setting.plan.overlap.tensor_backward:
        # Gathered beside the input's gradient, which is scattered beside the weights'.
        first = _after(gradients, -2 - len(inputs))
        return (gathered, *inputs, scattered, *first)
    return (*inputs, scattered, gathered, *_after(gradients, -1, -2))


def _after(operators: tuple[Operator, ...], *distances: int) -> tuple[Operator, ...]:
    """The first of the operators waits for what stands so far before it."""
    first = operators[0]
    return (replace(first, after=(*first.after, *distances)), *operators[1:])


def _gathered(products: _Products, label: str) -> Items:
    """Tokens are gathered, then multiplied: at once, or piece by piece."""
    size = products.gathered_size(products.weights[0].inputs)
    pieces = _num_pieces(products.setting, products.rows)
    found: list[Items] = []
    num_items = 0
    for _ in range(pieces):
        # All pieces are on their way from the start: each waits for what the first waits for.
        back = (-1 - num_items,) if num_items else ()
        gathered = exchange(
            f"gathered input of {label}",
            "all_gather",
            Group.TENSOR,
            (size[0] // pieces, size[1]),
            *back,
        )
        multiplied = _after(products.forward(products.rows // pieces), -1)
        items: Items = (gathered, *multiplied)
        found.append(items)
        num_items += len(items)
    return tuple(item for items in found for item in items)


def _num_pieces(setting: Setting, rows: int) -> int:
    is_cut = setting.plan.overlap.tensor and rows % (_PIECES * setting.plan.tensor) == 0
    return _PIECES if is_cut else 1


def rows_divided(
    setting: Setting,
    weight: Weight,
    *,
    rows: int | None = None,
    dtype: str = "",
    is_last: bool = False,
) -> Step:
    """A product whose inputs are divided over the ranks of TENSOR, and its sum over them.

    A bias is added after the sum, by what follows. `is_last`: of a layer.
    """
    rows = setting.tokens if rows is None else rows
    dtype = dtype or setting.multiplied
    tensor = setting.plan.tensor
    products = _Products(setting, (weight,), rows, dtype)
    back = (*products.inputs(), *products.weight_gradients())
    if tensor == 1:
        return Step(products.forward(rows), back, is_needed_again=not is_last)
    size = _size(setting, rows * weight.outputs)
    label = f"sum of {weight.label}"
    products = replace(products, weights=(replace(weight, has_bias=False),))
    if not setting.is_sequence_parallel:
        total = exchange(label, "all_reduce", Group.TENSOR, size)
        return Step((*products.forward(rows), total), back, is_needed_again=not is_last)
    pieces = _num_pieces(setting, rows)
    # A piece is sent as soon as its product is done; the products go on.
    sent = () if pieces == 1 else (-1,)
    piece = (size[0] // pieces, size[1])
    scattered = exchange(label, "reduce_scatter", Group.TENSOR, piece, *sent)
    one: Items = (*products.forward(rows // pieces), scattered)
    forward = tuple(item for _ in range(pieces) for item in one)
    gathered = exchange(
        f"gathered gradient of {weight.label}",
        "all_gather",
        Group.TENSOR,
        products.gathered_size(weight.outputs),
    )
    return Step(forward, (gathered, *_after(back, -1)), is_needed_again=not is_last)


def _size(setting: Setting, num_elements: int) -> tuple[int, str]:
    return num_bytes(num_elements, setting.made), setting.made
