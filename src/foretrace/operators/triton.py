"""Kernels that PyTorch's compiler wrote in Triton: what they fuse stands in their names.

`triton_<kind>_fused_<operators, sorted>_<number>`, the kinds being `poi` (pointwise), `red` and
`per` (reductions, looped and persistent), `tem` (templates), `for` (foreach) and `mix` (combo).
Source: pytorch torch/_inductor/codegen/triton.py and `get_fused_kernel_name` in
torch/_inductor/utils.py; older ones: `triton__0d1d2de` (seen) and `triton_mm`.
"""

from __future__ import annotations

import re

from foretrace.operators.classes import OperatorClass

_NAME = re.compile(
    r"^(?:.*\s)?triton_(poi|red|per|tem|for|mix|unk)_(?:fused_)?(.*?)_?\d*(?:\.kd)?$"
)
_FAMILIES = {
    "poi": "Triton fused pointwise",
    "red": "Triton fused reduction",
    "per": "Triton fused reduction",
    "tem": "Triton template",
    "for": "Triton foreach",
    "mix": "Triton combo",
    "unk": "Triton fused pointwise",
}
_REDUCING = (
    (OperatorClass.LOSS, re.compile(r"nll_loss|cross_entropy|_loss")),
    (
        OperatorClass.NORMALISATION,
        re.compile(r"(layer|batch|group|rms)_norm|mean.*rsqrt|pow.*rsqrt"),
    ),
    (OperatorClass.SOFTMAX, re.compile(r"softmax|amax.*exp|exp.*amax")),
    (OperatorClass.EMBEDDING, re.compile(r"embedding")),
)
_TEMPLATES = (
    (OperatorClass.ATTENTION, re.compile(r"attention|flex")),
    (OperatorClass.CONVOLUTION, re.compile(r"conv")),
)
# Names of operators that only move bytes; what remains of a name without them does arithmetic.
_MOVING = re.compile(
    r"_unsafe_view|_to_copy|clone|cat|copy_?|transpose|permute|view|expand|slice|select|squeeze|"
    r"unsqueeze|stack|constant_pad_nd|t|_"
)


def triton_recognised(name: str) -> tuple[OperatorClass, str] | None:
    """Class and family of a compiler-made kernel; none: it is not one."""
    matched = _NAME.match(name)
    if matched is None:
        is_old = name.startswith("triton__")
        return (OperatorClass.ELEMENTWISE, "Triton fused, unnamed") if is_old else None
    kind, fused = matched.groups()
    family = _FAMILIES[kind]
    if kind == "tem":
        found = _first(_TEMPLATES, fused)
        return found or OperatorClass.GEMM, f"Triton {found or OperatorClass.GEMM} template"
    if kind == "for":
        return OperatorClass.OPTIMIZER, family
    if kind in {"red", "per"}:
        return _first(_REDUCING, fused) or OperatorClass.REDUCTION, family
    if "embedding" in fused:
        return OperatorClass.EMBEDDING, family
    is_move = fused != "" and _MOVING.sub("", fused) == ""
    return OperatorClass.COPY if is_move else OperatorClass.ELEMENTWISE, family


def _first(
    patterns: tuple[tuple[OperatorClass, re.Pattern[str]], ...], fused: str
) -> OperatorClass | None:
    return next((kind for kind, pattern in patterns if pattern.search(fused)), None)
