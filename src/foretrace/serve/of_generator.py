"""`generator_work`: a generator of pictures or clips: what one pass of its network takes, and why.

A denoising loop passes a network over the latents again and again, each time twice as many where
what is asked for is held against nothing (classifier-free guidance). Attention is an encoder's:
all positions see all, within a frame, to the text, or over the frames of a clip.

Source:
    Golden et al., "Generative AI Beyond LLMs: System Implications of Multi-Modal Generation",
    arXiv:2312.14385, for what is told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from foretrace.answer import Plain
from foretrace.base import WorkloadError
from foretrace.cost import FittedKernels, Operation, operation_of
from foretrace.machine import Machine
from foretrace.operators import OperatorClass, operator_class
from foretrace.serve.stages import ServingStage, batch_times, sizes_up_to
from foretrace.workload import (
    Diffusion,
    Implementation,
    Model,
    Operator,
    Passes,
    Plan,
    Precision,
    Transformer,
    blocks_of_model,
)

_HALF, _BYTES = "fp16", 2
_ENCODER, _ATTENTION = "attention encoder", "attention"
_EVEN = 16  # sizes of heads that this divides are worked on by other kernels than others
_SPATIAL, _TEXT, _TEMPORAL = "attention", "attention to the text", "attention over time"
_OF_SCORES = frozenset({"aten::bmm", "aten::baddbmm", "aten::_softmax"})
_NAMES = {
    OperatorClass.CONVOLUTION: "convolution",
    OperatorClass.GEMM: "linear",
    OperatorClass.NORMALISATION: "norms",
}
_REST = "pointwise and copies"


@dataclass(frozen=True)
class WorkShare(Plain):
    """One kind of work in a pass of the network."""

    kind: str
    ms: float
    share: float  # of the pass


@dataclass(frozen=True)
class PassPositions(Plain):
    """What attention sees in one transformer of the network, in the order of the pass."""

    at: int
    positions: int
    ms: float  # of its attention


@dataclass(frozen=True)
class GeneratorWork:
    """A pass of the network over one batch."""

    ns: float
    shares: tuple[WorkShare, ...]
    positions: tuple[PassPositions, ...]
    num_parameters: int
    scores_bytes: int  # of the largest matrix of scores, where it is written to memory


def generator_work(
    model: Model, machine: Machine, *, batch: int = 1, attention: str = "flash"
) -> GeneratorWork:
    """One forward pass.

    Args:
        model: a diffusion network, or a transformer that sees patches.
        machine: whose chip it runs on.
        batch: pictures or clips that pass at once.
        attention: "flash", or "plain": scores are written to memory.

    Raises:
        WorkloadError: if the model makes no pictures.
    """
    if not isinstance(model, Diffusion) and (
        not isinstance(model, Transformer) or model.patches is None
    ):
        raise WorkloadError(
            f"{model.name} makes tokens one after the other, not pictures in a loop: serve it with "
            "an engine's settings (--engine)"
        )
    plan = Plan(
        micro_batch=batch,
        global_batch=batch,
        sequence=model.patches.num_tokens
        if isinstance(model, Transformer) and model.patches
        else 1,
        implementation=Implementation(attention=attention),
        precision=Precision(products=_HALF, activations=_HALF, parameters=_HALF),
    )
    blocks = blocks_of_model(model, plan)
    kernels = FittedKernels(machine.chip)
    parts = [one for one in (blocks.embedding, *blocks.layers, blocks.head) if one is not None]
    known: dict[int, list[tuple[str, float]]] = {}
    ns_by_kind: dict[str, float] = {}
    positions: list[PassPositions] = []
    largest = 0
    for part in parts:
        items = list(_operators(part))
        if id(part) not in known:
            operations = [_as_encoder(operation_of(one.name, one.signature, "")) for one in items]
            costs = kernels.operation_costs(operations).duration_ns
            known[id(part)] = list(zip(map(_kind, items), costs.tolist(), strict=True))
        for kind, ns in known[id(part)]:
            ns_by_kind[kind] = ns_by_kind.get(kind, 0.0) + ns
        seen = _scores_of(items)
        if seen:
            spent = sum(ns for kind, ns in known[id(part)] if kind == _SPATIAL)
            positions.append(PassPositions(len(positions), seen[2], spent / 1e6))
            largest = max(largest, _BYTES * seen[0] * seen[1] * seen[2] ** 2)
    total = sum(ns_by_kind.values())
    ordered = sorted(ns_by_kind.items(), key=lambda one: -one[1])
    return GeneratorWork(
        ns=total,
        shares=tuple(WorkShare(kind, ns / 1e6, ns / total) for kind, ns in ordered),
        positions=tuple(positions),
        num_parameters=sum(one.parameters.dense for one in parts),
        scores_bytes=largest,
    )


def generator_stages(
    model: Model,
    machine: Machine,
    *,
    most_batch: int,
    steps: int,
    is_guided: bool = True,
    attention: str = "flash",
) -> tuple[ServingStage, ...]:
    """The denoising loop on every GPU of a machine, each a copy that works on a batch of its own.

    Args:
        model: as in `generator_work`.
        machine: whose GPUs are copies.
        most_batch: pictures or clips of a batch at most.
        steps: passes of the loop.
        is_guided: each pass works on twice as many, with the text and without.
        attention: as in `generator_work`.

    Raises:
        WorkloadError: as `generator_work`.
    """
    sizes = sizes_up_to(most_batch)
    passes = [
        generator_work(model, machine, batch=size * (1 + is_guided), attention=attention).ns
        for size in sizes
    ]
    times = batch_times(sizes, [steps * ns for ns in passes])
    where = machine.chip.name if machine.num_ranks == 1 else f"{machine.num_ranks} GPUs"
    return (ServingStage("denoising", where, machine.num_ranks, times),)


def _operators(part: Passes) -> Iterator[Operator]:
    """Those of a forward pass; a loss is none of a generator's."""
    for one in part.forward.items:
        if isinstance(one, Operator) and one.label != "loss":
            yield one


def _as_encoder(one: Operation) -> Operation:
    """Attention of all to all in one batch by the kernels of encoders."""
    if one.model != _ATTENTION or one.sizes[4] != one.sizes[5]:
        return one
    kind = "even" if one.sizes[3] % _EVEN == 0 else "uneven"
    return replace(one, model=_ENCODER, kind=kind)


def _kind(one: Operator) -> str:
    found = operator_class(one.name, one.name)
    if found is OperatorClass.ATTENTION or one.name in _OF_SCORES:
        if one.label.startswith(_TEMPORAL):
            return _TEMPORAL
        return _TEXT if one.label.startswith("text") else _SPATIAL
    return _NAMES.get(found, _REST)


def _scores_of(items: Sequence[Operator]) -> tuple[int, int, int] | None:
    """Sequences, heads and positions of a transformer's attention within frames."""
    for one in items:
        if _kind(one) != _SPATIAL:
            continue
        sizes = operation_of(one.name, one.signature, "").sizes
        if operator_class(one.name, one.name) is OperatorClass.ATTENTION:
            return sizes[0], sizes[1], sizes[4]
        return sizes[0], 1, sizes[1]  # heads are part of a plain product's batch
    return None
