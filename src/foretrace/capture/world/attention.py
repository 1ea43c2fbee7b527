"""`attention_without_masks`: what stands for FlexAttention, which is code that a compiler writes.

Its masks are functions of positions and of values, so how much of them is left out is not known
where tensors have none: it is taken for causal attention, and the answer says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch.nn.attention import flex_attention as flex

from foretrace.capture.world.journal import Journal

_FLEX: Any = flex
_MASKS, _ATTENTION = "create_block_mask", "flex_attention"
_CAUSAL = "flex_attention was causal attention, whatever its mask; making its masks took no time"


@contextmanager
def attention_without_masks(
    journal: Journal, unseen: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Iterator[None]:
    """While it holds, FlexAttention is the attention of PyTorch's own kernels.

    Args:
        journal: where the answer's sentence goes.
        unseen: makes a function whose work is not written down.
    """

    def attention(
        query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *_given: object, **named: Any
    ) -> Any:
        journal.substitutes[_CAUSAL] += 1
        out = torch.nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, scale=named.get("scale"),
            enable_gqa=named.get("enable_gqa", False),
        )  # fmt: skip
        if named.get("return_lse"):
            return out, _sums(query)
        if named.get("return_aux") is not None:
            return out, _FLEX.AuxOutput(lse=_sums(query), max_scores=_sums(query))
        return out

    with ExitStack() as stack:
        stack.enter_context(patch.object(_FLEX, _ATTENTION, attention))
        stack.enter_context(patch.object(_FLEX, _MASKS, unseen(getattr(_FLEX, _MASKS))))
        yield


def _sums(query: torch.Tensor) -> torch.Tensor:
    """One number for each row of scores, which the kernel writes beside its result."""
    return query.new_empty(query.shape[:-1], dtype=torch.float32)
