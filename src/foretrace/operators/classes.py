"""What class of work a kernel, or an operator on the host, does, by its name."""

from __future__ import annotations

import re
from enum import StrEnum


class OperatorClass(StrEnum):
    """Classes that a performance engineer thinks in."""

    GEMM = "gemm"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    NORMALISATION = "normalisation"
    SOFTMAX = "softmax"
    ELEMENTWISE = "elementwise"
    REDUCTION = "reduction"
    EMBEDDING = "embedding"
    OPTIMIZER = "optimizer"
    COPY = "copy"
    OTHER = "other"


_PATTERNS = (
    (OperatorClass.GEMM, re.compile("gemm|addmm|bmm|::mm|linear", re.IGNORECASE)),
    (OperatorClass.COPY, re.compile("memcpy|memset|copy", re.IGNORECASE)),
    (OperatorClass.ELEMENTWISE, re.compile("elementwise", re.IGNORECASE)),
)


def operator_class(name: str, operator: str = "") -> OperatorClass:
    """The class of a kernel called `name` that `operator` launched, or of an operator alone."""
    for text in (name, operator):
        for found, pattern in _PATTERNS:
            if pattern.search(text):
                return found
    return OperatorClass.OTHER
