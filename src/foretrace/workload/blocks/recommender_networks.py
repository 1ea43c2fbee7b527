"""Dense networks and interactions of a recommender: their operators, forward and backward.

As PyTorch runs facebookresearch/dlrm's and TorchRec's modules: products with a bias and ReLU,
`torch.bmm` of pooled vectors or low-rank cross layers, and DistributedDataParallel's copies of
gradients into buckets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from foretrace.workload.blocks import calls
from foretrace.workload.blocks.block import ItemWriter
from foretrace.workload.blocks.signatures import OperatorCall
from foretrace.workload.models.recommender import Interaction, Recommender
from foretrace.workload.plan.plan import Precision

# Kernels of `BCEWithLogitsLoss` over one number a sample, as PyTorch 2.1 launches them (the
# public 8-rank run, facebookresearch/param et_replay/tests/inputs/dlrm_kineto).
_LOSS = (
    *("aten::clone", "aten::neg", "aten::clamp_min", "aten::zero_", "aten::rsub", "aten::mul"),
    *("aten::add", "aten::neg", "aten::exp", "aten::neg", "aten::sub", "aten::exp", "aten::add"),
    *("aten::log", "aten::add", "aten::mean"),
)
_LOSS_BACKWARD = ("aten::sigmoid", "aten::sub", "aten::div", "aten::mul")


@dataclass(frozen=True)
class DenseLayer:
    """One layer of a dense network."""

    label: str
    inputs: int
    outputs: int
    has_activation: bool


@dataclass(frozen=True)
class Gradient:
    """A parameter's gradient that has just been computed."""

    position: int  # of the item that made it
    num_elements: int


def linears(model: Recommender, network: str) -> tuple[DenseLayer, ...]:
    """Layers of the "bottom" or the "top" network, in order; the very last has no ReLU."""
    shapes = list(model.dense_shapes(network))
    return tuple(
        DenseLayer(
            f"{network} layer {at}", inputs, outputs, network != "top" or at + 1 < len(shapes)
        )
        for at, (inputs, outputs) in enumerate(shapes)
    )


