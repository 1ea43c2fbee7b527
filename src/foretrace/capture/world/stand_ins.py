"""`stand_in`: what other ranks would have sent, where tensors have values.

Fake groups leave most of it as it was, which may be no number at all: operators on such are faster
or slower than on numbers, and an optimizer's step spreads them over all parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_SUMS = ("reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced")
_EXCHANGES = ("all_to_all", "all_to_allv")


def stand_in(
    name: str, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], *, place: int
) -> bool:
    """Fill what an exchange writes; whether that is random.

    Sums have this rank's own part alone, all-to-alls bring back what this rank sent, and what
    another rank sends is random. Gathers copy this rank's part already; all-reduces and broadcasts
    leave what is there.

    Args:
        name: of the exchange, as NCCL calls it.
        inputs: what goes in; of a receive what it writes to.
        outputs: what comes out.
        place: of this rank in the group.
    """
    with torch.no_grad():
        if name in _SUMS:
            each = len(inputs) // max(len(outputs), 1)
            for at, one in enumerate(outputs):
                if each > 1:  # a list of parts for each
                    one.copy_(inputs[at * each + place])
                else:
                    _copy(one, inputs[at], first=place * one.numel())
        elif name in _EXCHANGES:
            for one, sent in zip(outputs, inputs, strict=False):
                _copy(one, sent, first=0)
        elif name == "recv":
            received = [one for one in (*inputs, *outputs) if one.is_floating_point()]
            for one in received:
                one.normal_()
            return bool(received)
    return False


def _copy(to: torch.Tensor, source: torch.Tensor, *, first: int) -> None:
    """As many numbers as both have, from one on."""
    numbers = source.reshape(-1)[first : first + to.numel()]
    to.view(-1)[: numbers.numel()].copy_(numbers)
