"""What PyTorch says of the running job: rank, groups, device."""

from __future__ import annotations

import os
import platform
import socket
from dataclasses import dataclass
from importlib.util import find_spec

from foretrace.base import MissingExtraError
from foretrace.trace import ProcessGroup

WORLD_VARIABLE = "FORETRACE_WORLD"  # in the environment of processes that stand for a rank


@dataclass(frozen=True)
class JobFacts:
    """This process, as its job knows it."""

    rank: int
    world_size: int
    backend: str | None
    process_groups: tuple[ProcessGroup, ...]
    device_name: str
    torch_version: str
    host_name: str


def stands_for_a_rank() -> bool:
    """Whether this process is a rank of a world that is not there."""
    return WORLD_VARIABLE in os.environ


def require_torch() -> None:
    """Raise if PyTorch cannot be imported.

    Raises:
        MissingExtraError: with the command that installs it.
    """
    if find_spec("torch") is None:
        raise MissingExtraError(
            "cannot record: PyTorch is not installed, and it is what runs the training; "
            'install it with: pip install "foretrace[torch]"'
        )


def rank_and_world_size() -> tuple[int, int]:
    """This process' rank and the number of ranks; (0, 1) where nothing is distributed.

    Raises:
        RuntimeError: if torchrun started this process and it has not joined its job yet: all
            ranks would take themselves for rank 0 and overwrite each other's files.
    """
    import torch.distributed as dist  # torch is optional

    if not dist.is_available():
        return 0, 1
    if dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    if dist.is_torchelastic_launched():
        raise RuntimeError(
            "cannot tell this process' rank: it was started by torchrun but has no process "
            "group yet; call torch.distributed.init_process_group() before foretrace.record()"
        )
    return 0, 1


def job_facts() -> JobFacts:
    """What there is to know of this process, now: groups made later are not in it."""
    import torch  # torch is optional
    import torch.distributed as dist  # torch is optional

    rank, world_size = rank_and_world_size()
    is_distributed = dist.is_available() and dist.is_initialized()
    return JobFacts(
        rank=rank,
        world_size=world_size,
        backend=str(dist.get_backend()) if is_distributed else None,
        process_groups=_process_groups() if is_distributed else (),
        device_name=_device_name(),
        torch_version=str(torch.__version__),
        host_name=socket.gethostname(),
    )


def _process_groups() -> tuple[ProcessGroup, ...]:
    """The groups this rank is in, in order of creation."""
    # The same private call as the profiler's own `distributedInfo` (torch 2.13).
    from torch.distributed.distributed_c10d import (  # torch is optional
        _get_all_pg_configs,
    )

    return tuple(
        ProcessGroup(
            name=str(group["pg_name"]),
            description=str(group["pg_desc"]),
            ranks=tuple(int(rank) for rank in group["ranks"]),
        )
        for group in _get_all_pg_configs()
    )


def _device_name() -> str:
    import torch  # torch is optional

    if torch.cuda.is_available():
        return str(torch.cuda.get_device_name())
    return f"cpu {platform.machine()}"
