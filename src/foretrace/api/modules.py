"""A module of the user's own, as `estimate` takes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from foretrace.capture import captured, program_of
from foretrace.operators import Program
from foretrace.workload import PlanDraft

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
) -> Program:
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


def captured_for(named: str, draft: PlanDraft) -> Program:
    """What a module runs under what is stated of a plan: its microbatch, sequence and tp.

    Args:
        named: "package.file:function", or "path/to/file.py:function".
        draft: sizes that it does not state are the function's own defaults.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        WorkloadError: if there is no such function, or its module cannot be captured.
    """
    plan = draft.plan()
    return program_of(
        named,
        micro_batch=plan.micro_batch if draft.states("micro_batch") else None,
        sequence=plan.sequence if draft.states("sequence") else None,
        tensor=plan.tensor,
    )
