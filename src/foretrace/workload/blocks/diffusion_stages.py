"""What a diffusion network is made of, one value each: operators both ways, and parameters."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from foretrace.graph import Part, Phase
from foretrace.operators import Tensor
from foretrace.workload.blocks import calls
from foretrace.workload.blocks.block import ItemWriter, Operator, ParameterCount, Passes
from foretrace.workload.blocks.signatures import OperatorCall, array, call
from foretrace.workload.blocks.steps import Step, passes_of
from foretrace.workload.models.recompute import RecomputeModule
from foretrace.workload.plan.plan import Plan

_FLASH = "aten::_scaled_dot_product_flash_attention"
_ONE_GROUP = "1"


class NetworkStage(Protocol):
    """One step of a network."""

    @property
    def label(self) -> str:
        """What it is."""

    @property
    def num_parameters(self) -> int:
        """Weights and biases."""

    def forward(self, items: ItemWriter) -> None:
        """Write its operators."""

    def backward(self, items: ItemWriter) -> None:
        """Write those of its gradients."""


@dataclass(frozen=True)
class Convolution:
    """Of images, or of clips over time; the kernel is as wide as it is high."""

    label: str
    inputs: int
    outputs: int
    image: tuple[int, ...]  # number, then sides, of what goes in
    kernel: tuple[int, ...]
    dtype: str
    stride: int = 1
    has_input_gradient: bool = True

    @property
    def num_parameters(self) -> int:
        """Weights and biases."""
        return self.inputs * self.outputs * math.prod(self.kernel) + self.outputs

    def forward(self, items: ItemWriter) -> None:
        """One convolution with its bias."""
        data, weight = self._tensors()
        bias = array((self.outputs,), self.dtype)
        items.add(self.label, call("aten::convolution", data, weight, bias, *self._settings()))

    def backward(self, items: ItemWriter) -> None:
        """One operator makes the gradients of images, weights and bias."""
        data, weight = self._tensors()
        sides = (-(-side // self.stride) for side in self.image[1:])
        gradient = array((self.image[0], self.outputs, *sides), self.dtype)
        wanted = "[True, True, True]" if self.has_input_gradient else "[False, True, True]"
        settings = (f"[{self.outputs}]", *self._settings(), wanted)
        items.add(
            f"{self.label} gradients",
            call("aten::convolution_backward", gradient, data, weight, *settings),
        )

    def _tensors(self) -> tuple[Tensor, Tensor]:
        data = array((self.image[0], self.inputs, *self.image[1:]), self.dtype)
        return data, array((self.outputs, self.inputs, *self.kernel), self.dtype)

    def _settings(self) -> tuple[str, ...]:
        """Stride, padding, dilation, whether transposed, padding of the output, groups."""
        size = len(self.kernel)
        padding = [side // 2 for side in self.kernel]
        ones, zeros = [1] * size, [0] * size
        return (
            *(str([self.stride] * size), str(padding), str(ones)),
            *("False", str(zeros), _ONE_GROUP),
        )


@dataclass(frozen=True)
class Linear:
    """A product with weights."""

    label: str
    rows: int
    inputs: int
    outputs: int
    dtype: str
    has_bias: bool = True
    has_input_gradient: bool = True

    @property
    def num_parameters(self) -> int:
        """Weights and biases."""
        return (self.inputs + self.has_bias) * self.outputs

    def forward(self, items: ItemWriter) -> None:
        """One product."""
        make = calls.product_with_bias if self.has_bias else calls.product
        items.add(self.label, make(self.rows, self.outputs, self.inputs, self.dtype))

    def backward(self, items: ItemWriter) -> None:
        """A product for what went in, one for the weights, a sum for the bias."""
        if self.has_input_gradient:
            items.add(
                f"{self.label} input gradient",
                calls.product(self.rows, self.inputs, self.outputs, self.dtype),
            )
        items.add(
            f"{self.label} weight gradient",
            calls.product(self.outputs, self.inputs, self.rows, self.dtype),
            is_weight_gradient=True,
        )
        if self.has_bias:
            shape = (self.rows, self.outputs)
            items.add(f"{self.label} bias gradient", calls.row_sum(shape, self.dtype, 0))


@dataclass(frozen=True)
class Scores:
    """Attention proper: products of queries and keys, softmax, product with values."""

    label: str
    batch: int  # sequences, each on its own
    heads: int
    head_size: int
    lengths: tuple[int, int]  # of queries, of keys
    dtype: str
    is_flash: bool

    num_parameters = 0

    def operators(self) -> tuple[Operator, ...]:
        """Those of the forward pass alone."""
        items = ItemWriter(Phase.FORWARD)
        self.forward(items)
        return tuple(one for one in items.written if isinstance(one, Operator))

    def forward(self, items: ItemWriter) -> None:
        """One kernel, or scores written to memory."""
        if self.is_flash:
            items.add(self.label, call(_FLASH, *self._inputs(), "0.0", "False"))
            return
        queries, keys = self.lengths
        batch = self.batch * self.heads
        product = calls.batched_product
        scores = product(batch, (queries, keys, self.head_size), self.dtype)
        values = product(batch, (queries, self.head_size, keys), self.dtype)
        items.add(f"{self.label}: queries times keys", scores)
        items.add(f"{self.label}: softmax", self._softmax("aten::_softmax", 1))
        items.add(f"{self.label}: scores times values", values)

    def backward(self, items: ItemWriter) -> None:
        """One kernel, or two products for each of the two and the softmax's gradient."""
        if self.is_flash:
            nothing = (None,) * 2
            out = self._inputs()[0]
            items.add(
                f"{self.label} gradients",
                call(
                    f"{_FLASH}_backward",
                    *(out, *self._inputs(), out, None),
                    *(*nothing, *nothing, "0.0", "False"),
                ),
            )
            return
        queries, keys = self.lengths
        size, batch = self.head_size, self.batch * self.heads
        label = f"{self.label} gradients"
        for sizes in ((keys, size, queries), (queries, keys, size)):
            items.add(label, calls.batched_product(batch, sizes, self.dtype))
        items.add(f"{label}: softmax", self._softmax("aten::_softmax_backward_data", 2))
        for sizes in ((queries, size, keys), (keys, size, queries)):
            items.add(label, calls.batched_product(batch, sizes, self.dtype))

    def _inputs(self) -> tuple[Tensor, ...]:
        shape = (self.batch, self.heads, self.lengths[0], self.head_size)
        other = (self.batch, self.heads, self.lengths[1], self.head_size)
        return (array(shape, self.dtype), array(other, self.dtype), array(other, self.dtype))

    def _softmax(self, name: str, reads: int) -> OperatorCall:
        shape = (self.batch * self.heads, *self.lengths)
        return calls.softmax(name, shape, self.dtype, reads=reads)


