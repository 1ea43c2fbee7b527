"""One model's answer for measured rows, from constants: what fitting and testing both call."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from foretrace.base import Bools, Float64s
from foretrace.cost.attention import CONSTANTS as ATTENTION_CONSTANTS
from foretrace.cost.attention import AttentionShapes, attention_ns
from foretrace.cost.convolution import CONSTANTS as CONVOLUTION_CONSTANTS
from foretrace.cost.convolution import ConvolutionShapes, convolution_ns
from foretrace.cost.fitting import Constant
from foretrace.cost.gemm import CONSTANTS as GEMM_CONSTANTS
from foretrace.cost.gemm import GemmShapes, gemm_ns
from foretrace.cost.memory_bound import CONSTANTS as MOVEMENT_CONSTANTS
from foretrace.cost.memory_bound import Movements, movement_ns
from foretrace.machine import Chip

BACKWARD_GEMM = "gemm backward"  # two products, by the forward product's constants
CONSTANTS_BY_MODEL: Mapping[str, tuple[Constant, ...]] = {
    "gemm": GEMM_CONSTANTS,
    "attention": ATTENTION_CONSTANTS,
    "attention backward": ATTENTION_CONSTANTS,
    "movement": MOVEMENT_CONSTANTS,
    "convolution": CONVOLUTION_CONSTANTS,
}
ModelShapes: TypeAlias = GemmShapes | AttentionShapes | Movements | ConvolutionShapes


def fitted_model(model: str) -> str:
    """The model whose constants a family of rows is predicted with."""
    return "gemm" if model == BACKWARD_GEMM else model


def model_ns(
    model: str, shapes: ModelShapes, chip: Chip, *, values: Mapping[str, float]
) -> Float64s:
    """Duration of each row, float64[rows].

    Raises:
        MachineError: if the chip's description lacks what the model needs.
    """
    if isinstance(shapes, AttentionShapes):
        return attention_ns(shapes, chip, values)
    if isinstance(shapes, Movements):
        return movement_ns(shapes, chip, values)
    if isinstance(shapes, ConvolutionShapes):
        return convolution_ns(shapes, chip, values)
    if model != BACKWARD_GEMM:
        return gemm_ns(shapes, chip, values)
    by_input = GemmShapes(shapes.batch, shapes.m, shapes.k, shapes.n, shapes.dtype)
    by_weight = GemmShapes(shapes.batch, shapes.n, shapes.k, shapes.m, shapes.dtype)
    return gemm_ns(by_input, chip, values) + gemm_ns(by_weight, chip, values)


def taken(shapes: ModelShapes, rows: Bools) -> ModelShapes:
    """Some of the rows, by a mask."""
    if isinstance(shapes, Movements):
        return Movements(shapes.num_bytes[rows], shapes.access[rows])
    if isinstance(shapes, ConvolutionShapes):
        columns = (shapes.product_ns, shapes.num_products, shapes.num_bytes)
        return ConvolutionShapes(*(column[rows] for column in columns))
    if isinstance(shapes, GemmShapes):
        sizes = np.stack([shapes.batch, shapes.m, shapes.n, shapes.k], axis=1)
        return GemmShapes.of(sizes[rows], shapes.dtype)
    return AttentionShapes(
        batch=shapes.batch[rows],
        heads=shapes.heads[rows],
        key_heads=shapes.key_heads[rows],
        head_size=shapes.head_size[rows],
        length=shapes.length[rows],
        key_length=shapes.key_length[rows],
        is_causal=shapes.is_causal[rows],
        dtype=shapes.dtype,
        is_backward=shapes.is_backward,
    )
