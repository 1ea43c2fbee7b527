"""`ModuleProgram`: the operators that a model's own code runs, both ways, part by part.

One microbatch on one rank: no plan is in it, and no time.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import ClassVar

from foretrace.answer import Answer, Column, Json, Plain, Table, Told, Unit, count_text, plain
from foretrace.operators.counting import work_of
from foretrace.operators.recognition import operator_class
from foretrace.operators.shapes import Tensor
from foretrace.operators.work import OperatorClass

# Of these classes an operator that no rule counts is as long as its inputs and its result.
_TOLD_BY_CLASS = (
    OperatorClass.ELEMENTWISE,
    OperatorClass.NORMALISATION,
    OperatorClass.SOFTMAX,
)


@dataclass(frozen=True)
class Ran:
    """One operator that ran on the device, or an exchange with the ranks of a tensor group."""

    label: str  # module within its part, and operator: "attention.wq mm"
    name: str  # "aten::mm"; of an exchange its collective: "all_reduce"
    signature: str  # as `trace` keeps it; empty: an exchange
    is_again: bool = False  # forward work that the model's code repeats in the backward pass
    is_weight_gradient: bool = False  # serves nothing but gradients of parameters
    num_bytes: int = 0  # of an exchange
    dtype: str = ""  # of an exchange

    @property
    def is_exchange(self) -> bool:
        """Whether ranks exchange something."""
        return not self.signature


@dataclass(frozen=True)
class ProgramPart(Plain):
    """What one part of the model runs: a layer, what comes before all layers, or behind them."""

    json_only: ClassVar = (
        *("path", "forward_operators", "backward_operators", "num_parameters", "kept_bytes"),
        "input_bytes",
    )
    json_names: ClassVar = {"num_parameters": "parameters"}

    path: str  # of its module: "layers.3"; empty: of no single one
    forward: tuple[Ran, ...]
    backward: tuple[Ran, ...]
    parameters: tuple[Tensor, ...] = ()  # that it is the first to use
    num_frozen: int = 0  # numbers in them that are not trained
    kept_bytes: int = 0  # that autograd keeps from the forward pass to the backward pass
    forward_bytes: int = 0  # beside what is kept, at the worst moment
    backward_bytes: int = 0  # of the backward pass, gradients of parameters left out
    input_bytes: int = 0  # of tensors with gradients that parts before made
    input_dtype: str = ""

    @property
    def forward_operators(self) -> int:
        """How many operators the forward pass runs."""
        return len(self.forward)

    @property
    def backward_operators(self) -> int:
        """How many operators the backward pass runs."""
        return len(self.backward)

    @property
    def num_parameters(self) -> int:
        """Numbers in its parameters."""
        return sum(one.num_elements for one in self.parameters)

    def is_like(self, other: ProgramPart) -> bool:
        """Whether both do the same work."""
        return replace(self, path="") == replace(other, path="")


@dataclass(frozen=True, repr=False)
class ModuleProgram(Answer):
    """A model's own code as data: what it runs for one microbatch on one rank."""

    name: str
    way: str  # by which it was found: "export", "dispatch", "fx", "run"
    batch: int  # samples of the microbatch
    sequence: int | None  # tokens of a sample; `None`: it has none
    layers: tuple[ProgramPart, ...]
    before: ProgramPart | None = None
    behind: ProgramPart | None = None
    tied_parameters: int = 0  # numbers of parameters that first and last part share
    tensor: int = 1  # ranks that its products are divided over
    notes: tuple[str, ...] = ()

    kind = "module"  # as other models say what they are

    @property
    def all_parts(self) -> tuple[ProgramPart, ...]:
        """All parts, first to last."""
        ends = (self.before, *self.layers, self.behind)
        return tuple(part for part in ends if part is not None)

    @property
    def num_layers(self) -> int:
        """Parts that a pipeline can be cut between."""
        return len(self.layers)

    @property
    def num_parameters(self) -> int:
        """Of one rank; shared ones once."""
        return sum(part.num_parameters for part in self.all_parts)

    @property
    def computes_again(self) -> bool:
        """Whether the model's own code repeats forward work in the backward pass."""
        return any(one.is_again for part in self.all_parts for one in part.backward)

    @property
    def parameter_dtype(self) -> str:
        """Number format of most parameters; empty: there are none."""
        counts: Counter[str] = Counter()
        for part in self.all_parts:
            for one in part.parameters:
                counts[one.dtype] += one.num_elements
        return max(counts, key=lambda dtype: counts[dtype], default="")

    @property
    def product_dtype(self) -> str:
        """Number format of most of the forward pass' products by FLOPs; empty: there are none."""
        counts: Counter[str] = Counter()
        for part in self.all_parts:
            for one in part.forward:
                work = None if one.is_exchange else work_of(one.name, one.signature)
                if work is not None and work.is_product:
                    counts[work.dtype] += work.flops
        return max(counts, key=lambda dtype: counts[dtype], default="")

    def product_flops(self, *, is_backward: bool) -> int:
        """FLOPs of matrix products and convolutions of one pass; a causal mask's upper half out."""
        total = 0
        for part in self.all_parts:
            for one in part.backward if is_backward else part.forward:
                work = None if one.is_exchange or one.is_again else work_of(one.name, one.signature)
                total += work.flops if work is not None and work.is_product else 0
        return total

    @property
    def headline(self) -> str:
        """What was captured, and how large it is."""
        return (
            f"{self.name} by {self.way}: {count_text(self.num_layers, 'layer')}, "
            f"{count_text(self.num_parameters, 'parameter')}, batch {self.batch}"
        )

    @property
    def note(self) -> str:
        """What is to know of the capture."""
        return "; ".join(self.notes)

    def parts(self) -> tuple[Told, ...]:
        """A row a part: path of its module, operators and parameters, sizes in bytes."""
        return (
            Table.of(
                "parts",
                self.all_parts,
                Column("path"),
                Column("forward_operators", unit=Unit.COUNT),
                Column("backward_operators", unit=Unit.COUNT),
                Column("parameters", unit=Unit.COUNT, value="num_parameters"),
                Column("kept_bytes"),
                Column("input_bytes"),
            ),
        )

    def as_json(self) -> Json:
        """Sizes of every part, in bytes, and FLOPs; operators are counted."""
        return {
            **{key: getattr(self, key) for key in ("name", "way", "batch", "sequence", "tensor")},
            "parameters": self.num_parameters,
            "forward_flops": self.product_flops(is_backward=False),
            "backward_flops": self.product_flops(is_backward=True),
            "parts": plain(self.all_parts),
            "notes": list(self.notes),
        }


def is_told(name: str, signature: str) -> bool:
    """Whether name and shapes of an operator say what it does."""
    if work_of(name, signature) is not None:
        return True
    return operator_class(name) in _TOLD_BY_CLASS
