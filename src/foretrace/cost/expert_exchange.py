"""How long tokens take to the ranks of their experts and back, by libraries made for that.

A token that chose several experts of one rank is sent there once, and to another host once, whose
rank of the same place forwards it (DeepEP's normal kernels; `is_direct`: a copy for every expert,
straight to its rank, as its kernels of low latency do). Processors that are lent to the exchange
copy tokens at a rate each; links carry no more than they can, whatever processors there are; the
network between hosts carries what leaves them. The three go on at once.

Source:
    DeepSeek-AI, DeepEP, README of github.com/deepseek-ai/DeepEP; DeepSeek-AI, "DeepSeek-V3
    Technical Report", arXiv:2412.19437, section 3.2.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from foretrace.base import FORMAT_BY_NAME, Bools, Float64s, Int64s, MachineError, distinct
from foretrace.cost.fitting import Constant, at_once
from foretrace.machine import Chip

CONSTANTS = (
    Constant("launch_ns", "ns", "all kernels' starts, and telling each other", 1e3, 3e5, 2e4),
    Constant("expert_ns", "ns", "each expert of all ranks", 0.01, 1e3, 10),
    Constant("token_ns", "ns", "each token of a rank", 0.01, 1e3, 2),
    Constant("processor_rate", "B/ns", "copies by one processor", 1, 200, 17),
    Constant("own_share", "", "reading own tokens, of sending them", 0.01, 5, 0.5),
    Constant("link_rate", "", "of the links' bandwidth", 0.05, 1, 0.65),
    Constant("expert_rate", "B/ns", "what goes to one expert straight", 0.5, 1e3, 30),
    Constant("network_rate", "", "of the bandwidth between hosts", 0.05, 1, 0.9),
    Constant("crossing_ns", "ns", "a message on its way between hosts, once", 10, 1e5, 1e4),
    Constant("crowding", "", "network lost with each further host beyond four", 0.001, 1, 0.1),
)

_SCALE_BYTES = 4 / 128  # of eight-bit tokens: a scale in 32 bit for 128 numbers
_FEW_HOSTS = 4


@dataclass(frozen=True)
class ExchangeShapes:
    """Tokens of one rank that go to the ranks of their experts, or come back, in one format."""

    tokens: Int64s  # int64[rows], of one rank
    hidden: Int64s  # int64[rows]
    chosen: Int64s  # int64[rows], experts of a token
    experts: Int64s  # int64[rows], of all ranks
    ranks: Int64s  # int64[rows], that divide the experts
    hosts: Int64s  # int64[rows], that these ranks are on, evenly
    processors: Int64s  # int64[rows], lent to the exchange; 0: all there are
    network: Int64s  # int64[rows], bytes per ns of one rank between hosts
    is_direct: Bools  # bool[rows], a copy for each chosen expert, not for each rank
    dtype: str  # of the tokens on their way

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.tokens)

    @classmethod
    def of(cls, sizes: Int64s, dtype: str) -> ExchangeShapes:
        """Shapes from int64[rows, 9]: the columns in order."""
        *columns, processors, network, direct = sizes.T
        tokens, hidden, chosen, experts, ranks, hosts = columns
        places = (experts, ranks, hosts, processors, network)
        return cls(tokens, hidden, chosen, *places, direct == 1, dtype)

    @property
    def token_bytes(self) -> Float64s:
        """One copy of all tokens of a rank; float64[rows]."""
        item = FORMAT_BY_NAME[self.dtype].num_bytes
        item += _SCALE_BYTES if item <= 1 else 0
        return (self.tokens * self.hidden).astype(np.float64) * item

    @property
    def link_bytes(self) -> Float64s:
        """What a rank sends to others of its host, or forwards to them; float64[rows]."""
        inside = self.ranks / self.hosts
        copies = np.where(
            self.is_direct, self.chosen / self.hosts, distinct(self.ranks, self.chosen)
        )
        return self.token_bytes * copies * (1 - 1 / inside)

    @property
    def network_bytes(self) -> Float64s:
        """What a rank sends to other hosts; float64[rows]."""
        copies = np.where(self.is_direct, self.chosen, distinct(self.hosts, self.chosen))
        return self.token_bytes * copies * (1 - 1 / self.hosts)

    @property
    def num_bytes(self) -> Float64s:
        """All that a rank sends; float64[rows]."""
        return self.link_bytes + self.network_bytes

    @property
    def num_flops(self) -> Float64s:
        """None; float64[rows]."""
        return np.zeros(len(self))


def exchange_ns(shapes: ExchangeShapes, chip: Chip, values: Mapping[str, float]) -> Float64s:
    """Duration of each row, float64[rows], in ns.

    Raises:
        MachineError: if the chip's description lacks its links or its number of processors.
    """
    if chip.link_bytes_per_ns is None or chip.num_processors is None:
        raise MachineError(
            f"chip {chip.name!r} gives no link_bandwidth or no num_processors, which the cost of "
            "exchanging tokens needs: add them to its file."
        )
    sent = shapes.link_bytes
    processors = np.where(shapes.processors > 0, shapes.processors, chip.num_processors)
    copied = sent + shapes.network_bytes + values["own_share"] * shapes.token_bytes
    copying_ns = copied / (processors * values["processor_rate"])
    linking_ns = sent / (chip.link_bytes_per_ns * values["link_rate"])
    to_experts_ns = (sent + shapes.network_bytes) / (shapes.experts * values["expert_rate"])
    to_experts_ns = np.where(shapes.is_direct, to_experts_ns, 0)
    crowded = 1 + values["crowding"] * np.maximum(0, shapes.hosts - _FEW_HOSTS)
    rate = shapes.network * values["network_rate"] / crowded
    network_ns = shapes.network_bytes / np.maximum(rate, 1e-9)
    body_ns = at_once(copying_ns, linking_ns, to_experts_ns, network_ns)
    fixed_ns = values["launch_ns"] + values["expert_ns"] * shapes.experts
    fixed_ns = fixed_ns + values["crossing_ns"] * (shapes.hosts > 1)
    return fixed_ns + values["token_ns"] * shapes.tokens + body_ns
