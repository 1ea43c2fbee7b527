"""Ways to run a module so that every operator is seen: as it is, exported, traced, or for real.

As it is first, on tensors without memory: what runs is what eager training runs, and nothing can
depend on values, which are not there. `torch.export` is a way too, and the next one; but a module
can tell that it is exported and do otherwise (Hugging Face's models then keep masks that they drop
in training), checkpoints of activations are lost in its graph, and it takes ten times as long.
Then what torch.fx traced; at last, where values decide, the module with its own numbers. Whichever
it is, autograd runs the backward pass, so that its operators are seen and not guessed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from foretrace.base import WorkloadError
from foretrace.capture.module.kernels import as_on_a_gpu
from foretrace.capture.module.known import KnownValues
from foretrace.capture.module.recorder import ModuleRecorder, Scope
from foretrace.capture.module.signature import tensors_in
from foretrace.capture.module.without_memory import value_without_memory

if TYPE_CHECKING:
    import torch
    from torch import nn

DISPATCH, EXPORT, FX, RUN = "dispatch", "export", "fx", "run"
WAYS = (DISPATCH, EXPORT, FX, RUN)
_LONGEST = 160  # letters of a reason
_MOST_REAL_BYTES = 4 << 30  # of a module that is run for real: a small machine's memory

Loss = Callable[[Any], Any]

_TITLES = {
    EXPORT: "torch.export",
    DISPATCH: "running it without memory",
    FX: "torch.fx",
    RUN: "running it for real",
}


@dataclass(frozen=True)
class ModuleCall:
    """A module and what it is called with."""

    module: nn.Module  # without memory
    original: nn.Module
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    loss: Loss | None
    is_divided: bool = False  # `module` is one rank's share of `original`

    def without_memory(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Inputs with shapes alone."""
        return value_without_memory(tuple(self.args)), value_without_memory(dict(self.kwargs))


@dataclass(frozen=True)
class ModuleRun:
    """A module that ran both ways, all operators seen."""

    way: str
    recorder: ModuleRecorder
    parameters: tuple[tuple[str, torch.Tensor], ...]
    constants: frozenset[int]  # storages of parameters and buffers
    gradients: frozenset[int]  # storages of parameters' gradients
    notes: tuple[str, ...]


def ran(given: ModuleCall, way: str | None) -> ModuleRun:
    """The module's operators by a way, or by the first that works.

    Raises:
        WorkloadError: if none does; with the reason of each.
    """
    if way is not None and way not in WAYS:
        raise WorkloadError(
            f"way {way!r} to capture a module is not known: choose one of {', '.join(WAYS)}"
        )
    reasons: list[str] = []
    for each in WAYS if way is None else (way,):
        try:
            found = _BY_WAY[each](given)
        except Exception as err:  # noqa: BLE001 - whatever a user's module raises
            reasons.append(f"{_TITLES[each]}: {_reason(err)}")
            continue
        said = (f"{'; '.join(reasons)}; so {_TITLES[each]} was taken",) if reasons else ()
        return ModuleRun(
            each,
            found.recorder,
            found.parameters,
            found.constants,
            found.gradients,
            (*said, *found.notes),
        )
    raise WorkloadError(
        f"module {type(given.original).__name__} cannot be captured: " + "; ".join(reasons) + ". "
        "Give inputs with which it runs, and leave out what needs values of tensors"
    )


def _exported(given: ModuleCall) -> ModuleRun:
    import torch  # on demand: an optional dependency

    args, kwargs = given.without_memory()
    with as_on_a_gpu(), torch.device("meta"), _quiet():
        program = torch.export.export(given.module, args, kwargs, strict=False)
        return _recorded(program.module(), (args, kwargs), given.loss, is_graph=True)


