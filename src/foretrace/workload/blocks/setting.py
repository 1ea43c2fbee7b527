"""`Setting`: sizes of a model that one rank sees, each divided where ranks of a plan divide it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from foretrace.base import WorkloadError
from foretrace.workload.blocks.signatures import num_bytes
from foretrace.workload.models.flops import Convention, mean_keys
from foretrace.workload.models.transformer import StateSpace, Transformer
from foretrace.workload.plan.groups import expert_tensor_size
from foretrace.workload.plan.plan import Group, Plan, Sharding


@dataclass(frozen=True)
class Setting:
    """A model under a plan, as one rank sees it.

    Raises:
        WorkloadError: by every size that ranks cannot divide evenly.
    """

    model: Transformer
    plan: Plan

    @cached_property
    def length(self) -> int:
        """Tokens of one sequence on this rank."""
        return divided(self.plan.sequence, self.plan.context, "tokens of a sequence", "cp")

    @cached_property
    def tokens(self) -> int:
        """Tokens of a microbatch on this rank, as products see them."""
        return self.plan.micro_batch * self.length

    @cached_property
    def own_tokens(self) -> int:
        """Tokens between the products: divided further by sequence parallelism."""
        if not self.is_sequence_parallel:
            return self.tokens
        return divided(self.tokens, self.plan.tensor, "tokens of a microbatch", "tp")

    @property
    def is_sequence_parallel(self) -> bool:
        """Whether norms and sums see a share of the tokens."""
        return self.plan.sequence_parallel and self.plan.tensor > 1

    @property
    def kept(self) -> str:
        """Number format between operators."""
        return self.plan.precision.activations

    @property
    def multiplied(self) -> str:
        """Number format of products' operands in layers."""
        return self.plan.precision.products

    @property
    def multiplied_for_weights(self) -> str:
        """Number format of the operands that give weights' gradients in layers."""
        return self.plan.precision.weight_gradient_products

    @property
    def is_quantised(self) -> bool:
        """Whether products take eight bits or fewer."""
        return self.plan.precision.is_quantised

    @property
    def multiplied_wide(self) -> str:
        """Number format of products that are never quantised."""
        return self.plan.precision.wide_products

    @cached_property
    def made(self) -> str:
        """Number format of what products give, and of messages with it."""
        return self.plan.precision.made

    @property
    def gathers_parameters(self) -> bool:
        """Whether parameters are gathered before use."""
        return self.plan.sharding is Sharding.ZERO3

    @cached_property
    def casts_weights(self) -> bool:
        """Whether each product casts its weight first: autocast, or formats of eight bits.

        Eight-bit weights are kept from one microbatch to the next (Transformer Engine,
        `is_first_microbatch`) unless they are gathered anew.
        """
        if self.is_quantised:
            return self.gathers_parameters
        return num_bytes(1, self.plan.precision.parameters) != num_bytes(1, self.multiplied)

    @cached_property
    def accumulates(self) -> bool:
        """Whether weights' gradients are added to a buffer of their own: Megatron's main_grad."""
        precision = self.plan.precision
        if self.plan.sharding in {Sharding.ZERO2, Sharding.ZERO3}:
            return False
        return precision.gradients != precision.parameters or self.plan.num_microbatches > 1

    @cached_property
    def vocabulary(self) -> int:
        """Rows of the embedding on this rank; the last rank's are filled up."""
        return -(-self.model.vocabulary // self.plan.tensor)

    @cached_property
    def expert_tensor(self) -> int:
        """Ranks that divide one expert."""
        return expert_tensor_size(self.plan)

    def share(self, size: int, what: str) -> int:
        """A size divided over the ranks of TENSOR."""
        return divided(size, self.plan.tensor, what, Group.TENSOR.value)

    @cached_property
    def heads(self) -> int:
        """Heads of queries on this rank."""
        return self.share(self.model.attention.num_heads, "heads")

    @cached_property
    def picks_latents(self) -> bool:
        """Whether attention to picked latents multiplies less than that to all keys, masked.

        Source:
            DeepSeek-AI, "DeepSeek-V3.2", arXiv:2512.02556, section 2.1: one latent is for all
            heads, and short prompts are masked in its place.
        """
        attention, length = self.model.attention, self.plan.sequence
        indexer, latent = attention.indexer, attention.latent
        if indexer is None or latent is None or self.plan.implementation.attention == "plain":
            return False
        few = mean_keys(length, indexer.reach, Convention.CAUSAL)
        many = mean_keys(length, None, Convention.CAUSAL)
        shared = 2 * latent.rank + latent.rotary_size
        return few * shared < many * (attention.score_size + attention.value_size)

    @cached_property
    def own_states(self) -> StateSpace:
        """The state space that this rank has of each layer that has one.

        Raises:
            WorkloadError: if ranks of TENSOR cannot divide its heads and groups.
        """
        states = self.model.states
        if states is None:
            raise WorkloadError(f"{self.model.name} carries no states: [states] describes them")
        return replace(
            states,
            num_heads=self.share(states.num_heads, "heads of states"),
            num_groups=self.share(states.num_groups, "groups of states"),
        )

    def columns(self, width: int) -> int:
        """Columns on this rank of a feed-forward part that is so wide."""
        return self.share(width, "columns of the feed-forward part")

    @cached_property
    def key_heads(self) -> int:
        """Heads of keys on this rank; fewer heads than ranks are copied."""
        heads, tensor = self.model.attention.num_kv_heads, self.plan.tensor
        if tensor > heads and tensor % heads == 0:
            return 1
        return self.share(heads, "heads of keys and values")


def divided(size: int, ranks: int, what: str, axis: str) -> int:
    """A size over ranks.

    Raises:
        WorkloadError: if it does not come out even.
    """
    if size % ranks:
        raise WorkloadError(
            f"{axis} {ranks} does not divide {size:,} {what}: {size:,} / {ranks} leaves "
            f"{size % ranks}; choose a divisor of {size:,}"
        )
    return size // ranks
