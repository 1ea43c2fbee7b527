"""`ServedFormats`: the number formats in which a chip runs the layers of a model that serves.

Weights that a checkpoint keeps in fewer bits are multiplied as they are where the chip multiplies
such numbers; else, and where only weights are kept so, they are unpacked inside of the product.

Source:
    vllm-project/vllm 0.19, vllm/model_executor/layers/quantization: Marlin's kernels unpack fp8
    before Ada and nvfp4 before Blackwell, and all that is kept in integers of weights alone;
    vllm/config/cache.py for names of what is kept of tokens, which "auto" leaves to the checkpoint.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from foretrace.answer import percent_text
from foretrace.base import FORMAT_BY_NAME, WorkloadError
from foretrace.cost import format_of_both, operand_formats
from foretrace.machine import Chip
from foretrace.serve.engine import Engine
from foretrace.workload import (
    KNOWN_METHODS,
    Quantisation,
    Transformer,
    quantisation_named,
    quantisation_of,
)

SIXTEEN = "bf16"
_WHOLE = FORMAT_BY_NAME[SIXTEEN].num_bytes
_CACHES = {
    "auto": SIXTEEN,
    "bfloat16": SIXTEEN,
    "float16": "fp16",
    "fp8_e4m3": "fp8",
    "fp8_e5m2": "fp8",
    "fp8_inc": "fp8",
}
_GROUPED, _SERVED, _MARLIN = "grouped", "served", "marlin"
_LIBRARY, _BLOCKWISE = "library", "blockwise"


@dataclass(frozen=True)
class ServedFormats:
    """Formats of products and of what is kept of tokens."""

    products: str = SIXTEEN  # of layers that are quantised: operands and weights together
    by_block: bool = False  # scales are of blocks
    cache: str = SIXTEEN
    how: Quantisation | None = None  # which layers those are; None: none

    def share(self, part: str) -> float:
        """Share of the layers with a part whose weights are quantised."""
        return 0.0 if self.how is None else self.how.share(part)

    @property
    def has_cache_of_16_bit(self) -> bool:
        """Whether what is kept of tokens is as wide as what attends to it."""
        return FORMAT_BY_NAME[self.cache].num_bytes >= _WHOLE

    @property
    def unpacks(self) -> bool:
        """Whether products take weights that are kept in fewer bits than what they multiply."""
        operands, kept = operand_formats(self.products)
        return operands != kept

    @property
    def quantises(self) -> bool:
        """Whether operands, too, are in fewer bits than what norms and attention make."""
        return FORMAT_BY_NAME[operand_formats(self.products)[0]].num_bytes < _WHOLE

    @property
    def words(self) -> tuple[str, ...]:
        """Formats of weights and of what they are multiplied with; nothing where none differ."""
        if self.how is None:
            return ()
        operands, _ = operand_formats(self.products)
        beside = "unpacked for products" if operands == SIXTEEN else f"products in {operands}"
        whole = [
            f"{part} ({percent_text(100 * share)} of layers)" if share < 1 else part
            for part, share in self.how.whole
        ]
        but = [f"{', '.join(whole)} in 16 bit"] if whole else []
        return (self.how.weights, beside, *but)

    def kind(self, family: str) -> str:
        """The kind of kernels that products of quantised layers run in.

        Args:
            family: of the model of kernels, "gemm" or "experts".
        """
        plain = _LIBRARY
        if family == "experts":
            # Triton's experts take 16 bits, Marlin's integers; CUTLASS's and DeepGEMM's the rest.
            unpacked = dict.fromkeys(("int4_wo", "int8_wo"), _MARLIN)
            plain = {SIXTEEN: _SERVED, **unpacked}.get(self.products, _GROUPED)
            return f"{_GROUPED} {_BLOCKWISE}" if self.by_block else plain
        # What has fewer than 8 bits is scaled by blocks whatever a checkpoint says.
        operands = FORMAT_BY_NAME[operand_formats(self.products)[0]]
        return _BLOCKWISE if self.by_block or operands.num_bytes < 1 else plain


def as_kept(model: Transformer, engine: Engine) -> Transformer:
    """The model with its weights as the engine is told to keep them.

    Raises:
        WorkloadError: if it cannot be told how, or nothing here costs that.
    """
    if engine.quantization_config is not None:
        where = "quantization_config of the engine's settings"
        found = quantisation_of(engine.quantization_config, model, where)
        model = replace(model, quantisation=found)
    elif engine.quantization and model.quantisation is None:
        found = quantisation_named(engine.quantization, "the engine's settings")
        model = replace(model, quantisation=found)
    if model.quantisation is not None and not model.quantisation.weights:
        raise WorkloadError(
            f"weights of {model.name} are kept by {model.quantisation.method!r}, which is not "
            f"costed: expected one of {', '.join(KNOWN_METHODS)}"
        )
    return model


def cache_format(model: Transformer, engine: Engine) -> str:
    """The number format of what is kept of tokens.

    Raises:
        WorkloadError: if it is unknown.
    """
    stated, how = engine.kv_cache_dtype, model.quantisation
    if stated == "auto" and how is not None and how.cache:
        return how.cache
    name = _CACHES.get(stated, stated)
    if name not in FORMAT_BY_NAME:
        raise WorkloadError(
            f"kv_cache_dtype of the engine's settings is {stated!r}, where one of "
            f"{', '.join(_CACHES)}, fp8, nvfp4 is expected"
        )
    return name


def served_formats(model: Transformer, engine: Engine, chip: Chip | None) -> ServedFormats:
    """The formats of a model's layers on a chip.

    Raises:
        WorkloadError: if that of what is kept of tokens is unknown.
    """
    cache, how = cache_format(model, engine), model.quantisation
    if how is None:
        return ServedFormats(cache=cache)
    operands = how.operands
    is_float = FORMAT_BY_NAME[operands].is_narrow
    if chip is not None and is_float and chip.peak_flops_per_ns(operands) is None:
        operands = SIXTEEN
    return ServedFormats(
        products=format_of_both(operands, how.weights),
        by_block=how.by_block and operands != SIXTEEN,
        cache=cache,
        how=how,
    )
