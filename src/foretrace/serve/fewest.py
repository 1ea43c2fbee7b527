"""`fewest_gpus`: how many GPUs keep a promise: copies of a model, each over some GPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from foretrace.answer import Answer, Column, Plain, Table, Told, Unit, percent_text
from foretrace.base import MachineError, WorkloadError
from foretrace.serve.deployment import Deployment
from foretrace.serve.requests import Requests
from foretrace.serve.serving import ServiceTarget

_TENSOR = (1, 2, 4, 8)
KEPT_SHARE = 0.99  # of requests, where nothing else is asked for


@dataclass(frozen=True)
class TriedGpus(Plain):
    """Copies of a model, and what requests got."""

    num_gpus: int
    tensor: int  # GPUs of a copy
    copies: int
    kept_share: float  # of requests that got what they were promised
    ttft_ms: float  # 99 of 100 requests wait no longer
    tpot_ms: float
    output_tokens_per_s: float  # of all copies


@dataclass(frozen=True, repr=False, kw_only=True)
class FewestGpus(Answer):
    """The fewest GPUs that keep a promise, and what else was tried."""

    model: str
    gpu: str
    target: ServiceTarget
    rate: float  # requests in a second
    best: TriedGpus
    tried: tuple[TriedGpus, ...]

    @property
    def headline(self) -> str:
        """How many."""
        best = self.best
        return (
            f"{best.num_gpus} x {self.gpu} serve {self.rate:.3g} requests/s of {self.model}: "
            f"{best.copies} x tp{best.tensor}; {percent_text(100 * best.kept_share)} keep "
            f"{self.target.words}"
        )

    def parts(self) -> tuple[Told, ...]:
        """All that was tried, by GPUs."""
        return (
            Table.of(
                "tried",
                self.tried,
                Column("num_gpus", "GPUs"),
                Column("tensor", "tp", Unit.COUNT),
                Column("copies", unit=Unit.COUNT),
                Column("kept_share", "promise kept"),
                Column("ttft_ms", "first token, 99 %", Unit.NUMBER),
                Column("tpot_ms", "a token, 99 %", Unit.NUMBER),
                Column("output_tokens_per_s", "tokens/s", Unit.NUMBER),
                is_strong=lambda one: one == self.best,
            ),
        )


def fewest_gpus(
    deployed: Callable[[int], Deployment],
    requests: Requests,
    target: ServiceTarget,
    *,
    kept_share: float = KEPT_SHARE,
    most_gpus: int = 64,
) -> FewestGpus:
    """The fewest GPUs with which requests get what they are promised.

    Copies take turns, so one of them stands for all. Degrees that cannot be deployed are left out.

    Args:
        deployed: the deployment of one copy, by its degree of tensor parallelism.
        requests: of all copies together.
        target: what they are promised.
        kept_share: of requests that must have it.
        most_gpus: to try.

    Raises:
        WorkloadError: if no number of GPUs does.
    """
    tried: list[TriedGpus] = []
    best: TriedGpus | None = None
    gpu, model, why = "", "", ""
    for tensor in _TENSOR:
        try:
            one = deployed(tensor)
        except (WorkloadError, MachineError) as err:
            why = str(err)
            continue
        gpu, model = one.gpu, one.model.name
        most = min(
            (most_gpus if best is None else best.num_gpus - 1) // one.engine.num_gpus, len(requests)
        )
        for found in _tried(one, requests, target, most=most, kept_share=kept_share):
            tried.append(found)
            if found.kept_share >= kept_share and (best is None or found.num_gpus < best.num_gpus):
                best = found
    if best is None:
        nearest = max(tried, key=lambda each: each.kept_share, default=None)
        told = why or "none was tried"
        if nearest is not None:
            told = (
                f"{nearest.num_gpus} GPUs come nearest, with which "
                f"{percent_text(100 * nearest.kept_share)} of requests have it"
            )
        raise WorkloadError(
            f"no deployment on up to {most_gpus} GPUs keeps {target.words}: {told}; promise less, "
            "or take a faster GPU"
        )
    tried.sort(key=lambda each: (each.num_gpus, each.tensor))
    return FewestGpus(
        model=model, gpu=gpu, target=target, rate=requests.rate, best=best, tried=tuple(tried)
    )


def _tried(
    one: Deployment, requests: Requests, target: ServiceTarget, *, most: int, kept_share: float
) -> Iterator[TriedGpus]:
    """Copies doubled until the promise is kept, then halved between."""
    failing, copies = 0, 1
    while copies <= most:
        found = _served(one, requests, target, copies)
        yield found
        if found.kept_share >= kept_share:
            break
        failing, copies = copies, min(2 * copies, most) if copies < most else most + 1
    while copies <= most and copies - failing > 1:
        middle = (failing + copies) // 2
        found = _served(one, requests, target, middle)
        yield found
        if found.kept_share >= kept_share:
            copies = middle
        else:
            failing = middle


def _served(one: Deployment, requests: Requests, target: ServiceTarget, copies: int) -> TriedGpus:
    found = one.serve(requests.share(0, copies), target=target)
    return TriedGpus(
        num_gpus=copies * one.engine.num_gpus,
        tensor=one.engine.tensor_parallel_size,
        copies=copies,
        kept_share=found.met_share or 0.0,
        ttft_ms=found.ttft_ms.p99,
        tpot_ms=found.tpot_ms.p99,
        output_tokens_per_s=copies * found.rates.output_tokens_per_s,
    )
