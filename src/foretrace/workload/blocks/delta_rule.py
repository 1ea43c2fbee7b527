"""The delta rule of one layer: products of each head in each chunk of tokens, and between chunks.

What a token writes is what its key's value lacks in the state. Within a chunk that is a triangle of
products of keys whose inverse is multiplied with keys and values (the UT transform); from chunk to
chunk states go one after the other, which is one long product for each head here. Kernels work on
whole squares of a chunk, masked halves too. The backward pass makes triangles, inverses' products,
states and scores again.

Source:
    Yang et al., "Parallelizing Linear Transformers with the Delta Rule", arXiv:2406.06484, section
    3; "Gated Delta Networks", arXiv:2412.06464, section 3.3; Kimi Team, "Kimi Linear",
    arXiv:2510.26692, section 3; fla-org/flash-linear-attention, fla/ops/gated_delta_rule/chunk.py,
    `chunk_gated_delta_rule_fwd` and `_bwd`, fla/ops/common/chunk_delta_h.py and chunk_o.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from foretrace.workload.blocks.block import Operator
from foretrace.workload.blocks.calls import fused, state_product
from foretrace.workload.blocks.chunked import Chunked
from foretrace.workload.blocks.steps import Items, operator
from foretrace.workload.models.transformer import StateRule

_WIDE = "fp32"


@dataclass(frozen=True)
class DeltaScan(Chunked):
    """The kernels of the delta rule."""

    def within(self, label: str, columns: int, inner: int) -> Operator:
        """A product with as many rows as a chunk has tokens, for each head in each chunk."""
        count = self.num_chunks * self.states.num_heads
        return operator(label, state_product(count, (self.length, columns, inner), self.dtype))

    def along(self, label: str) -> Operator:
        """What all tokens write to a head's state, or give to its gradient, chunk after chunk."""
        plan, states = self.setting.plan, self.states
        sizes = (states.state_size, states.head_size, self.num_chunks * self.length)
        each = (*sizes[:2], sizes[2] // plan.micro_batch)
        count = plan.micro_batch * states.num_heads
        return operator(label, state_product(count, each, self.dtype))

    def moved(self, label: str, width: int, dtype: str, *, reads: int = 1) -> Operator:
        """Numbers of all tokens that a kernel of its own reads and writes."""
        return operator(label, fused((self.tokens, width), dtype, reads=reads))

    def keys(self) -> Items:
        """Queries and keys of length 1; by number of a key also times what decayed till then."""
        states = self.states
        width = 2 * states.num_groups * states.state_size
        found = [self.moved("queries and keys of length 1", width, self.dtype)]
        if states.rule is StateRule.CHANNEL_DELTA:
            decayed = 2 * states.num_decays
            found.append(self.moved("queries and keys by their decays", decayed, self.dtype))
        return tuple(found)

    def triangles(self) -> Items:
        """Products of keys with keys, and the inverse of one and their lower triangle."""
        states, long = self.states, self.length
        inverse = self.moved("inverses of triangles", states.num_heads * long, _WIDE)
        return (self.within("keys with keys", long, states.state_size), inverse)

    def made_again(self) -> Items:
        """What both passes make: the inverse times keys and values, states, and what is written."""
        states, long = self.states, self.length
        return (
            self.within("inverse times keys", states.state_size, long),
            self.within("inverse times values", states.head_size, long),
            self.within("values that states hold", states.head_size, states.state_size),
            self.along("states of chunks"),
            self.within("queries with keys", long, states.state_size),
        )

    def forward(self) -> Items:
        """All kernels."""
        states = self.states
        return (
            *self.keys(),
            *self.triangles(),
            *self.made_again(),
            self.within("outputs from states", states.head_size, states.state_size),
            self.within("outputs within chunks", states.head_size, self.length),
        )

    def backward(self) -> Items:
        """All kernels."""
        states, long = self.states, self.length
        size, width = states.state_size, states.head_size
        gradient = "gradients of what is written"
        return (
            *self.made_again(),
            self.within(f"{gradient}, within chunks", width, long),
            self.within(f"{gradient}, from states", width, size),
            self.along("gradients of states, from outputs"),
            self.along("gradients of states, from what they hold"),
            self.within("gradients of queries, from states", size, width),
            self.within("gradients of keys, from states", size, width),
            self.within("gradients of inverse times keys", size, width),
            self.within("gradients of scores", long, width),
            self.within("gradients of queries", size, long),
            self.within("gradients of keys", size, long),
            self.within("gradients of values, by the inverse", width, long),
            self.within("gradients of keys, by the inverse", size, long),
            self.within("gradients of inverses, from values", long, width),
            self.within("gradients of inverses, from keys", long, size),
            self.within("gradients of triangles", long, long),
            self.within("gradients of triangles, again", long, long),
            self.within("keys with keys", long, size),
            self.within("gradients of keys, from triangles", size, long),
            self.within("gradients of keys, from triangles again", size, long),
            self.moved("gradients of decays", states.num_decays, _WIDE, reads=3),
            *self.keys(),
        )
