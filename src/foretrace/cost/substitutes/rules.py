"""The list of substitution rules, and `Substituted`: a cost model under some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache

import numpy as np

from foretrace.base import Float64s, MachineError
from foretrace.cost.kernels import FittedKernels
from foretrace.cost.model import CollectiveRequests, CostModel, Costs, KernelRequests
from foretrace.cost.signatures import Operation, operation_of
from foretrace.cost.substitutes.fast_products import FastProduct
from foretrace.cost.substitutes.narrow_products import NarrowProduct
from foretrace.cost.substitutes.rule import Offer, SubstitutionRule
from foretrace.machine import Chip


@cache
def substitution_rules() -> tuple[SubstitutionRule, ...]:
    """Every rule; names of options and rows of tables follow."""
    fast = [FastProduct(name, levels) for name in ("strassen", "winograd") for levels in (1, 2)]
    narrow = [NarrowProduct(dtype) for dtype in ("int8", "fp8", "mxfp8")]
    return (*fast, *narrow, NarrowProduct("int8", is_fused=False))


def rule_named(name: str) -> SubstitutionRule:
    """A rule by its name.

    Raises:
        MachineError: if there is none.
    """
    known = {rule.name: rule for rule in substitution_rules()}
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
        raise MachineError(f"no rule of substitution is called {name!r}: {hint}")
    return known[name]


def offers_of(
    rules: Sequence[SubstitutionRule], operations: Sequence[Operation], chip: Chip
) -> tuple[Offer | None, ...]:
    """What takes each operation's place; `None` where no rule is for it, or it does not pay.

    Raises:
        MachineError: if two rules are about one operation.
    """
    found: list[Offer | None] = [None] * len(operations)
    is_taken = np.zeros(len(operations), np.bool_)
    kernels = FittedKernels(chip)
    for rule in rules:
        offers = rule.offers(operations, kernels)
        mine = np.array([one is not None for one in offers], np.bool_)
        if (mine & is_taken).any():
            twice = operations[int(np.flatnonzero(mine & is_taken)[0])]
            raise MachineError(
                f"two rules are about the {twice.model} {twice.dtype} of {twice.sizes}, the second "
                f"is {rule.name}: state one rule for it"
            )
        is_taken |= mine
        found = [
            new if new is not None and new.pays else old
            for old, new in zip(found, offers, strict=True)
        ]
    return tuple(found)


def factors_of(offers: Sequence[Offer | None]) -> Float64s:
    """What each operation's time is multiplied with, float64[operations]."""
    return np.array([1.0 if one is None else one.factor for one in offers], np.float64)


@dataclass(frozen=True)
class Substituted:
    """Another model's answers, with other kernels where a rule pays; all others as they are."""

    model: CostModel
    rules: tuple[SubstitutionRule, ...]
    chip: Chip

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """As the model's own, times what each rule makes of it.

        Raises:
            MachineError: if two rules are about one operation.
        """
        costs = self.model.kernel_costs(requests)
        if not self.rules:
            return costs
        columns = np.stack([requests.operator, requests.signature, requests.kernel])
        distinct, rows = np.unique(columns, axis=1, return_inverse=True)
        texts = [
            (*known, "") for known in (requests.operators, requests.signatures, requests.kernels)
        ]
        operations = [
            operation_of(texts[0][one], texts[1][two], texts[2][three])
            for one, two, three in distinct.T.tolist()
        ]
        factor = factors_of(offers_of(self.rules, operations, self.chip))[rows.reshape(-1)]
        return replace(
            costs,
            duration_ns=np.rint(costs.duration_ns * factor).astype(np.int64),
            low_ns=np.rint(costs.low_ns * factor).astype(np.int64),
            high_ns=np.rint(costs.high_ns * factor).astype(np.int64),
        )

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """As the model's own."""
        return self.model.collective_costs(requests)
