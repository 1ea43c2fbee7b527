"""PyTorch and ml_dtypes, of which nothing is loaded before it is used."""

from typing import TYPE_CHECKING, Any

from foretrace.base import optional

if TYPE_CHECKING:
    import ml_dtypes
    import torch
    from torch import Tensor
else:
    Tensor = Any
    torch = optional("torch", extra="numerics")
    ml_dtypes = optional("ml_dtypes", extra="numerics")

__all__ = ["Tensor", "ml_dtypes", "torch"]
