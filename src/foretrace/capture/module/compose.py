"""`captured`: any `torch.nn.Module` and its inputs become a `ModuleProgram`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from foretrace.base import MissingExtraError, WorkloadError
from foretrace.capture.module.divided import divide
from foretrace.capture.module.execution import ModuleCall, ran
from foretrace.capture.module.parts import cut
from foretrace.capture.module.signature import tensors_in
from foretrace.capture.module.without_memory import module_without_memory
from foretrace.operators import ModuleProgram

if TYPE_CHECKING:
    import torch
    from torch import nn

_TOKEN_DIMENSIONS = 2  # batch and tokens


def captured(
    module: nn.Module,
    inputs: torch.Tensor | Sequence[Any] | Mapping[str, Any],
    *,
    loss: Callable[[Any], Any] | None = None,
    layers: str | None = None,
    tensor: int = 1,
    divided: Mapping[str, str] | None = None,
    way: str | None = None,
    name: str | None = None,
) -> ModuleProgram:
    """The operators that a module runs for one microbatch, forward and backward.

    Nothing is computed and no memory is taken, unless values of tensors decide what runs. The
    module is left as it is.

    Args:
        module: on any device, "meta" too, and of any size.
        inputs: of one microbatch: one tensor, or a sequence or a mapping of arguments.
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
    require_torch_for_modules()
    _check_ranks(tensor)
    args, kwargs = _arguments(inputs)
    given = ModuleCall(module_without_memory(module), module, args, kwargs, loss, tensor > 1)
    divide(given.module, tensor, divided or {})
    run = ran(given, way)
    found = cut(run, layers)
    batch, sequence = _sizes((args, kwargs))
    return ModuleProgram(
        name=name or type(module).__name__,
        way=run.way,
        batch=batch,
        sequence=sequence,
        layers=found.layers,
        before=found.before,
        behind=found.behind,
        tied_parameters=found.tied_parameters,
        tensor=tensor,
        notes=(*run.notes, *found.notes),
    )


def require_torch_for_modules() -> None:
    """Raise if PyTorch cannot be imported.

    Raises:
        MissingExtraError: with the command that installs it.
    """
    if find_spec("torch") is None:
        raise MissingExtraError(
            "cannot capture a module: PyTorch is not installed, and the module is made of it; "
            'install it with: pip install "foretrace[torch]"'
        )


def _check_ranks(tensor: int) -> None:
    if tensor < 1:
        raise WorkloadError(f"a module is divided over {tensor} tensor ranks: give 1 or more")


def _arguments(inputs: object) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(inputs, Mapping):
        return (), {str(name): one for name, one in inputs.items()}
    if isinstance(inputs, list | tuple):
        return tuple(inputs), {}
    return (inputs,), {}


def _sizes(given: object) -> tuple[int, int | None]:
    """Samples, and tokens of one where whole numbers in two dimensions go in.

    Raises:
        WorkloadError: if no tensor goes in.
    """
    tensors = [one for one in tensors_in(given) if one.dim()]
    if not tensors:
        raise WorkloadError(
            "no tensor goes into the module, so nobody can tell how many samples a microbatch "
            "has: give the tensors of one microbatch as inputs"
        )
    tokens = [
        one
        for one in tensors
        if one.dim() == _TOKEN_DIMENSIONS and not (one.is_floating_point() or one.is_complex())
    ]
    batch = int((tokens or tensors)[0].shape[0])
    return batch, int(tokens[0].shape[1]) if tokens else None
