"""How long a convolution takes: the product that it is, slower, and changes of layout.

A convolution of N images, C channels and R x S weights is a product of N x outputs rows, as
many columns as there are output channels, and an inner dimension of C x R x S (implicit matrix
product: Chetlur et al., arXiv:1410.0759). Kernels reach less than those of plain products since
rows of the inner dimension are gathered; and where the library turns the layout of images before
and after, their bytes move again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from foretrace.base import Float64s
from foretrace.cost.fitting import Constant
from foretrace.machine import Chip

CONSTANTS = (
    Constant("start_ns", "ns", "besides that of a product", 100, 50_000, 3_000),
    Constant("gathering", "", "time of the product's kernel, of a plain one's", 0.3, 10, 1.5),
    Constant("layout", "", "bytes of images moved besides, of their size", 0.01, 10, 0.5),
)


@dataclass(frozen=True)
class ConvolutionShapes:
    """Convolutions as products, and the bytes of their images and weights."""

    product_ns: Float64s  # float64[rows], of the product that each is, by the model of products
    num_products: Float64s  # float64[rows]; forward 1, backward 1 per gradient
    num_bytes: Float64s  # float64[rows]

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.product_ns)


def convolution_ns(shapes: ConvolutionShapes, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """Duration of each convolution, float64[rows], in ns."""
    layout_ns = values["layout"] * shapes.num_bytes / chip.memory_bytes_per_ns
    each_ns = values["start_ns"] + values["gathering"] * shapes.product_ns
    duration_ns: Float64s = shapes.num_products * each_ns + layout_ns
    return duration_ns