@dataclass(frozen=True)
class GroupNorm:
    """Normalisation of groups of channels."""

    label: str
    image: tuple[int, ...]  # number, channels, sides
    dtype: str

    @property
    def num_parameters(self) -> int:
        """A factor and a number to add for each channel."""
        return 2 * self.image[1]

    def forward(self, items: ItemWriter) -> None:
        """One operator."""
        data, weight = array(self.image, self.dtype), array((self.image[1],), self.dtype)
        items.add(self.label, call("aten::native_group_norm", data, weight, weight))

    def backward(self, items: ItemWriter) -> None:
        """One operator."""
        data, weight = array(self.image, self.dtype), array((self.image[1],), self.dtype)
        name = "aten::native_group_norm_backward"
        items.add(f"{self.label} gradients", call(name, data, data, None, None, weight))


@dataclass(frozen=True)
class LayerNorm:
    """Normalisation of rows."""

    label: str
    rows: int
    width: int
    dtype: str
    num_vectors: int = 2  # a factor and a number to add for each column; 0: neither

    @property
    def num_parameters(self) -> int:
        """Of all columns."""
        return self.num_vectors * self.width

    def forward(self, items: ItemWriter) -> None:
        """One operator."""
        name = "aten::native_layer_norm"
        vectors = self.num_vectors
        found = calls.norm(name, self.rows, self.width, self.dtype, num_parameters=vectors)
        items.add(self.label, found)

    def backward(self, items: ItemWriter) -> None:
        """One operator."""
        name, vectors = "aten::native_layer_norm_backward", min(self.num_vectors, 1)
        found = calls.norm_backward(name, self.rows, self.width, self.dtype, num_parameters=vectors)
        items.add(f"{self.label} gradients", found)


