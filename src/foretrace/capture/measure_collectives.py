"""Collectives measured between processes of this host: NCCL on its GPUs, gloo on its CPU.

Every rank runs the same calls; sizes double until the time is over, which the first rank decides
for all. The first rank's median counts, as sizes and bus bandwidth do in nccl-tests.
"""

from __future__ import annotations

import multiprocessing
import socket
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from foretrace.base import FORMAT_BY_NAME, CollectiveKind, ModelError
from foretrace.capture.measure import median, times_ns
from foretrace.capture.workloads import Device, Row

if TYPE_CHECKING:
    import torch

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, BROADCAST, SEND_RECV = COLLECTIVES = tuple(
    kind.in_tables
    for kind in (
        CollectiveKind.ALL_REDUCE,
        CollectiveKind.ALL_GATHER,
        CollectiveKind.REDUCE_SCATTER,
        CollectiveKind.ALL_TO_ALL,
        CollectiveKind.BROADCAST,
        CollectiveKind.SEND_RECV,
    )
)
_GLOO_LACKS = (REDUCE_SCATTER, ALL_TO_ALL)
_SMALLEST, _LARGEST = 10, 29  # powers of two, bytes
_BUDGET_NS = 20_000_000  # of one size


def measured_collectives(
    device: Device,
    num_ranks: int,
    *,
    seconds: float = 60.0,
    collectives: Sequence[str] = COLLECTIVES,
) -> list[Row]:
    """Rows with the columns of a table of collectives.

    A `send_recv` is one message from one rank to the next: half of one there and one back, while
    all pairs do the same. `cores` is the processor time of the first rank's process over the time
    that passed: what a transfer takes from whatever computes beside it.

    Args:
        device: one of each rank's; GPUs are numbered from 0.
        num_ranks: processes to start on this host.
        seconds: for all of it, the start of the processes not counted.
        collectives: of `COLLECTIVES`; what the device's library lacks is left out.

    Raises:
        ModelError: if there are fewer than two ranks, or fewer GPUs than ranks.
    """
    import torch  # on demand: an optional dependency

    if num_ranks < 2 or (device.is_gpu and torch.cuda.device_count() < num_ranks):  # noqa: PLR2004
        raise ModelError(
            f"{num_ranks} ranks cannot be measured on {device.name!r}: a collective takes 2 or "
            "more, and each its own GPU where GPUs are measured."
        )
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "rows.json"
        group = _Group(
            num_ranks, device, seconds, tuple(collectives), port=_free_port(), result=result
        )
        processes = [context.Process(target=_rank, args=(at, group)) for at in range(num_ranks)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        failed = [at for at, process in enumerate(processes) if process.exitcode]
        if failed:
            raise ModelError(
                f"{len(failed)} of {num_ranks} ranks failed while they measured (the first: rank "
                f"{failed[0]}): what they printed says why."
            )
        return msgspec.json.decode(result.read_bytes(), type=list[Row])


@dataclass(frozen=True)
class _Group:
    """What every rank must know."""

    num_ranks: int
    device: Device
    seconds: float
    collectives: tuple[str, ...]
    port: int
    result: Path  # the first rank writes its rows there


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _rank(rank: int, group: _Group) -> None:
    import torch  # on demand, as above
    from torch import distributed  # on demand, as above

    # PyTorch 2.13 renames what earlier releases know by the old name only.
    warnings.simplefilter("ignore", FutureWarning)
    device = group.device
    if device.is_gpu:
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    distributed.init_process_group(
        "nccl" if device.is_gpu else "gloo",
        init_method=f"tcp://127.0.0.1:{group.port}",
        rank=rank,
        world_size=group.num_ranks,
    )
    found = _measured(rank, group)
    if rank == 0:
        group.result.write_bytes(msgspec.json.encode(found))
    distributed.barrier()
    distributed.destroy_process_group()


def _measured(rank: int, group: _Group) -> list[Row]:
    num_ranks, device = group.num_ranks, group.device
    found: list[Row] = []
    until = time.perf_counter() + group.seconds
    for power in range(_SMALLEST, _LARGEST + 1):
        for collective in group.collectives:
            if not device.is_gpu and collective in _GLOO_LACKS:
                continue
            for dtype in device.dtypes:
                if not _all_go_on(time.perf_counter() < until, device):
                    return found
                row = _row(collective, dtype, 1 << power, num_ranks=num_ranks, device=device)
                if rank == 0:
                    found.append(row)
    return found


def _all_go_on(is_time_left: bool, device: Device) -> bool:  # noqa: FBT001 - the only argument
    """The first rank's answer, on every rank."""
    import torch  # on demand, as above
    from torch import distributed  # on demand, as above

    flag = torch.tensor([int(is_time_left)], device=device.kind)
    distributed.broadcast(flag, 0)
    return bool(flag.item())


def _row(collective: str, dtype: str, num_bytes: int, *, num_ranks: int, device: Device) -> Row:
    import torch  # on demand, as above

    run = _call(collective, dtype, num_bytes, num_ranks=num_ranks, device=device)
    # Ranks must agree on the number of runs, so it does not follow from a rank's own clock.
    num_runs = max(3, min(50, int(_BUDGET_NS // (20_000 + num_bytes))))
    begun_ns, worked_ns = time.perf_counter_ns(), time.process_time_ns()
    taken_ns = times_ns(run, device, num_runs=num_runs)
    cores = (time.process_time_ns() - worked_ns) / (time.perf_counter_ns() - begun_ns)
    if collective == SEND_RECV:
        taken_ns = [there_and_back_ns / 2 for there_and_back_ns in taken_ns]
    time_ns, ordered = median(taken_ns), sorted(taken_ns)
    share = {ALL_REDUCE: 2 * (num_ranks - 1) / num_ranks, BROADCAST: 1.0, SEND_RECV: 1.0}
    busy = share.get(collective, (num_ranks - 1) / num_ranks)
    return {
        "system": f"{device.name}, one host",
        "gpu": device.name,
        "num_gpus": num_ranks,
        "num_nodes": 1,
        "collective": collective,
        "message_bytes": num_bytes,
        "dtype": dtype,
        "time_ns": time_ns,
        "time_ns_min": min(taken_ns),
        "time_ns_max": max(taken_ns),
        "time_ns_p10": ordered[len(ordered) // 10],
        "time_ns_p90": ordered[len(ordered) * 9 // 10],
        "n_meas": len(taken_ns),
        "cores": cores,
        "algbw_gbs": num_bytes / time_ns,
        "busbw_gbs": num_bytes * busy / time_ns,
        "software": f"torch {torch.__version__} {'NCCL' if device.is_gpu else 'gloo'}",
        "source": "foretrace measure",
        "notes": "",
    }


def _call(
    collective: str, dtype: str, num_bytes: int, *, num_ranks: int, device: Device
) -> Callable[[], object]:
    import torch  # on demand, as above
    from torch import distributed  # on demand, as above

    kind: torch.dtype = getattr(torch, FORMAT_BY_NAME[dtype].torch)
    count = num_bytes // kind.itemsize // num_ranks * num_ranks
    whole = torch.zeros(count, dtype=kind, device=device.kind)
    parts: tuple[torch.Tensor, ...] = whole.chunk(num_ranks)
    own = parts[0].clone()
    calls: dict[str, Callable[[], object]] = {
        ALL_REDUCE: lambda: distributed.all_reduce(whole),
        ALL_GATHER: lambda: distributed.all_gather_into_tensor(whole, own),
        REDUCE_SCATTER: lambda: distributed.reduce_scatter_tensor(own, whole),
        ALL_TO_ALL: lambda: distributed.all_to_all_single(torch.empty_like(whole), whole),
        BROADCAST: lambda: distributed.broadcast(whole, 0),
        SEND_RECV: lambda: _there_and_back(whole, num_ranks),
    }
    return calls[collective]


def _there_and_back(message: torch.Tensor, num_ranks: int) -> None:
    """Every second rank sends to the next, which sends it back; an odd last one has no pair."""
    from torch import distributed  # on demand, as above

    rank = distributed.get_rank()
    is_first, partner = rank % 2 == 0, rank ^ 1
    if partner >= num_ranks:
        return
    for is_sending in (is_first, not is_first):
        if is_sending:
            distributed.send(message, partner)
        else:
            distributed.recv(message, partner)
