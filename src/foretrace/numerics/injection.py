"""Faults in parameters and activations of a module, one for each sample of a batch.

A fault in a weight changes what its module adds to one output: the clean output and that difference
are what the faulty module would give. So hundreds of faults run in one forward pass, each on its
own sample. Modules for which this is not known are run with their parameter changed, one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from foretrace.base import WorkloadError
from foretrace.numerics.libraries import Tensor, torch

Inputs = Any  # a tensor, or a sequence or mapping of them, samples along their first dimension


@dataclass(frozen=True, eq=False)
class FaultBatch:
    """One fault for each sample."""

    places: Any  # int64[samples, elements] of the parameter, or of one sample's activation
    before: Any  # float32[samples, elements]
    after: Any


@dataclass(frozen=True, eq=False)
class FaultSite:
    """Where faults are put: a parameter of a module, or its output."""

    module: str
    parameter: str  # "": the output

    @property
    def name(self) -> str:
        """As `named_parameters` has it."""
        return f"{self.module}.{self.parameter}".strip(".") if self.parameter else self.module


def run(module: torch.nn.Module, inputs: Inputs) -> Tensor:
    """What the module returns; of several values the first.

    Raises:
        WorkloadError: if it fails, or returns no tensor.
    """
    try:
        with torch.inference_mode():
            found = _called(module, inputs)
    except Exception as error:  # whatever a user's module raises
        raise WorkloadError(
            f"{type(module).__name__} fails on its inputs with {type(error).__name__}: {error}; "
            "give inputs that it takes, samples along their first dimension"
        ) from error
    while isinstance(found, (tuple, list)) and found:
        found = found[0]
    if isinstance(found, Mapping):
        found = next(iter(found.values()))
    if not isinstance(found, torch.Tensor):
        raise WorkloadError(
            f"{type(module).__name__} returns {type(found).__name__}: expected is a tensor whose "
            "first dimension is the samples"
        )
    return found


def _called(module: torch.nn.Module, inputs: Inputs) -> Any:
    if isinstance(inputs, Mapping):
        return module(**inputs)
    return module(*inputs) if isinstance(inputs, (tuple, list)) else module(inputs)


def samples_of(inputs: Inputs, which: Tensor) -> Inputs:
    """These samples of the inputs."""
    if isinstance(inputs, Mapping):
        return {name: samples_of(one, which) for name, one in inputs.items()}
    if isinstance(inputs, (tuple, list)):
        return [samples_of(one, which) for one in inputs]
    return inputs[which] if isinstance(inputs, torch.Tensor) else inputs


def faulty_run(
    module: torch.nn.Module, inputs: Inputs, site: FaultSite, faults: FaultBatch
) -> Tensor:
    """What the module returns where each sample meets its own fault."""
    owner = module.get_submodule(site.module)
    if not site.parameter:
        return _hooked(module, inputs, owner, lambda _, out: _in_output(out, faults))
    effect = _effect_of(owner, site.parameter)
    if effect is None:
        return _one_by_one(module, inputs, owner.get_parameter(site.parameter), faults)
    return _hooked(module, inputs, owner, lambda given, out: effect(owner, given, out, faults))


def _hooked(
    module: torch.nn.Module,
    inputs: Inputs,
    owner: torch.nn.Module,
    changed: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    handle = owner.register_forward_hook(lambda _, given, out: changed(given[0], out))
    try:
        return run(module, inputs)
    finally:
        handle.remove()


def _one_by_one(
    module: torch.nn.Module, inputs: Inputs, parameter: Tensor, faults: FaultBatch
) -> Tensor:
    """Every sample alone, with the parameter as its fault leaves it."""
    values = parameter.data.view(-1)
    found = []
    for sample in range(faults.places.shape[0]):
        places = faults.places[sample]
        kept = values[places].clone()
        values[places] = faults.after[sample].to(values.dtype)
        try:
            found.append(run(module, samples_of(inputs, torch.tensor([sample]))))
        finally:
            values[places] = kept
    return torch.cat(found)


def activation_size(module: torch.nn.Module, inputs: Inputs, site: FaultSite) -> int:
    """Elements of one sample's output at a site."""
    return seen_activation(module, inputs, site).flatten(1).shape[1]


