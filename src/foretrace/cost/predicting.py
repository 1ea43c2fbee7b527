"""One model's answer for measured rows, from constants: what fitting and testing both call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from foretrace.base import Bools, Float64s, Int64s
from foretrace.cost.attention import CONSTANTS as ATTENTION_CONSTANTS
from foretrace.cost.attention import ENCODER_CONSTANTS, AttentionShapes, attention_ns
from foretrace.cost.convolution import CONSTANTS as CONVOLUTION_CONSTANTS
from foretrace.cost.convolution import ConvolutionShapes, convolution_ns
from foretrace.cost.decode import CONSTANTS as DECODE_CONSTANTS
from foretrace.cost.decode import OPERATOR, OPERATOR_CONSTANTS, DecodeShapes, decode_ns
from foretrace.cost.expert_exchange import CONSTANTS as EXCHANGE_CONSTANTS
from foretrace.cost.expert_exchange import ExchangeShapes, exchange_ns
from foretrace.cost.experts import CONSTANTS as EXPERT_CONSTANTS
from foretrace.cost.experts import SERVED, SERVED_CONSTANTS, ExpertShapes, experts_ns
from foretrace.cost.fitting import Constant, at_once
from foretrace.cost.gemm import (
    BLOCKWISE,
    BLOCKWISE_CONSTANTS,
    GemmShapes,
    gemm_ns,
    without_quantising,
)
from foretrace.cost.gemm import CONSTANTS as GEMM_CONSTANTS
from foretrace.cost.memory_bound import CONSTANTS as MOVEMENT_CONSTANTS
from foretrace.cost.memory_bound import Movements, movement_ns
from foretrace.machine import Chip

BACKWARD_GEMM = "gemm backward"  # two products, by the forward product's constants
# By the same constants too: a product of narrow operands that something else has quantised.
SCALED_GEMM = "gemm of quantised operands"
# Likewise a copy of a whole matrix in another order, whose rate says nothing of slices'.
TURNED_MOVEMENT = "movement transposed"
_FITTED_AS = {BACKWARD_GEMM: "gemm", SCALED_GEMM: "gemm", TURNED_MOVEMENT: "movement"}
CONSTANTS_BY_MODEL: Mapping[str, tuple[Constant, ...]] = {
    "gemm": GEMM_CONSTANTS,
    "attention": ATTENTION_CONSTANTS,
    "attention backward": ATTENTION_CONSTANTS,
    "attention encoder": ENCODER_CONSTANTS,
    "movement": MOVEMENT_CONSTANTS,
    "convolution": CONVOLUTION_CONSTANTS,
    "decode": DECODE_CONSTANTS,
    "experts": EXPERT_CONSTANTS,
    "expert exchange": EXCHANGE_CONSTANTS,
}
# In names of kinds of which a library's whole calls were timed, not its kernels: 60 to 500 us of
# Python and of launches one by one, which the kernels run beside. Scales of blocks of operands are
# turned first where rows are no multiple of the four that 16 bytes hold.
CALL = "call"
_CALL_CONSTANTS = (Constant("call_ns", "ns", "the host's call, beside its kernels", 1e3, 6e5, 1e5),)
_PRODUCT_CALL_CONSTANTS = (
    *_CALL_CONSTANTS,
    Constant("turned_ns", "ns", "more of it where four does not divide the rows", 10, 3e5, 1e4),
)
_TURNED_ROWS = 4
KernelShapes: TypeAlias = (
    GemmShapes | AttentionShapes | DecodeShapes | ExpertShapes | ExchangeShapes
)
ModelShapes: TypeAlias = KernelShapes | Movements | ConvolutionShapes

_NS_OF_SHAPES: Mapping[type, Callable[..., Float64s]] = {
    AttentionShapes: attention_ns,
    Movements: movement_ns,
    ConvolutionShapes: convolution_ns,
    DecodeShapes: decode_ns,
    ExpertShapes: experts_ns,
    ExchangeShapes: exchange_ns,
}
_OF_SIZES: Mapping[str, Callable[[Int64s, str], KernelShapes]] = {
    "gemm": GemmShapes.of,
    "attention": AttentionShapes.of,
    "attention backward": partial(AttentionShapes.of, is_backward=True),
    "attention encoder": AttentionShapes.of,
    "decode": DecodeShapes.of,
    "experts": ExpertShapes.of,
    "expert exchange": ExchangeShapes.of,
}


def constants_of(model: str, kind: str) -> tuple[Constant, ...]:
    """What is fitted for a kind of kernels, between which bounds."""
    if (model, kind) == ("decode", OPERATOR):
        return OPERATOR_CONSTANTS
    if model == "experts" and kind.startswith(SERVED):
        return SERVED_CONSTANTS
    found = CONSTANTS_BY_MODEL[model]
    if model == "gemm" and kind.startswith(BLOCKWISE):
        found = BLOCKWISE_CONSTANTS
    if CALL not in kind.split():
        return found
    return *found, *(_PRODUCT_CALL_CONSTANTS if model == "gemm" else _CALL_CONSTANTS)


def shapes_of(model: str, sizes: Int64s, dtype: str) -> KernelShapes:
    """Shapes from the columns of sizes, one row per operation, of one number format."""
    return _OF_SIZES[model](sizes, dtype)


def fitted_model(model: str) -> str:
    """The model whose constants a family of rows is predicted with."""
    return _FITTED_AS.get(model, model)


def model_ns(
    model: str, shapes: ModelShapes, chip: Chip, *, values: Mapping[str, float]
) -> Float64s:
    """Duration of each row, float64[rows].

    Raises:
        MachineError: if the chip's description lacks what the model needs.
    """
    if "call_ns" in values:
        kernels = {name: value for name, value in values.items() if name != "call_ns"}
        return at_once(model_ns(model, shapes, chip, values=kernels), _call_ns(shapes, values))
    if not isinstance(shapes, GemmShapes):
        duration_ns: Float64s = _NS_OF_SHAPES[type(shapes)](shapes, chip, values)
        return duration_ns
    if model == SCALED_GEMM:
        return gemm_ns(shapes, chip, without_quantising(values))
    if model != BACKWARD_GEMM:
        return gemm_ns(shapes, chip, values)
    by_input = GemmShapes(shapes.batch, shapes.m, shapes.k, shapes.n, shapes.dtype)
    by_weight = GemmShapes(shapes.batch, shapes.n, shapes.k, shapes.m, shapes.dtype)
    return gemm_ns(by_input, chip, values) + gemm_ns(by_weight, chip, values)


def _call_ns(shapes: ModelShapes, values: Mapping[str, float]) -> Float64s:
    """How long the host is at a library's call of each row; float64[rows]."""
    call_ns = np.full(len(shapes), values["call_ns"])
    if isinstance(shapes, GemmShapes):
        call_ns += values["turned_ns"] * (shapes.m % _TURNED_ROWS > 0)
    return call_ns


def taken(shapes: ModelShapes, rows: Bools) -> ModelShapes:
    """Some of the rows, by a mask."""
    columns = {one.name: getattr(shapes, one.name) for one in fields(shapes)}
    kept: dict[str, Any] = {
        name: each[rows] for name, each in columns.items() if isinstance(each, np.ndarray)
    }
    return replace(shapes, **kept)
