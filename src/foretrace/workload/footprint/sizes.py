"""`Sizes`: how much of a model one rank holds and sees under a plan."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.base import known_format
from foretrace.workload.footprint.software import Software
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.plan.plan import Plan


def format_bytes(number_format: str) -> float:
    """Bytes of one number, with its share of scales.

    Raises:
        WorkloadError: if the format is unknown.
    """
    found = known_format(number_format)
    return found.num_bytes + found.scale_bytes


@dataclass(frozen=True)
class Sizes:
    """Numbers of one rank for one microbatch."""

    tokens: int  # of its part of the sequence
    own_tokens: int  # of those, that it alone has: sequence parallel divides what is no product
    input_tokens: int  # of a product's input, as it is kept
    hidden: int
    num_heads: int
    num_kv_heads: int
    activation: float  # bytes of a number
    product_input: float  # bytes of a number of an input of a product, as it is kept
    is_quantized: bool  # that input is another tensor than what was computed
    gathers: bool  # products read more tokens than a rank has alone


def sizes_of(model: Transformer, plan: Plan, software: Software) -> Sizes:
    """What one rank holds of a microbatch.

    Raises:
        WorkloadError: if a number format is unknown.
    """
    tokens = plan.micro_batch * plan.sequence // plan.context
    gathers = plan.sequence_parallel and plan.tensor > 1
    own = tokens // plan.tensor if gathers else tokens
    activation = format_bytes(plan.precision.activations)
    product = format_bytes(plan.precision.products)
    is_quantized = software.keeps_quantized and product < activation
    return Sizes(
        tokens=tokens,
        own_tokens=own,
        input_tokens=own if software.regathers_inputs else tokens,
        hidden=model.hidden,
        num_heads=model.attention.num_heads // plan.tensor,
        num_kv_heads=max(1, model.attention.num_kv_heads // plan.tensor),
        activation=activation,
        product_input=product if is_quantized else activation,
        is_quantized=is_quantized,
        gathers=gathers,
    )
