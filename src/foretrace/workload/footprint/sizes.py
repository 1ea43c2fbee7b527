"""`KeptSizes`: how much of a model one rank holds and sees under a plan."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.base import known_format
from foretrace.workload.blocks.setting import Setting
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
class KeptSizes:
    """What one rank holds of a microbatch, and the bytes of its numbers."""

    rank: Setting
    input_tokens: int  # of a product's input, as it is kept
    activation: float  # bytes of a number
    product_input: float  # bytes of a number of an input of a product, as it is kept
    is_quantized: bool  # that input is another tensor than what was computed

    @property
    def model(self) -> Transformer:
        """The model."""
        return self.rank.model

    @property
    def plan(self) -> Plan:
        """The plan."""
        return self.rank.plan

    @property
    def tokens(self) -> int:
        """Tokens as products see them."""
        return self.rank.tokens

    @property
    def own_tokens(self) -> int:
        """Of those, that the rank alone has."""
        return self.rank.own_tokens

    @property
    def hidden(self) -> int:
        """Numbers of one token between layers."""
        return self.rank.model.hidden

    @property
    def gathers(self) -> bool:
        """Whether products read more tokens than the rank has alone."""
        return self.rank.is_sequence_parallel


def sizes_of(model: Transformer, plan: Plan, software: Software) -> KeptSizes:
    """What one rank holds of a microbatch.

    Raises:
        WorkloadError: if a number format is unknown.
    """
    rank = Setting(model, plan)
    activation = format_bytes(plan.precision.activations)
    product = format_bytes(plan.precision.products)
    precision = plan.precision
    is_needed_whole = precision.scales_rows or precision.wide_weight_gradients
    is_quantized = software.keeps_quantized and product < activation and not is_needed_whole
    return KeptSizes(
        rank,
        input_tokens=rank.own_tokens if software.regathers_inputs else rank.tokens,
        activation=activation,
        product_input=product if is_quantized else activation,
        is_quantized=is_quantized,
    )
