"""What a kernel, or an operator on the host, is: its class and family, by texts in its name.

The kernel's name decides; the operator that launched it decides where the name is general
(a matrix product inside a convolution) or says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from foretrace.operators.framework import base_of, framework_class, is_operator, plain_name
from foretrace.operators.work import OperatorClass

HOST_COPY = "memory copy to or from host"  # the family that the link to the host bounds

UNRECOGNISED = "unrecognised"
# Where the operator says more than a general kernel's name: class of the kernel -> of operators.
_NARROWED = {
    OperatorClass.GEMM: (OperatorClass.CONVOLUTION,),
    OperatorClass.INDEXING: (OperatorClass.EMBEDDING, OperatorClass.LOSS),
    OperatorClass.REDUCTION: (OperatorClass.LOSS,),
    OperatorClass.OTHER: tuple(OperatorClass),
}

# What a user said that a kernel is goes with its name; the reader of collectives knows it too.
_STATED = re.compile(rf" \[as ({'|'.join(OperatorClass)})\]$")


@dataclass(frozen=True)
class Rule:
    """Kernels whose name holds one of these texts belong to this family.

    Names are compared in lower case; `*` in a text stands for anything.
    """

    family: str
    kind: OperatorClass
    texts: tuple[str, ...]

    def holds(self, lowered: str) -> bool:
        """Whether one of the texts is in a lower-case name."""
        return any(_has(lowered, text) for text in self.texts)


def _has(lowered: str, text: str) -> bool:
    """Whether the parts of `text` between `*` stand in the name, one after the other."""
    at = 0
    for part in text.split("*"):
        found = lowered.find(part, at)
        if found < 0:
            return False
        at = found + len(part)
    return True


def _rules(text: str) -> Iterator[Rule]:
    for line in text.splitlines():
        if line and not line.startswith("#"):
            kind, family, texts = line.split(" | ")
            yield Rule(family, OperatorClass(kind), tuple(texts.split("; ")))


RULES = tuple(_rules(Path(__file__).with_name("kernels.txt").read_text(encoding="utf-8")))


# Kernels that PyTorch's compiler wrote in Triton: what they fuse stands in their names.
# `triton_<kind>_fused_<operators, sorted>_<number>`, the kinds being `poi` (pointwise), `red` and
# `per` (reductions, looped and persistent), `tem` (templates), `for` (foreach) and `mix` (combo).
# Source: pytorch torch/_inductor/codegen/triton.py and `get_fused_kernel_name` in
# torch/_inductor/utils.py; older ones: `triton__0d1d2de` (seen) and `triton_mm`.
_TRITON_NAME = re.compile(
    r"^(?:.*\s)?triton_(poi|red|per|tem|for|mix|unk)_(?:fused_)?(.*?)_?\d*(?:\.kd)?$"
)
_TRITON_FAMILIES = {
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


def _triton(name: str) -> tuple[OperatorClass, str] | None:
    """Class and family of a compiler-made kernel; none: it is not one."""
    matched = _TRITON_NAME.match(name)
    if matched is None:
        is_old = name.startswith("triton__")
        return (OperatorClass.ELEMENTWISE, "Triton fused, unnamed") if is_old else None
    kind, fused = matched.groups()
    family = _TRITON_FAMILIES[kind]
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


# A pure function of a name that goes through hundreds of patterns, 0.2 ms; a job has a few hundred
# names, and every question about it asks for each of them again.
@lru_cache(maxsize=4096)
def rule_of(name: str) -> Rule | None:
    """The first rule that holds for a kernel's name, or none."""
    lowered = name.lower()
    return next((rule for rule in RULES if rule.holds(lowered)), None)


@dataclass(frozen=True)
class Recognised:
    """Class and family of one kernel or operator."""

    kind: OperatorClass
    family: str  # UNRECOGNISED where neither name says anything

    @property
    def is_recognised(self) -> bool:
        """Whether the name, or the operator's, was known."""
        return self.family != UNRECOGNISED


def with_class(name: str, kind: OperatorClass) -> str:
    """A kernel's name with what it was stated to be."""
    return f"{name} [as {kind}]"


# Pure, and asked for the same few texts of a job by every question about it.
@lru_cache(maxsize=65_536)
def recognised(name: str, operator: str = "") -> Recognised:
    """Class and family of a kernel called `name` that `operator` launched, or of an operator.

    Args:
        name: of the kernel, or of an operator that runs on the host itself.
        operator: framework operator that launched the kernel; empty if it is not known.
    """
    stated = _STATED.search(name)
    if stated is not None:
        return Recognised(OperatorClass(stated[1]), f"{stated[1]}, as stated")
    if is_operator(name):
        kind = framework_class(name)
        if kind is not None:
            return Recognised(kind, plain_name(name))
    by_triton = _triton(name)
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
