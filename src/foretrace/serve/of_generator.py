"""`generator_work`: a generator of pictures or clips: what one pass of its network takes, and why.

A denoising loop passes a network over the latents again and again, each time twice as many where
what is asked for is held against nothing (classifier-free guidance). Attention is an encoder's:
all positions see all, within a frame, to the text, or over the frames of a clip. A transformer that
makes a picture token by token passes once for each, and its attention is a decoder's.

Source:
    Golden et al., "Generative AI Beyond LLMs: System Implications of Multi-Modal Generation",
    arXiv:2312.14385, for what is told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from foretrace.answer import Plain
from foretrace.base import NS_PER_MS, WorkloadError
from foretrace.cost import FittedKernels, Operation, operation_of
from foretrace.machine import Machine
from foretrace.operators import OperatorClass, operator_class
from foretrace.serve.stages import ServingStage, batch_times, sizes_up_to
from foretrace.workload import (
    Diffusion,
    DiT,
    Implementation,
    Model,
    Operator,
    Passes,
    Plan,
    Precision,
    Scores,
    Transformer,
    blocks_of_model,
    blocks_of_pixels,
    blocks_of_text,
)

_HALF, _BYTES = "fp16", 2
_ENCODER, _ATTENTION, _DECODE = "attention encoder", "attention", "decode"
_OF_DECODES = "bf16"  # in which they were measured
_MOMENTS = 8  # of a picture whose tokens come one after the other
_EVEN = 16  # sizes of heads that this divides are worked on by other kernels than others
_ATTENTIONS = ("flash", "plain")
_MOST_OF_ENCODERS = 80  # numbers of a head in tables of encoders' attention
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
    """What attention sees in one transformer of the network, or at one moment of the loop."""

    at: int
    positions: int
    ms: float  # of its attention


@dataclass(frozen=True)
class PictureEnd(Plain):
    """What is done once for a picture: its text is read, or its latents become pixels."""

    part: str
    parameters: int
    ms: float  # of one picture or clip


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
    """One forward pass; where pictures are made token by token the mean of all their passes.

    Args:
        model: a diffusion network, a transformer that sees patches, or one that makes pictures.
        machine: whose chip it runs on.
        batch: pictures or clips that pass at once.
        attention: "flash", or "plain": scores are written to memory.

    Raises:
        WorkloadError: if the model makes no pictures, or attention is neither.
    """
    if attention not in _ATTENTIONS:
        raise WorkloadError(
            f"attention of a generator is {attention!r}: expected {' or '.join(_ATTENTIONS)}"
        )
    makes_tokens = isinstance(model, Transformer) and model.picture_tokens > 0
    patches = model.patches if isinstance(model, Transformer) else None
    if not isinstance(model, Diffusion | Transformer):
        raise WorkloadError(
            f"model {model.name!r} is a {model.kind}, of which neither tokens nor pictures can be "
            "timed: describe its shape in a file of its own, or take another"
        )
    if not isinstance(model, Diffusion) and not makes_tokens and patches is None:
        raise WorkloadError(
            f"{model.name} makes tokens one after the other, not pictures in a loop: serve it with "
            "an engine's settings (--engine)"
        )
    plan = _plan(model, batch, attention)
    blocks = blocks_of_model(model, plan)
    kernels = FittedKernels(machine.chip)
    parts = [one for one in (blocks.embedding, *blocks.layers, blocks.head) if one is not None]
    known: dict[int, list[_Costed]] = {}
    costed: list[list[_Costed]] = []
    for part in parts:
        if id(part) not in known:
            items = list(_operators(part))
            if isinstance(model, Transformer) and makes_tokens:
                items = [one for one in items if _kind(one) != _SPATIAL]
            known[id(part)] = _costed(kernels, items)
        costed.append(known[id(part)])
    if isinstance(model, Transformer) and makes_tokens:
        costed += _attention_of_tokens(model, kernels, plan)
    return _work(costed, sum(one.parameters.dense for one in parts))


def _plan(model: Model, batch: int, attention: str) -> Plan:
    patches = model.patches if isinstance(model, Transformer) else None
    return Plan(
        micro_batch=batch,
        global_batch=batch,
        sequence=1 if patches is None else patches.num_tokens,
        implementation=Implementation(attention=attention),
        precision=Precision(products=_HALF, activations=_HALF, parameters=_HALF),
    )


@dataclass(frozen=True)
class _Costed:
    """An operator of a pass."""

    kind: str
    ns: float
    seen: tuple[int, int, int, int] | None  # sequences, heads, queries, keys within a frame


def _costed(
    kernels: FittedKernels, items: Sequence[Operator], *, times: float = 1.0
) -> list[_Costed]:
    operations = [_as_served(operation_of(one.name, one.signature, "")) for one in items]
    costs = kernels.operation_costs(operations).duration_ns.tolist()
    return [
        _Costed(_kind(one), times * ns, _scores_of(one))
        for one, ns in zip(items, costs, strict=True)
    ]


def _attention_of_tokens(
    model: Transformer, kernels: FittedKernels, plan: Plan
) -> list[list[_Costed]]:
    """Attention of one new token in every layer, at some moments of a picture."""
    heads, size = model.attention.num_heads, model.attention.head_size
    is_flash = plan.implementation.attention == "flash"
    found = []
    for at in range(1, _MOMENTS + 1):
        keys = max(1, model.picture_tokens * at // _MOMENTS)
        scores = Scores(_SPATIAL, plan.micro_batch, heads, size, (1, keys), _HALF, is_flash)
        costed = _costed(kernels, scores.operators(), times=model.num_layers / _MOMENTS)
        found.append(costed)
    return found


def _work(parts: Sequence[Sequence[_Costed]], num_parameters: int) -> GeneratorWork:
    ns_by_kind: dict[str, float] = {}
    positions: list[PassPositions] = []
    largest = 0
    for part in parts:
        for one in part:
            ns_by_kind[one.kind] = ns_by_kind.get(one.kind, 0.0) + one.ns
        seen = next((one.seen for one in part if one.seen is not None), None)
        if seen is not None:
            spent = sum(one.ns for one in part if one.kind == _SPATIAL)
            positions.append(PassPositions(len(positions), seen[3], spent / 1e6))
            largest = max(largest, _BYTES * seen[0] * seen[1] * seen[2] * seen[3])
    total = sum(ns_by_kind.values())
    ordered = sorted(ns_by_kind.items(), key=lambda one: -one[1])
    return GeneratorWork(
        ns=total,
        shares=tuple(WorkShare(kind, ns / 1e6, ns / total) for kind, ns in ordered),
        positions=tuple(positions),
        num_parameters=num_parameters,
        scores_bytes=largest,
    )


def generator_ends(
    model: Model,
    machine: Machine,
    *,
    batch: int = 1,
    is_guided: bool = True,
    attention: str = "flash",
) -> tuple[PictureEnd, ...]:
    """What comes before the loop and behind it; nothing of models whose files do not say.

    Args:
        model: as in `generator_work`.
        machine: so too.
        batch: pictures or clips at once.
        is_guided: two texts are read for each, of which one is empty.
        attention: so too.
    """
    if not isinstance(model, Diffusion):
        return ()
    kernels = FittedKernels(machine.chip)
    texts = _plan(model, batch * (1 + _has_both(model, is_guided=is_guided)), attention)
    parts = (
        *blocks_of_text(model, texts),
        *blocks_of_pixels(model, _plan(model, batch, attention)),
    )
    return tuple(
        PictureEnd(
            name,
            passes.parameters.dense,
            sum(one.ns for one in _costed(kernels, list(_operators(passes)))) / batch / NS_PER_MS,
        )
        for name, passes in parts
    )


def _has_both(model: Model, *, is_guided: bool) -> bool:
    """Whether each pass works with the text and without: not where the network is told."""
    return is_guided and not (isinstance(model, DiT) and model.has_guidance)


def generator_stages(
    model: Model,
    machine: Machine,
    *,
    most_batch: int,
    steps: int,
    is_guided: bool = True,
    attention: str = "flash",
) -> tuple[ServingStage, ...]:
    """The text, the loop and the pixels on every GPU of a machine, each a copy with its own batch.

    Args:
        model: as in `generator_work`.
        machine: whose GPUs are copies.
        most_batch: pictures or clips of a batch at most.
        steps: passes of a denoising loop; a picture's tokens say how many others take.
        is_guided: each pass works on twice as many, with the text and without, unless the
            network is told how closely to keep to the text.
        attention: as in `generator_work`.

    Raises:
        WorkloadError: as `generator_work`.
    """
    is_guided = _has_both(model, is_guided=is_guided)
    is_denoised = not isinstance(model, Transformer) or not model.picture_tokens
    if isinstance(model, Transformer) and model.picture_tokens:
        steps = model.picture_tokens
    sizes = sizes_up_to(most_batch)
    passes = [
        generator_work(model, machine, batch=size * (1 + is_guided), attention=attention).ns
        for size in sizes
    ]
    ends = [
        sum(
            one.ms
            for one in generator_ends(
                model, machine, batch=size, is_guided=is_guided, attention=attention
            )
        )
        * size
        * NS_PER_MS
        for size in sizes
    ]
    loop = "denoising" if is_denoised else "tokens"
    name = f"text, {loop}, pixels" if any(ends) else loop
    times = batch_times(sizes, [steps * ns + end for ns, end in zip(passes, ends, strict=True)])
    where = machine.chip.name if machine.num_ranks == 1 else f"{machine.num_ranks} GPUs"
    return (ServingStage(name, where, machine.num_ranks, times),)


def _operators(part: Passes) -> Iterator[Operator]:
    """Those of a forward pass; a loss is none of a generator's."""
    for one in part.forward.items:
        if isinstance(one, Operator) and one.label != "loss":
            yield one


def _as_served(one: Operation) -> Operation:
    """Attention of all to all in one batch by the kernels of encoders, of one query by others.

    Heads larger than those that encoders were measured with are FlashAttention's.
    """
    if one.model != _ATTENTION:
        return one
    if one.sizes[4] == 1:
        batch, heads, shared, size, _, keys = one.sizes[:6]
        sizes = (batch, heads, shared, size, size, 2 * size, keys, keys, 0)
        return replace(one, model=_DECODE, dtype=_OF_DECODES, sizes=sizes)
    if one.sizes[4] != one.sizes[5] or one.sizes[3] > _MOST_OF_ENCODERS:
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


def _scores_of(one: Operator) -> tuple[int, int, int, int] | None:
    """Sequences, heads, queries and keys of attention within frames."""
    if _kind(one) != _SPATIAL:
        return None
    sizes = operation_of(one.name, one.signature, "").sizes
    if operator_class(one.name, one.name) is OperatorClass.ATTENTION:
        return sizes[0], sizes[1], sizes[4], sizes[5]
    if operator_class(one.name, one.name) is OperatorClass.GEMM:
        return sizes[0], 1, sizes[1], sizes[2]  # heads are part of a plain product's batch
    return None
