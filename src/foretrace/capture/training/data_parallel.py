"""Gradients averaged over data-parallel ranks by DDP, bucket by bucket.

This file imports PyTorch at its top: only the processes of a training run load it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from torch import Tensor, distributed, nn
from torch.distributed import GradBucket  # type: ignore[attr-defined]  # named in its docs
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from foretrace.base import NS_PER_S
from foretrace.capture.training.settings import TrainingSettings

_MIB = 1 << 20


def replicated(
    stage: nn.Module, settings: TrainingSettings, group: distributed.ProcessGroup | None
) -> nn.Module:
    """The stage with its gradients averaged over the group; itself where it is alone."""
    if group is None:
        return stage
    module = DistributedDataParallel(
        stage,
        process_group=group,
        bucket_cap_mb=settings.bucket_bytes / _MIB,
        gradient_as_bucket_view=True,
    )
    if settings.network_delay_ns or not settings.overlaps_gradients:
        reduction = _Reduction(
            group, settings.network_delay_ns, is_overlapped=settings.overlaps_gradients
        )
        module.register_comm_hook(reduction, _hook)
    return module


def _hook(reduction, bucket):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202  see below
    """The communication hook: DDP takes no annotations for right, but not those that are text."""
    return _reduced(reduction, bucket)


@dataclass
class _Reduction:
    """How buckets are reduced where it is not DDP's own way."""

    group: distributed.ProcessGroup
    delay_ns: int
    is_overlapped: bool
    held: list[tuple[Tensor, Future[Tensor]]] = field(default_factory=list)


def _reduced(reduction: _Reduction, bucket: GradBucket) -> Future[Tensor]:
    """The bucket's average, later.

    Without overlap all buckets are held back until the last one is complete, which is when the
    backward pass is over; then they are reduced in order.
    """
    buffer = bucket.buffer()
    buffer.div_(reduction.group.size())
    if reduction.is_overlapped:
        return _all_reduced(reduction, buffer)
    done: Future[Tensor] = Future()
    reduction.held.append((buffer, done))
    if bucket.is_last():
        for held, future in reduction.held:
            _pass_on(_all_reduced(reduction, held), future)
        reduction.held.clear()
    return done


def _all_reduced(reduction: _Reduction, buffer: Tensor) -> Future[Tensor]:
    work = distributed.all_reduce(buffer, group=reduction.group, async_op=True)
    if work is None:
        raise RuntimeError("this process is not in the group that it reduces over")

    def delayed(done: Future[list[Tensor]]) -> Tensor:
        if reduction.delay_ns:
            # In the thread that ran the transfer, which takes no other meanwhile.
            time.sleep(reduction.delay_ns / NS_PER_S)
        return done.value()[0]

    reduced: Future[Tensor] = work.get_future().then(delayed)
    return reduced


def _pass_on(source: Future[Tensor], target: Future[Tensor]) -> None:
    source.add_done_callback(lambda done: target.set_result(done.value()))


def awaits_gradients(module: nn.Module, output: Tensor) -> None:
    """Let the next backward pass, of this output, reduce the gradients.

    Forward passes run in `no_sync`: in a pipeline that of the last microbatch comes before
    backward passes of earlier ones, which must not be taken for its own. PyTorch's own pipelines
    do the same (torch/distributed/pipelining/stage.py, `backward_maybe_with_nosync`).
    """
    if isinstance(module, DistributedDataParallel):
        module.reducer.prepare_for_backward([output])