def seen_activation(module: torch.nn.Module, inputs: Inputs, site: FaultSite) -> Tensor:
    """The output at a site.

    Raises:
        WorkloadError: if the module is not run, or returns no tensor.
    """
    seen: list[Tensor] = []

    def keep(_: Tensor, out: Tensor) -> Tensor:
        seen.append(out)
        return out

    _hooked(module, inputs, module.get_submodule(site.module), keep)
    if not seen or not isinstance(seen[0], torch.Tensor):
        raise WorkloadError(f"{site.name} gives no tensor in a run: choose another module")
    return seen[0]


def _in_output(out: Tensor, faults: FaultBatch) -> Tensor:
    flat = out.reshape(out.shape[0], -1).clone()
    return flat.scatter_(1, faults.places, faults.after.to(flat.dtype)).view_as(out)


def _in_linear(owner: Any, given: Tensor, out: Tensor, faults: FaultBatch) -> Tensor:
    inner = owner.in_features
    rows, columns = faults.places // inner, faults.places % inner
    values = given.reshape(given.shape[0], -1, inner)
    shape = (-1, values.shape[1], -1)
    met = values.gather(2, columns[:, None].expand(*shape))
    return _added(out, rows, met * (faults.after - faults.before)[:, None])


def _in_bias(_: Any, given: Tensor, out: Tensor, faults: FaultBatch) -> Tensor:
    change = (faults.after - faults.before)[:, None]
    if out.dim() > 3:  # noqa: PLR2004  pictures: channels stand second
        return _added_channels(out, faults.places, change.mT)
    rows = out.reshape(given.shape[0], -1, out.shape[-1]).shape[1]
    return _added(out, faults.places, change.expand(-1, rows, -1))


def _in_embedding(owner: Any, given: Tensor, out: Tensor, faults: FaultBatch) -> Tensor:
    width = owner.embedding_dim
    rows, columns = faults.places // width, faults.places % width
    hits = given.reshape(given.shape[0], -1, 1) == rows[:, None]
    change = (faults.after - faults.before)[:, None]
    effect = torch.where(hits, change, 0.0)
    if isinstance(owner, torch.nn.EmbeddingBag):
        effect = effect.sum(1, keepdim=True)
        effect = effect / given.shape[1] if owner.mode == "mean" else effect
    return _added(out, columns, effect)


def _in_convolution(owner: Any, given: Tensor, out: Tensor, faults: FaultBatch) -> Tensor:
    inner = owner.weight[0].numel()
    rows, columns = faults.places // inner, faults.places % inner
    patches = torch.nn.functional.unfold(
        given,
        owner.kernel_size,
        dilation=owner.dilation,
        padding=owner.padding,
        stride=owner.stride,
    )
    met = patches.gather(1, columns[..., None].expand(-1, -1, patches.shape[-1]))
    return _added_channels(out, rows, met * (faults.after - faults.before)[..., None])


def _added(out: Tensor, columns: Tensor, effect: Tensor) -> Tensor:
    """Added to these columns of every sample: [samples, rows, elements] at [samples, elements]."""
    flat = out.reshape(out.shape[0], -1, out.shape[-1]).clone()
    places = columns[:, None].expand(-1, flat.shape[1], -1)
    return flat.scatter_add_(2, places, effect.to(flat.dtype)).view_as(out)


def _added_channels(out: Tensor, channels: Tensor, effect: Tensor) -> Tensor:
    flat = out.flatten(2).clone()
    places = channels[..., None].expand(-1, -1, flat.shape[2])
    effect = effect.expand(-1, -1, flat.shape[2])
    return flat.scatter_add_(1, places, effect.to(flat.dtype)).view_as(out)


Effect = Callable[[Any, "Tensor", "Tensor", FaultBatch], "Tensor"]


def _effect_of(owner: torch.nn.Module, parameter: str) -> Effect | None:
    """How a fault of this parameter changes the module's output; none if it is not known."""
    kind: type = type(owner)
    if parameter == "bias" and kind in (torch.nn.Linear, torch.nn.Conv2d):
        return _in_bias
    if parameter != "weight":
        return None
    if kind is torch.nn.Conv2d and owner.groups == 1 and not isinstance(owner.padding, str):
        return _in_convolution
    if kind is torch.nn.EmbeddingBag and owner.mode == "max":
        return None
    known: Sequence[tuple[type, Effect]] = (
        (torch.nn.Linear, _in_linear),
        (torch.nn.Embedding, _in_embedding),
        (torch.nn.EmbeddingBag, _in_embedding),
    )
    return next((effect for one, effect in known if kind is one), None)
