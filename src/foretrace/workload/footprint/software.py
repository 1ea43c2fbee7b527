"""`Software`: what a training framework keeps and copies, where a plan does not say so.

A plan says which operators are fused; frameworks that do the same work still keep different
tensors for the backward pass. Every switch here was read in the framework's source.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from foretrace.workload.plan.plan import Plan, Sharding

_MIB = 2**20
# PyTorch gives cuBLAS a workspace of 8 x 4096 KiB on Hopper and later, through its allocator.
# Source: pytorch, aten/src/ATen/cuda/CublasHandlePool.cpp, parseChosenWorkspaceSize.
_CUBLAS_BYTES = 32 * _MIB
# Source: TransformerEngine 2.9, pytorch/module/base.py, get_cublas_workspace_size_bytes.
_ENGINE_BYTES = 32 * _MIB


class Loss(StrEnum):
    """What becomes of the logits of a microbatch, e of them on a rank, until their gradient."""

    # Logits become fp32 (4e), log-softmax (4e) is kept; its gradient (4e) and the logits' (4e).
    # Source: torch.nn.functional.cross_entropy after `.float()`, autograd of PyTorch.
    PLAIN = "plain"
    # fp32 softmax (4e) is kept; its gradient is computed in a copy (4e) and then cast. That it is
    # a copy shows in the code that torch.compile makes of `calculate_gradients`: an index_put
    # into a buffer of its own.
    # Source: Megatron-LM core/fusions/fused_cross_entropy.py.
    PARALLEL = "parallel"
    # Logits are kept as they are and overwritten with their gradient.
    # Source: TransformerEngine, pytorch/cross_entropy.py.
    IN_PLACE = "in-place"
    # Logits are kept as they are, softmax is computed again into the gradient.
    # Source: what torch.compile makes of the plain one; torchtitan components/loss.py.
    COMPILED = "compiled"


@dataclass(frozen=True, kw_only=True)
class Software:
    """What a framework keeps and copies."""

    name: str
    loss: Loss  # where the plan fuses it; else it is plain
    # Sequence parallel: ranks keep their own part of a product's input and gather it again.
    regathers_inputs: bool
    # Inputs of 8-bit products are kept in 8 bits; else as they were.
    keeps_quantized: bool
    # Routing weights are applied within the experts' activation; else to another copy of tokens.
    # Source: Megatron-LM 23e00ed, core/fusions/fused_bias_swiglu.py, weighted_bias_swiglu_impl.
    weighs_in_activation: bool
    has_dropout: bool  # with a byte an element to remember what was dropped
    # One unused gradient for every shape of weight, for autograd's sake, which stays.
    # Source: TransformerEngine, pytorch/module/base.py, get_dummy_wgrad.
    keeps_dummy_gradients: bool
    workspace_bytes: int  # of libraries, taken from the framework's allocator
    # Its statistics are of reserved memory, with holes between tensors that nothing fits into.
    counts_holes: bool = False


# Source: Megatron-LM 23e00ed with TransformerEngine 2.11: tensor_parallel/layers.py (gathers
# again), TransformerEngine's layernorm_linear.py and linear.py (8-bit inputs).
MEGATRON = Software(
    name="megatron",
    loss=Loss.PARALLEL,
    regathers_inputs=True,
    keeps_quantized=True,
    weighs_in_activation=True,
    has_dropout=False,
    keeps_dummy_gradients=True,
    workspace_bytes=_CUBLAS_BYTES + _ENGINE_BYTES,
)
# Source: torchtitan 9dec370, torchao eab345c (float8 products keep their 16-bit input).
PYTORCH = Software(
    name="pytorch",
    loss=Loss.COMPILED,
    regathers_inputs=False,
    keeps_quantized=False,
    weighs_in_activation=False,
    has_dropout=False,
    keeps_dummy_gradients=False,
    workspace_bytes=_CUBLAS_BYTES,
    counts_holes=True,
)


def software_of(plan: Plan) -> Software:
    """What a plan is likely run with: ZeRO-3 with PyTorch, all else with Megatron."""
    return PYTORCH if plan.sharding is Sharding.ZERO3 else MEGATRON
