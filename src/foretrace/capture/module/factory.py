"""`capture`: a module, or what a function of a file of the user's makes, as a `ModuleProgram`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretrace.base import ModelError, WorkloadError, function_named
from foretrace.capture.module.compose import captured, require_torch_for_modules
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


_KEYS = ("loss", "layers", "divided", "name")  # of a mapping that a factory returns


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
    and its inputs, or a mapping with `module`, `inputs` and what else `captured` takes.

    Args:
        named: "package.file:function", or "path/to/file.py:function".
        micro_batch: samples of a microbatch; the function's own default if left out.
        sequence: tokens of a sample; likewise.
        tensor: ranks that linear layers are divided over.
        way: of `captured`.

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
    return captured(module, inputs, tensor=tensor, way=way, **more)


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
