"""`capture`: a module, or what a function of a file of the user's makes, as a `ModuleProgram`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from foretrace.base import MissingExtraError, ModelError, WorkloadError, function_named
from foretrace.capture.module.divided import divide
from foretrace.capture.module.execution import ModuleCall, ran
from foretrace.capture.module.parts import cut
from foretrace.capture.module.signature import tensors_in
from foretrace.capture.module.without_memory import module_without_memory
from foretrace.operators import ModuleProgram

if TYPE_CHECKING:
    import torch

_TOKEN_DIMENSIONS = 2  # batch and tokens
_KEYS = ("loss", "layers", "divided", "name")  # of a mapping that a factory returns


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

    Nothing is computed and no memory is taken, unless values of tensors decide what runs: a module
    on the device "meta" may be of any size. The module is left as it is.

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
    require_torch_for_modules()
    _check_ranks(tensor)
    args, kwargs = _arguments(() if inputs is None else inputs)
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


def program_of(
    named: str,
    *,
    micro_batch: int | None = None,
    sequence: int | None = None,
    tensor: int = 1,
    way: str | None = None,
) -> ModuleProgram:
    """What the module runs that a function makes.

    The function is called on the device "meta", so that no memory is taken. It is given
    `micro_batch` and `sequence`, where it takes arguments of these names, and returns the module
    and its inputs, or a mapping with `module`, `inputs` and what else `capture` takes.

    Args:
        named: "package.file:function", or "path/to/file.py:function".
        micro_batch: samples of a microbatch; the function's own default if left out.
        sequence: tokens of a sample; likewise.
        tensor: ranks that linear layers are divided over.
        way: of `capture`.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        WorkloadError: if there is no such function, it fails, or returns something else.
    """
    require_torch_for_modules()
    import torch  # on demand: an optional dependency

    factory = function_named(named)
    sizes = {"micro_batch": micro_batch, "sequence": sequence}
    given = _accepted(factory, {key: one for key, one in sizes.items() if one is not None})
    try:
        with torch.device("meta"):
            made = factory(**given)
    except ModelError:
        raise
    except Exception as err:  # whatever a user's function raises
        raise WorkloadError(
            f"{named} fails with {type(err).__name__}: {err}; it is called with "
            f"{given or 'nothing'} on the device 'meta', where tensors have no values"
        ) from err
    module, inputs, more = _parts(named, made)
    return capture(module, inputs, tensor=tensor, way=way, **more)


def _parts(named: str, made: object) -> tuple[Any, Any, dict[str, Any]]:
    if isinstance(made, tuple) and len(made) == 2:  # noqa: PLR2004  module and inputs
        return made[0], made[1], {}
    if isinstance(made, Mapping) and {"module", "inputs"} <= set(made):
        unknown = sorted(set(map(str, made)) - {"module", "inputs", *_KEYS})
        if not unknown:
            return made["module"], made["inputs"], {key: made[key] for key in _KEYS if key in made}
        raise WorkloadError(
            f"{named} returns {unknown[0]!r}, which is not known: return module, inputs and, of "
            f"{', '.join(_KEYS)}, what you like"
        )
    raise WorkloadError(
        f"{named} returns {type(made).__name__}: expected is a module and its inputs, or a mapping "
        "with 'module' and 'inputs'"
    )


def _accepted(factory: Callable[..., Any], sizes: dict[str, int]) -> dict[str, int]:
    """Of the sizes, those that the function takes."""
    takes = inspect.signature(factory).parameters
    takes_all = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values())
    return {key: one for key, one in sizes.items() if takes_all or key in takes}


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
