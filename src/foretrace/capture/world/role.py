"""`IssuedRole`: what one rank of a world issues in a step, written down by its own process.

Entries stand in issue order. A stream is a number of this rank's own: 0 is where the script
computes, others are those that it makes, or of the groups that it communicates in.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from foretrace.base import number_format

COMPUTE_STREAM = 0
FORWARD, BACKWARD, OPTIMIZER = "forward", "backward", "optimizer"


class DeviceWork(msgspec.Struct, frozen=True, array_like=True):
    """A kernel, copy or fill that an operator started, as its device timed it."""

    name: int  # position in `IssuedRole.texts`
    category: int  # `foretrace.trace.Category`
    duration_ns: int


class IssuedWork(msgspec.Struct, frozen=True, array_like=True, tag="work"):
    """An operator that starts work."""

    name: int  # position in `IssuedRole.texts`
    signature: int
    stream: int
    phase: str
    host_ns: int = 0  # of the host before it, where it was measured
    measured_ns: int = 0  # of the operator, where it ran
    started: tuple[DeviceWork, ...] = ()  # where a GPU timed it


class IssuedExchange(msgspec.Struct, frozen=True, array_like=True, tag="exchange"):
    """A communication."""

    name: str  # as NCCL calls it: "allreduce", "_allgather_base", "send", ...
    group: str
    in_elements: int
    out_elements: int
    dtype: str
    stream: int
    phase: str
    behind: int  # entry that the issuing stream had last; -1
    peer: int = -1  # the other rank of a transfer between two
    host_ns: int = 0

    @property
    def elements(self) -> int:
        """Numbers in the larger of what goes in and comes out."""
        return max(self.in_elements, self.out_elements)

    @property
    def num_bytes(self) -> int:
        """Payload of a rank."""
        known = number_format(self.dtype)
        return self.elements * (known.whole_bytes if known and known.whole_bytes else 1)


class StreamHold(msgspec.Struct, frozen=True, array_like=True, tag="hold"):
    """What a stream does from here on waits for an entry."""

    stream: int
    behind: int


class StepBegin(msgspec.Struct, frozen=True, array_like=True, tag="step"):
    """A step begins; what was issued before the first is preparation."""

    number: int


Entry: TypeAlias = IssuedWork | IssuedExchange | StreamHold | StepBegin


class RoleMemory(msgspec.Struct, frozen=True):
    """Bytes of storages that were alive at once."""

    peak: int = 0
    parameters: int = 0
    gradients: int = 0  # at the peak
    optimizer: int = 0  # states, once they are made
    allocated: int = 0  # most that a GPU's allocator had given out at once; 0: there is none
    reserved: int = 0  # most that it had taken from the GPU

    @property
    def activations(self) -> int:
        """All else at the peak."""
        return max(self.peak - self.parameters - self.gradients - self.optimizer, 0)


class IssuedRole(msgspec.Struct, frozen=True):
    """One rank's issue, its groups, and those that it knows of."""

    rank: int
    world_size: int
    device: str
    entries: list[Entry]
    texts: list[str]
    groups: Mapping[str, tuple[int, ...]]  # of this rank
    other_groups: list[tuple[int, ...]]  # that all ranks were told of, and it is no member of
    memory: RoleMemory
    substitutes: Mapping[str, int] = {}  # sentence -> times: values that the script asked for
    device_name: str = ""  # of a GPU: what PyTorch calls it
    device_bytes: int = 0  # its memory

    @property
    def exchanges(self) -> list[IssuedExchange]:
        """All communication, in order."""
        return [entry for entry in self.entries if isinstance(entry, IssuedExchange)]

    def step(self, number: int) -> tuple[list[IssuedWork], list[IssuedExchange]]:
        """What one step has; of a script without steps, all."""
        begins = [at for at, one in enumerate(self.entries) if isinstance(one, StepBegin)]
        begins.append(len(self.entries))
        first = min(number, len(begins) - 2)
        own = self.entries[begins[first] : begins[first + 1]]
        return (
            [one for one in own if isinstance(one, IssuedWork)],
            [one for one in own if isinstance(one, IssuedExchange)],
        )

    @property
    def num_steps(self) -> int:
        """Steps that began."""
        return sum(isinstance(entry, StepBegin) for entry in self.entries)

    @property
    def whole_steps(self) -> int:
        """Steps that ended: the next began. A script without an optimizer has one."""
        return max(self.num_steps - 1, 1)


def role_path(folder: Path, rank: int) -> Path:
    """Where a rank's own process writes its role."""
    return folder / f"rank{rank}.issued.json"


def read_role(path: Path) -> IssuedRole:
    """A role as its process wrote it."""
    return msgspec.json.decode(path.read_bytes(), type=IssuedRole)


def write_role(role: IssuedRole, path: Path) -> None:
    """Write it whole."""
    path.write_bytes(msgspec.json.encode(role))