@dataclass(frozen=True)
class Pointwise:
    """An operator that works number by number."""

    label: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    reads: int = 1
    backward_reads: int = 2  # 0: its gradient is what comes in

    num_parameters = 0

    def forward(self, items: ItemWriter) -> None:
        """One kernel."""
        items.add(self.label, self._call(self.reads))

    def backward(self, items: ItemWriter) -> None:
        """One kernel, or none."""
        if self.backward_reads:
            items.add(f"{self.label} gradient", self._call(self.backward_reads))

    def _call(self, reads: int) -> OperatorCall:
        return calls.elementwise(self.name, self.shape, self.dtype, reads=reads)


@dataclass(frozen=True)
class Moved:
    """Numbers are put in another order: concatenated, images turned to rows, words looked up."""

    label: str
    rows: int
    columns: int
    dtype: str
    num_parameters: int = 0
    gap: int = 1  # numbers between two rows where they are read

    def forward(self, items: ItemWriter) -> None:
        """One copy."""
        items.add(self.label, self._call())

    def backward(self, items: ItemWriter) -> None:
        """One copy back."""
        items.add(f"{self.label} back", self._call())

    def _call(self) -> OperatorCall:
        stride = self.columns + self.gap
        return calls.gathered_copy((self.rows, self.columns), self.dtype, row_stride=stride)


def step_of(stage: NetworkStage) -> Step:
    """A stage as a step that passes of parts are made of."""
    forward, backward = ItemWriter(Phase.FORWARD), ItemWriter(Phase.BACKWARD)
    stage.forward(forward)
    stage.backward(backward)
    scores = (RecomputeModule.CORE_ATTENTION,) if isinstance(stage, Scores) else ()
    return Step(forward.written, backward.written, modules=frozenset(scores))


@dataclass(frozen=True)
class NetworkWalk:
    """Writes a network; layers alike become one object."""

    plan: Plan
    known: dict[object, Passes] = field(default_factory=dict)

    @property
    def dtype(self) -> str:
        """Of products."""
        return self.plan.precision.products

    @property
    def kept(self) -> str:
        """Of what lies between operators."""
        return self.plan.precision.activations

    def passes(self, part: Part, key: object, stages: Sequence[NetworkStage]) -> Passes:
        """Stages in a row as a part of the model."""
        if key not in self.known:
            self.known[key] = passes_of(
                part,
                [step_of(stage) for stage in stages],
                ParameterCount(dense=sum(stage.num_parameters for stage in stages)),
                self.plan,
            )
        return self.known[key]

    def layer(self, stages: Iterator[NetworkStage]) -> Passes:
        """Stages in a row as a layer."""
        found = tuple(stages)
        return self.passes(Part.LAYER, found, found)

    def silu(self, label: str, shape: tuple[int, ...]) -> Pointwise:
        """What lies behind norms and before the step's number is told."""
        return Pointwise(f"{label} silu", "aten::silu", shape, self.kept)

    def sum_of(self, label: str, shape: tuple[int, ...]) -> Pointwise:
        """What is added to; its gradient goes both ways as it is."""
        name = f"{label} sum"
        return Pointwise(name, "aten::add", shape, self.kept, reads=2, backward_reads=0)

    def widened(self, label: str, rows: int, inputs: int, outputs: int) -> tuple[NetworkStage, ...]:
        """The step's number, or what a text says in all, becomes a vector of the network."""
        return (
            Linear(label, rows, inputs, outputs, self.dtype, has_input_gradient=False),
            self.silu(label, (rows, outputs)),
            Linear(label, rows, outputs, outputs, self.dtype),
        )

    def loss(self, shape: tuple[int, ...]) -> tuple[NetworkStage, ...]:
        """Noise is held against what was added: the mean squared error."""
        return (
            Pointwise("loss", "aten::sub", shape, "fp32", reads=2, backward_reads=0),
            Pointwise("loss", "aten::square", shape, "fp32"),
        )
