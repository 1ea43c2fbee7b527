"""What a kernel, or an operator on the host, is: its class, and the family it comes from.

The kernel's name decides; the operator that launched it decides where the name is general
(a matrix product inside a convolution) or says nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.operators.classes import OperatorClass
from foretrace.operators.framework import base_of, framework_class, is_operator, plain_name
from foretrace.operators.kernels import rule_of
from foretrace.operators.triton import triton_recognised

UNRECOGNISED = "unrecognised"
# Where the operator says more than a general kernel's name: class of the kernel -> of operators.
_NARROWED = {
    OperatorClass.GEMM: (OperatorClass.CONVOLUTION,),
    OperatorClass.INDEXING: (OperatorClass.EMBEDDING, OperatorClass.LOSS),
    OperatorClass.REDUCTION: (OperatorClass.LOSS,),
    OperatorClass.OTHER: tuple(OperatorClass),
}


@dataclass(frozen=True)
class Recognised:
    """Class and family of one kernel or operator."""

    kind: OperatorClass
    family: str  # UNRECOGNISED where neither name says anything

    @property
    def is_recognised(self) -> bool:
        """Whether the name, or the operator's, was known."""
        return self.family != UNRECOGNISED


def recognised(name: str, operator: str = "") -> Recognised:
    """Class and family of a kernel called `name` that `operator` launched, or of an operator.

    Args:
        name: of the kernel, or of an operator that runs on the host itself.
        operator: framework operator that launched the kernel; empty if it is not known.
    """
    if is_operator(name):
        kind = framework_class(name)
        if kind is not None:
            return Recognised(kind, plain_name(name))
    by_triton = triton_recognised(name)
    if by_triton is not None:
        return Recognised(*by_triton)
    launched_by = framework_class(operator) if operator else None
    rule = rule_of(name)
    if rule is not None:
        is_narrowed = launched_by in _NARROWED.get(rule.kind, ())
        return Recognised(launched_by if is_narrowed and launched_by else rule.kind, rule.family)
    if launched_by not in {None, OperatorClass.OTHER}:
        return Recognised(launched_by or OperatorClass.OTHER, f"kernel of {base_of(operator)}")
    return Recognised(OperatorClass.OTHER, UNRECOGNISED)


def operator_class(name: str, operator: str = "") -> OperatorClass:
    """The class of a kernel called `name` that `operator` launched, or of an operator alone."""
    return recognised(name, operator).kind


def kernel_family(name: str, operator: str = "") -> str:
    """The library or generator a kernel comes from; of an operator on the host, its plain name."""
    return recognised(name, operator).family
