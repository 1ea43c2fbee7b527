"""`capture`: a module, or what makes one, becomes a `ModuleProgram`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretrace.capture.module.compose import captured
from foretrace.capture.module.factory import program_of
from foretrace.operators import ModuleProgram

if TYPE_CHECKING:
    import torch


def capture(
    module: torch.nn.Module | str,
    inputs: torch.Tensor | Sequence[Any] | Mapping[str, Any] | None = None,
    *,
    loss: Callable[[Any], Any] | None = None,
    layers: str | None = None,
    tensor: int = 1,
    divided: Mapping[str, str] | None = None,
    way: str | None = None,
    name: str | None = None,
) -> ModuleProgram:
    """What a PyTorch module runs for one microbatch, for `estimate` in place of a model.

    Nothing is computed and no memory is taken: a module on the device "meta" may be of any size.

    Args:
        module: any module; or "package.file:function", which makes module and inputs.
        inputs: of one microbatch: a tensor, or a sequence or a mapping of arguments.
        loss: of what the module returns; without, its own `loss`, or the sum of what it returns.
        layers: pattern of the names of modules that are layers, as "model.layers.*"; those with
            numbered names if left out.
        tensor: ranks that linear layers are divided over.
        divided: "column" or "row" by patterns of linear layers' names.
        way: "dispatch", "export", "fx" or "run"; the first of these that works if left out.
        name: what it is called; its class if left out.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        WorkloadError: if the module cannot be captured, or divided as asked.
    """
    if isinstance(module, str):
        return program_of(module, tensor=tensor, way=way)
    return captured(
        module,
        () if inputs is None else inputs,
        loss=loss,
        layers=layers,
        tensor=tensor,
        divided=divided,
        way=way,
        name=name,
    )
