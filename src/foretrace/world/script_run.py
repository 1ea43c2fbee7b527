"""`run`: a training script, unmodified, runs as a few ranks of a world and becomes its job."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from foretrace.analyze import windows
from foretrace.answer import (
    Answer,
    Column,
    Plain,
    Sentences,
    Table,
    Told,
    Unit,
    count_text,
    duration_text,
)
from foretrace.base import WorkloadError
from foretrace.capture import CPU, CUDA, FAKE, IssuedRole, ScriptRun, WorldRoles, roles_of
from foretrace.cost import Inflation
from foretrace.estimate import simulated_step, software_costs
from foretrace.exchange import write_kineto
from foretrace.graph import Timeline
from foretrace.machine import Machine, chip_named, with_hosts
from foretrace.simulate import simulate
from foretrace.software import TrainingSoftware
from foretrace.workload import launch_named
from foretrace.world.graph import graph_of_roles

_EAGER = "eager"


@dataclass(frozen=True)
class RoleAccount(Plain):
    """What one rank of a role does in a step, and what it holds."""

    rank: int
    num_ranks: int  # that do the same
    operators: int
    collectives: int
    collective_bytes: int
    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    activation_bytes: int
    peak_bytes: int  # by the allocator of a GPU where there is one, else of storages
    storage_bytes: int  # alive at once


@dataclass(frozen=True, repr=False)
class WorldRun(Answer):
    """The job that was written, and its roles."""

    json_names: ClassVar = {"timeline": ""}

    script: str
    world_size: int
    device: str
    machine: str | None
    step_ns: int  # the last step, simulated
    memory_bytes: int | None  # of the machine's chip, or of the GPU that it ran on
    roles: tuple[RoleAccount, ...]
    paths: tuple[Path, ...]
    notes: tuple[str, ...]
    timeline: Timeline

    @property
    def headline(self) -> str:
        """What ran, and how long a step takes."""
        ran = count_text(len(self.roles), "role")
        return (
            f"{self.script} on {self.world_size:,} ranks: {ran} ran, a step takes "
            f"{duration_text(self.step_ns)}"
        )

    @property
    def warning(self) -> str:
        """Whether memory does not fit."""
        most = max(self.roles, key=lambda one: one.peak_bytes)
        if self.memory_bytes is None or most.peak_bytes <= self.memory_bytes:
            return ""
        return (
            f"rank {most.rank} needs {most.peak_bytes / 2**30:.1f} GiB, and a chip has "
            f"{self.memory_bytes / 2**30:.1f}"
        )

    def parts(self) -> tuple[Told, ...]:
        """WorldRoles, and what to know of them."""
        roles = Table.of(
            "roles",
            self.roles,
            Column("rank", unit=Unit.RANK),
            Column("num_ranks", "ranks alike"),
            Column("operators", "operators"),
            Column("collectives", "collectives"),
            Column("collective_bytes", "exchanged", unit=Unit.BYTES),
            Column("parameter_bytes", "parameters", unit=Unit.BYTES),
            Column("gradient_bytes", "gradients", unit=Unit.BYTES),
            Column("optimizer_bytes", "optimizer", unit=Unit.BYTES),
            Column("activation_bytes", "activations", unit=Unit.BYTES),
            Column("peak_bytes", "peak", unit=Unit.BYTES),
        )
        notes = (Sentences.of("what to know", self.notes),) if self.notes else ()
        return (roles, *notes)


def run(
    script: str | Path,
    arguments: Sequence[str] = (),
    *,
    world: int,
    out: str | Path,
    device: str = FAKE,
    machine: Machine | None = None,
    software: TrainingSoftware | None = None,
    ranks: Iterable[int] | None = None,
    steps: int = 2,
    warmup: int = 1,
    progress: Callable[[int], None] | None = None,
) -> WorldRun:
    """Run a training script as a few ranks of a world that is not there, and write its job.

    Each rank is a process of its own, alone, with torchrun's environment variables and PyTorch's
    fake process group; an optimizer's step ends a step. The traces in `out` load as any others.

    Args:
        script: unmodified.
        arguments: its own.
        world: ranks.
        out: folder for the traces, one for each role.
        device: "fake", without memory or a device; or "cpu" or "cuda", whose times are measured.
        machine: where it is to run: says how long operators and collectives take.
        software: what runs it: says how long kernels take within a step.
        ranks: to run, instead of one of every role.
        steps: to keep.
        warmup: steps before them.
        progress: called with each rank as it begins.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        ModelError: if the script fails, with its traceback and the rank.
        WorkloadError: if an argument makes no sense.
        GraphError: if the script makes too few steps.
        MachineError: if the machine is too small, or cannot be costed.
    """
    if device == FAKE and machine is None:
        raise WorkloadError(
            f"nothing is measured on the device {FAKE!r}, so a machine has to say how long work "
            f"takes: name one (`foretrace machine list`), or run with the device {CPU!r} or "
            f"{CUDA!r}"
        )
    asked = ScriptRun(
        Path(script), tuple(arguments), world, device=device, steps=steps, warmup=warmup
    )
    if machine is not None:
        chip = machine.chip
        asked = replace(asked, gpu=chip.title, gpu_bytes=chip.memory_bytes)
    found = roles_of(asked, ranks, progress=progress)
    timeline, grown = _simulated(found, machine, software, asked)
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    paths = write_kineto(folder / "job.json.gz", timeline)
    return WorldRun(
        script=str(script),
        world_size=world,
        device=device,
        machine=None if grown is None else grown.name,
        step_ns=int(windows(timeline).duration_ns[-1]),
        memory_bytes=_chip_bytes(found) if grown is None else grown.chip.memory_bytes,
        roles=tuple(
            _account(role, found.num_ranks[rank], warmup) for rank, role in found.by_rank.items()
        ),
        paths=paths,
        notes=_notes(found, asked, machine),
        timeline=timeline,
    )


def _simulated(
    found: WorldRoles, machine: Machine | None, software: TrainingSoftware | None, asked: ScriptRun
) -> tuple[Timeline, Machine | None]:
    graph = graph_of_roles(
        list(found.by_rank.values()),
        launch=launch_named(_EAGER),
        on_device=machine is not None or asked.device == CUDA,
        warmup=asked.warmup,
        is_timed=_is_timed(found, machine),
    )
    if machine is None:
        return simulate(graph, graph.measured_ns), None
    machine = with_hosts(machine, asked.world_size)
    costs = software_costs(machine, software, num_ranks=asked.world_size)
    done = simulated_step(graph, costs, Inflation())
    return done.timeline, machine


def _gpu(found: WorldRoles) -> IssuedRole:
    """Any of the roles: all ran on one device."""
    return next(iter(found.by_rank.values()))


def _is_timed(found: WorldRoles, machine: Machine | None) -> bool:
    """Whether kernels keep the times of the GPU that they ran on: no other is asked for."""
    name = _gpu(found).device_name
    if not name or machine is None:
        return bool(name)
    chip = chip_named(name)
    return chip is not None and chip.name == machine.chip.name


def _chip_bytes(found: WorldRoles) -> int | None:
    return _gpu(found).device_bytes or None


def _account(role: IssuedRole, num_ranks: int, warmup: int) -> RoleAccount:
    operators, exchanges = role.step(warmup)
    memory = role.memory
    return RoleAccount(
        rank=role.rank,
        num_ranks=num_ranks,
        operators=len(operators),
        collectives=len(exchanges),
        collective_bytes=sum(one.num_bytes for one in exchanges),
        parameter_bytes=memory.parameters,
        gradient_bytes=memory.gradients,
        optimizer_bytes=memory.optimizer,
        activation_bytes=memory.activations,
        peak_bytes=memory.allocated or memory.peak,
        storage_bytes=memory.peak,
    )


def _notes(found: WorldRoles, asked: ScriptRun, machine: Machine | None) -> tuple[str, ...]:
    said = [
        f"rank {rank}: {sentence}, {count_text(times, 'time')}"
        for rank, role in found.by_rank.items()
        for sentence, times in role.substitutes.items()
    ]
    said += [
        f"rank {rank}: the GPU's allocator gave out {memory.allocated / 2**30:.2f} GiB at once and "
        f"took {memory.reserved / 2**30:.2f}; tensors were {memory.peak / 2**30:.2f} of it"
        for rank, memory in ((rank, role.memory) for rank, role in found.by_rank.items())
        if memory.allocated
    ]
    if machine is None:
        said.append("no machine is named, so collectives take no time")
    elif (name := _gpu(found).device_name) and not _is_timed(found, machine):
        said.append(f"kernels ran on {name}, and take what cost models say of {machine.chip.title}")
    spoken = sum(found.num_ranks.values())
    if spoken < asked.world_size:
        said.append(f"{asked.world_size - spoken:,} ranks are not known to be like any that ran")
    elif found.is_checked:
        said.append(f"the last rank, {asked.world_size - 1:,}, ran too, and did as those like it")
    return tuple(said)
