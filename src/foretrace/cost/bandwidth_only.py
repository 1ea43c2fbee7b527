"""`BandwidthOnly`: MAD-Max's rules, where everything takes its bytes or FLOPs over a fixed rate.

No launch, no latency, no shapes: the rule set of Hsia et al., "MAD-Max Beyond Single-Node:
Enabling Large Machine Learning Model Acceleration on Distributed Systems", ISCA 2024
(arXiv:2310.02784). It shows that a cost model is one value with two methods, and it is the
simplest model that a fitted one has to beat.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from foretrace.base import CollectiveKind, Float64s, Int32s, MachineError
from foretrace.cost.model import NO_TEXT, CollectiveRequests, Costs, KernelRequests, Source
from foretrace.cost.network import GroupSpan, collective_named, span_of
from foretrace.cost.signatures import GEMM, MOVEMENT, Operation, operation_of
from foretrace.machine import Machine

# They move half of what an all-reduce moves.
_HALF_OF_ALL_REDUCE = (CollectiveKind.ALL_GATHER, CollectiveKind.REDUCE_SCATTER)
_DIRECT = (CollectiveKind.ALL_TO_ALL, CollectiveKind.SEND_RECV)


@dataclass(frozen=True)
class BandwidthOnly:
    """Fixed shares of the data sheet's rates; defaults are those of MAD-Max's A100 system."""

    machine: Machine
    arithmetic_rate: float = 0.705  # of the chip's peak
    memory_rate: float = 0.836  # of its memory bandwidth
    link_rate: float = 0.6667  # of its links, inside a scale-up domain
    network_rate: float = 0.28  # of its network card: 0.56, and a card's rate counts both ways
    share_inside: float = 0.2746  # of an all-reduce across hosts, at the links' rate

    def kernel_costs(self, requests: KernelRequests) -> Costs:
        """Products by their FLOPs, movements by their bytes; others are not known.

        Raises:
            MachineError: if the chip has no peak for a number format.
        """
        texts = np.stack([requests.operator, requests.signature, requests.kernel], axis=1)
        distinct, inverse = np.unique(texts, axis=0, return_inverse=True)
        known = (requests.operators, requests.signatures, requests.kernels)
        operations = [
            operation_of(
                *("" if at == NO_TEXT else of[at] for at, of in zip(row, known, strict=True))
            )
            for row in distinct.tolist()
        ]
        duration_ns = np.array([self._operation_ns(one) for one in operations])
        names = tuple(dict.fromkeys(one.model for one in operations))
        family = np.array([names.index(one.model) for one in operations], np.int32)
        rows = inverse.reshape(-1)
        return _exact(duration_ns[rows], family=family[rows], families=names)

    def collective_costs(self, requests: CollectiveRequests) -> Costs:
        """Message over rate: of direct transfers at the slowest link, of others at a mix.

        Raises:
            MachineError: for a collective that is not known.
            ValueError: for a place outside the machine.
        """
        rates = np.array(
            [
                [
                    self._bytes_per_ns(name, span_of(group, self.machine))
                    for group in requests.groups
                ]
                for name in requests.collectives
            ]
        )
        duration_ns = requests.num_bytes / rates[requests.collective, requests.group]
        return _exact(duration_ns, family=requests.collective, families=requests.collectives)

    def _operation_ns(self, one: Operation) -> float:
        chip = self.machine.chip
        if one.model == MOVEMENT:
            return one.sizes[0] / (chip.memory_bytes_per_ns * self.memory_rate)
        if one.model != GEMM:
            return 0.0
        peak = chip.peak_flops_per_ns(one.dtype)
        if peak is None:
            raise MachineError(
                f"chip {chip.name!r} has no peak for {one.dtype!r}: add it to its file."
            )
        batch, m, n, k = one.sizes
        return 2 * batch * m * n * k / (peak * self.arithmetic_rate)

    def _bytes_per_ns(self, name: str, span: GroupSpan) -> float:
        collective = collective_named(name)
        if collective is None:
            raise MachineError(f"the collective {name!r} has no rate: name one that NCCL has.")
        if span.num_ranks == 1:
            return np.inf
        inside = self.machine.tiers[0].shared_bytes_per_ns * self.link_rate
        outside = min(
            (level.bytes_per_ns * self.network_rate for level in span.levels), default=inside
        )
        if collective in _DIRECT:
            return outside
        mixed = self.share_inside * inside + (1 - self.share_inside) * outside
        return 2 * mixed if collective in _HALF_OF_ALL_REDUCE else mixed


def _exact(duration_ns: Float64s, *, family: Int32s, families: tuple[str, ...]) -> Costs:
    """An answer that claims no uncertainty, since its rules have none."""
    rounded = np.rint(duration_ns).astype(np.int64)
    is_known = duration_ns > 0
    source = np.where(is_known, Source.ROOFLINE, Source.UNKNOWN).astype(np.uint8)
    return Costs(rounded, rounded, rounded, source, family.astype(np.int32), families)
