"""`Chunked`: sequences as kernels of states take them, chunk of tokens by chunk."""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.workload.blocks.setting import Setting
from foretrace.workload.models.transformer import StateSpace


@dataclass(frozen=True)
class Chunked:
    """Whole sequences of some heads with states."""

    setting: Setting
    states: StateSpace  # the rank's share

    @property
    def dtype(self) -> str:
        """Of what products take."""
        return self.setting.made

    @property
    def tokens(self) -> int:
        """Of the microbatch, over all ranks of CONTEXT."""
        return self.setting.plan.micro_batch * self.setting.plan.sequence

    @property
    def length(self) -> int:
        """Tokens of a chunk."""
        return min(self.states.chunk, self.setting.plan.sequence)

    @property
    def num_chunks(self) -> int:
        """Of all sequences."""
        return self.setting.plan.micro_batch * -(-self.setting.plan.sequence // self.length)