@dataclass(frozen=True)
class Networks:
    """Writes the dense work of one batch."""

    model: Recommender
    batch: int
    precision: Precision
    is_replicated: bool  # gradients are copied into buckets

    def forward(self, items: ItemWriter, network: str) -> None:
        """All layers of a network."""
        for layer in linears(self.model, network):
            shape = (self.batch, layer.outputs)
            items.add(
                layer.label,
                calls.product_with_bias(*shape, layer.inputs, self.precision.products),
            )
            if layer.has_activation:
                items.add(f"{layer.label} relu", self._plain("aten::relu", shape))

    def backward(self, items: ItemWriter, network: str, *, has_input: bool) -> Iterator[Gradient]:
        """All layers from the last to the first; gradients of parameters as they are there."""
        layers = linears(self.model, network)
        for at in reversed(range(len(layers))):
            layer = layers[at]
            shape = (self.batch, layer.outputs)
            if layer.has_activation:
                items.add(
                    f"{layer.label} relu", self._plain("aten::threshold_backward", shape, reads=2)
                )
            yield from self._weights(items, layer, has_input=has_input or at > 0)

    def _weights(
        self, items: ItemWriter, layer: DenseLayer, *, has_input: bool
    ) -> Iterator[Gradient]:
        products = self.precision.products
        if has_input:
            items.add(
                f"{layer.label} input gradient",
                calls.product(self.batch, layer.inputs, layer.outputs, products),
            )
        items.add(
            f"{layer.label} weight gradient",
            calls.product(layer.outputs, layer.inputs, self.batch, products),
            is_weight_gradient=True,
        )
        shape = (self.batch, layer.outputs)
        items.add(f"{layer.label} bias gradient", self._sum(shape))
        yield self._copied(items, f"{layer.label} bias", (layer.outputs,))
        yield self._copied(items, layer.label, (layer.outputs, layer.inputs))

    def _copied(self, items: ItemWriter, label: str, shape: tuple[int, ...]) -> Gradient:
        """DistributedDataParallel divides a gradient by the ranks as it copies it."""
        if self.is_replicated:
            call = calls.elementwise("aten::mul", shape, self.precision.gradients)
            items.add(f"{label} to bucket", call)
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        return Gradient(items.last, count)

    def interact(self, items: ItemWriter) -> None:
        """Pooled vectors and dense features become the input of the top network."""
        model, batch = self.model, self.batch
        vectors, size, width = model.num_tables + 1, model.size, model.interaction_width
        products = self.precision.products
        items.add("vectors side by side", self._moved(batch, vectors * size))
        if model.interaction is Interaction.DOT:
            call = calls.batched_product(batch, (vectors, vectors, size), products)
            items.add("interaction", call)
            items.add("pairs", self._moved(batch, width - size))
            items.add("pairs and dense features", self._moved(batch, width))
        if model.interaction is Interaction.CROSS:
            for at in range(model.num_cross_layers):
                self._cross(items, f"cross layer {at}", width)

    def _cross(self, items: ItemWriter, label: str, width: int) -> None:
        rank, products = self.model.cross_rank, self.precision.products
        shape = (self.batch, width)
        items.add(f"{label} down", calls.product(self.batch, rank, width, products))
        items.add(f"{label} up", calls.product(self.batch, width, rank, products))
        for name, reads in (("aten::add", 1), ("aten::mul", 2), ("aten::add", 2)):
            items.add(label, self._plain(name, shape, reads=reads))

    def interact_backward(self, items: ItemWriter) -> Iterator[Gradient]:
        """Gradients of pooled vectors and of dense features."""
        model, batch = self.model, self.batch
        vectors, size = model.num_tables + 1, model.size
        products, shape = self.precision.products, (batch, vectors * size)
        if model.interaction is Interaction.DOT:
            square = (batch, vectors, vectors)
            items.add("pairs", self._moved(batch, vectors * (vectors - 1) // 2))
            items.add("all pairs", calls.zeros(square, self.precision.activations))
            items.add("pairs put back", self._plain("aten::add", square, reads=2))
            for _ in range(2):
                call = calls.batched_product(batch, (vectors, size, vectors), products)
                items.add("interaction gradient", call)
            items.add("interaction gradient", self._plain("aten::add", shape, reads=2))
        if model.interaction is Interaction.CROSS:
            for at in reversed(range(model.num_cross_layers)):
                yield from self._cross_backward(items, f"cross layer {at}")
        items.add("vectors apart", self._moved(batch, vectors * size))
        if model.interaction is Interaction.DOT:
            items.add("dense features", self._plain("aten::add", (batch, size), reads=2))

    def _cross_backward(self, items: ItemWriter, label: str) -> Iterator[Gradient]:
        width, rank = self.model.interaction_width, self.model.cross_rank
        batch, products = self.batch, self.precision.products
        shape = (batch, width)
        for _ in range(2):  # of the first input, and of what it is multiplied by
            items.add(f"{label} gradient", self._plain("aten::mul", shape, reads=2))
        items.add(f"{label} bias gradient", self._sum(shape))
        yield self._copied(items, f"{label} bias", (width,))
        items.add(f"{label} up input gradient", calls.product(batch, rank, width, products))
        items.add(
            f"{label} up weight gradient",
            calls.product(width, rank, batch, products),
            is_weight_gradient=True,
        )
        yield self._copied(items, f"{label} up", (width, rank))
        items.add(f"{label} down input gradient", calls.product(batch, width, rank, products))
        items.add(
            f"{label} down weight gradient",
            calls.product(rank, width, batch, products),
            is_weight_gradient=True,
        )
        yield self._copied(items, f"{label} down", (rank, width))
        for _ in range(2):  # the layer's input, and the first layer's, are used twice
            items.add(f"{label} gradients together", self._plain("aten::add", shape, reads=2))

    def loss(self, items: ItemWriter) -> None:
        """Binary cross entropy of one number a sample."""
        for name in _LOSS:
            items.add("loss", self._plain(name, (self.batch,)))

    def loss_backward(self, items: ItemWriter) -> None:
        """Its gradient."""
        for name in _LOSS_BACKWARD:
            items.add("loss gradient", self._plain(name, (self.batch,)))

    def _plain(self, name: str, shape: tuple[int, ...], *, reads: int = 1) -> OperatorCall:
        return calls.elementwise(name, shape, self.precision.activations, reads=reads)

    def _sum(self, shape: tuple[int, int]) -> OperatorCall:
        return calls.row_sum(shape, self.precision.activations, 0)

    def _moved(self, rows: int, columns: int) -> OperatorCall:
        return calls.gathered_copy(
            (rows, columns), self.precision.activations, row_stride=columns + 1
        )
