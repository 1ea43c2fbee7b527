"""PyTorch and ml_dtypes, of which nothing is loaded before it is used."""

from typing import TYPE_CHECKING, Any

from foretrace.base import WorkloadError, optional

if TYPE_CHECKING:
    import ml_dtypes
    import torch
    from torch import Tensor
else:
    Tensor = Any
    torch = optional("torch", extra="numerics")
    ml_dtypes = optional("ml_dtypes", extra="numerics")

__all__ = ["Tensor", "check_device", "ml_dtypes", "torch"]


def check_device(name: str) -> None:
    """Raise where PyTorch has no such device here.

    Raises:
        WorkloadError: if it has none.
    """
    try:
        torch.empty(1, device=name)
    except (AssertionError, RuntimeError) as error:
        told = str(error).splitlines()[0].rstrip(".")
        raise WorkloadError(
            f"PyTorch has no device {name!r} here ({told}): take cpu, or a build of PyTorch for it"
        ) from error
