"""`operand_formats`: what products multiply, and how the weights among it are kept.

Weights that are kept in fewer bits than what they are multiplied with are unpacked inside of the
product, so that they cost less to load and as much to multiply.
"""

from __future__ import annotations

from foretrace.base import FORMAT_BY_NAME

# Number formats of (operands of products, weights as they are kept), by what both are called
# together: in public tables, and alike where there are none.
_FORMATS = {
    "int4_wo": ("bf16", "fp4"),
    "int8_wo": ("bf16", "int8"),
    "fp8_wo": ("bf16", "fp8"),
    "nvfp4_wo": ("bf16", "nvfp4"),
    "w4a16_mxfp4": ("bf16", "mxfp4"),
    "w4a8_mxfp4_mxfp8": ("mxfp8", "mxfp4"),
}


def operand_formats(dtype: str) -> tuple[str, str]:
    """Number formats of the products' operands and of the weights as they are kept."""
    return _FORMATS.get(dtype, (dtype, dtype))


def format_of_both(operands: str, kept: str) -> str:
    """The name of a pair of formats; that of the operands where nobody has named the pair."""
    if operands == kept:
        return operands
    named = {both: name for name, both in _FORMATS.items()}
    return named.get((operands, "fp4" if kept == "int4" else kept), operands)


def kept_bytes(dtype: str) -> float:
    """Bytes of a weight as it is kept, with its share of scales that the format itself has."""
    kept = FORMAT_BY_NAME[operand_formats(dtype)[1]]
    return kept.num_bytes + kept.scale_bytes