@contextmanager
def _quiet() -> Iterator[None]:
    """While it holds, PyTorch logs nothing: why an export fails is told by its error."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def _dispatched(given: ModuleCall) -> ModuleRun:
    inputs = given.without_memory()
    known = KnownValues()
    known.state(inputs, (given.args, given.kwargs))
    with as_on_a_gpu():
        return _recorded(given.module, inputs, given.loss, known=known)


def _traced(given: ModuleCall) -> ModuleRun:
    import torch  # on demand: an optional dependency

    graph = torch.fx.symbolic_trace(given.module)
    with as_on_a_gpu():
        return _recorded(graph, given.without_memory(), given.loss, is_graph=True)


def _run(given: ModuleCall) -> ModuleRun:
    module = given.original
    if given.is_divided:
        raise WorkloadError("a module that is divided over ranks is not all there")
    tensors = [*module.parameters(), *module.buffers()]
    if any(
        one.device.type == "meta" for one in (*tensors, *tensors_in([given.args, given.kwargs]))
    ):
        raise WorkloadError("its parameters or inputs have no values")
    size = sum(one.numel() * one.element_size() for one in tensors)
    if size > _MOST_REAL_BYTES:
        raise WorkloadError(f"it has {size:,} bytes, more than {_MOST_REAL_BYTES:,}")
    kept = [(one, one.grad) for one in module.parameters()]
    try:
        for one, _ in kept:
            one.grad = None
        found = _recorded(module, (given.args, given.kwargs), given.loss)
    finally:
        for one, gradient in kept:
            one.grad = gradient
    note = "it ran for real: operators are those of its own device, on the values it was given"
    return ModuleRun(
        RUN, found.recorder, found.parameters, found.constants, found.gradients, (note,)
    )


_BY_WAY: Mapping[str, Callable[[ModuleCall], ModuleRun]] = {
    EXPORT: _exported,
    DISPATCH: _dispatched,
    FX: _traced,
    RUN: _run,
}


def _recorded(
    module: nn.Module,
    given: tuple[Sequence[Any], Mapping[str, Any]],
    loss: Loss | None,
    *,
    is_graph: bool = False,
    known: KnownValues | None = None,
) -> ModuleRun:
    """Forward and backward pass under a recorder; `is_graph`: scopes stand in nodes' metadata."""
    import torch  # on demand: an optional dependency

    recorder = ModuleRecorder(known=known)
    notes: list[str] = []
    parameters = tuple(sorted(module.named_parameters(), key=lambda pair: pair[0]))
    constants = frozenset(
        recorder.storage(one) for one in (*module.parameters(), *module.buffers())
    )
    device = next((one.device for _, one in parameters), torch.device("meta"))
    with torch.enable_grad(), torch.device(device), recorder.recording():
        if is_graph:
            output = _interpreted(module, recorder, given)
        else:
            with recorder.following(module):
                output = module(*given[0], **given[1])
        recorder.scope = ()
        ends = _ends(output, loss, notes)
        with recorder.paused():
            gradients = [torch.ones_like(one) for one in ends]
        with recorder.following(module):  # what is computed again is its work
            recorder.begin_backward()
            torch.autograd.backward(ends, gradients)
    found = frozenset(recorder.storage(one.grad) for _, one in parameters if one.grad is not None)
    for _, one in parameters:
        one.grad = None
    return ModuleRun("", recorder, parameters, constants, found, tuple(notes))


def _interpreted(
    graph: Any, recorder: ModuleRecorder, given: tuple[Sequence[Any], Mapping[str, Any]]
) -> Any:
    """Run a graph node by node, each in the scope of the module that it comes from."""
    from torch import fx  # on demand: an optional dependency
    from torch.utils import _pytree as pytree  # on demand: an optional dependency

    class Interpreter(fx.Interpreter):
        """Tells the recorder where every node comes from."""

        def run_node(self, n: fx.Node) -> Any:
            recorder.scope = _scope_of(n)
            return super().run_node(n)

    return Interpreter(graph).run(*_flat(graph, given, pytree))


def _flat(graph: Any, given: tuple[Sequence[Any], Mapping[str, Any]], pytree: Any) -> list[Any]:
    """Inputs in the order of the graph's placeholders."""
    names = [node.name for node in graph.graph.nodes if node.op == "placeholder"]
    if hasattr(graph.graph._codegen, "pytree_info"):  # noqa: SLF001 - no other way to tell
        return list(pytree.tree_flatten((tuple(given[0]), dict(given[1])))[0])
    values = dict(zip(names, given[0], strict=False)) | dict(given[1])
    return [values[name] for name in names if name in values]


def _scope_of(node: Any) -> Scope:
    """Paths of the modules around a node; of calls after the first, with their number."""
    stack = node.meta.get("nn_module_stack") or {}
    found = []
    for key, (path, _) in stack.items():
        _, sign, number = str(key).rpartition("@")
        if path:
            found.append(f"{path}@{number}" if sign else str(path))
    return tuple(found)


def _ends(output: Any, loss: Loss | None, notes: list[str]) -> list[torch.Tensor]:
    """Tensors that gradients start from."""
    if loss is not None:
        output = loss(output)
    else:
        stated = output.get("loss") if isinstance(output, Mapping) else None
        stated = getattr(output, "loss", None) if stated is None else stated
        output = output if stated is None else stated
    ends = [one for one in tensors_in(output) if one.requires_grad]
    if not ends:
        raise WorkloadError("nothing that it returns has a gradient")
    if loss is None and any(one.numel() > 1 for one in ends):
        notes.append("it returns no loss, so the backward pass starts from what it returns")
    return ends


def _reason(err: Exception) -> str:
    """The first line of an error, with the place in the user's code if PyTorch tells it."""
    lines = [line.strip() for line in str(err).strip().splitlines() if line.strip()]
    return f"{type(err).__name__}: {lines[0][:_LONGEST]}" if lines else type(err).__name__
