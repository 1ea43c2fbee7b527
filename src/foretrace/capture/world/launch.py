"""`roles_of`: a script runs once for every role of its world, each time as one rank, alone."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from foretrace.base import GraphError, ModelError, WorkloadError
from foretrace.capture.job import WORLD_VARIABLE, require_torch
from foretrace.capture.world.role import IssuedExchange, IssuedRole, StepBegin, read_role, role_path

FAKE, CPU, CUDA = DEVICES = ("fake", "cpu", "cuda")
_RANKS_PER_HOST = 8  # what LOCAL_RANK counts up to, as torchrun would on hosts of eight
_POLL_SECONDS = 0.01
_LAST_CHARACTERS = 20_000  # of what a failed script said


@dataclass(frozen=True)
class ScriptRun:
    """A script, and how it is run."""

    script: Path
    arguments: tuple[str, ...]
    world_size: int
    device: str = FAKE
    steps: int = 2
    warmup: int = 1  # steps before them, which prepare
    ranks_per_host: int = _RANKS_PER_HOST
    timeout_seconds: float = 600.0
    gpu: str = ""  # what scripts are told that they run on, where there is none
    gpu_bytes: int = 0  # its memory


@dataclass(frozen=True)
class WorldRoles:
    """One rank of every role, and how many ranks do the same."""

    by_rank: dict[int, IssuedRole]
    num_ranks: dict[int, int]  # rank that was run -> ranks of its role
    is_checked: bool  # whether the last rank was run too, and did as the rank that it copies


def roles_of(
    run: ScriptRun,
    ranks: Iterable[int] | None = None,
    *,
    progress: Callable[[int], None] | None = None,
) -> WorldRoles:
    """Run a script as ranks that all others are like.

    Ranks that meet in collectives run one program; who sends to them, or receives, runs another.
    From rank 0 on, everybody that is sent to is run; then the last rank, which shows whether it
    is like the one that it should be like; then ranks that none of these speaks for.

    Args:
        run: the script.
        ranks: to run instead of those that are found.
        progress: called with each rank as it begins.

    Raises:
        MissingExtraError: if PyTorch is not installed.
        ModelError: if the script fails; with what it said.
        GraphError: if it makes too few steps; with what it said.
        WorkloadError: if the world, the device or a rank makes no sense.
    """
    require_torch()
    _check(run)
    with (
        tempfile.TemporaryDirectory(prefix="foretrace-") as folder,
        closing(_Processes(run, Path(folder), progress)) as processes,
    ):
        found: dict[int, IssuedRole] = {}

        def add(rank: int) -> None:
            found[rank] = processes.role(rank)

        if ranks is not None:
            for rank in _stated(ranks, run.world_size):
                add(rank)
            return _grouped(found, run.world_size, is_checked=False)
        last = run.world_size - 1
        processes.start(last)  # beside the first: both are wanted in any case
        _follow_peers(0, found, add)
        is_checked = False
        if last not in found:
            like = _speaker(found, last)
            add(last)
            is_checked = like is not None and (
                _program(found[like], run.warmup) == _program(found[last], run.warmup)
            )
            if is_checked:
                del found[last]
            else:
                _follow_peers(last, found, add)
        while (more := _unspoken(found, run.world_size)) is not None:
            _follow_peers(more, found, add)
        return _grouped(found, run.world_size, is_checked=is_checked)


def _follow_peers(first: int, found: dict[int, IssuedRole], add: Callable[[int], None]) -> None:
    """Run a rank, and all with whom what is run exchanges transfers."""
    waiting = [first]
    while waiting:
        rank = waiting.pop(0)
        if rank in found:
            continue
        add(rank)
        waiting += sorted({one.peer for one in found[rank].exchanges if one.peer >= 0})


def _program(role: IssuedRole, warmup: int) -> list[tuple[object, ...]]:
    """What a role exchanges in the steps that are kept, without the names of its groups."""
    begins = [at for at, one in enumerate(role.entries) if isinstance(one, StepBegin)]
    first = begins[min(warmup, len(begins) - 1)]
    return [
        (one.name, len(role.groups[one.group]), one.elements, one.dtype, one.phase)
        for one in role.entries[first:]
        if isinstance(one, IssuedExchange)
    ]


def _spoken_for(found: dict[int, IssuedRole]) -> dict[int, int]:
    """Rank -> the rank that was run and does the same.

    From a rank that was run over groups like its own: those of equal distances between members,
    in which it exchanges no transfers, and which join it with no other rank that was run. One that
    exchanges nothing speaks for all that nobody else does: nothing tells them apart.
    """
    speaker = {rank: rank for rank in found}
    for own, role in found.items():
        apart = {_shape(role.groups[one.group]) for one in role.exchanges if one.peer >= 0}
        shapes = {_shape(group) for group in role.groups.values()} - apart
        of_member: dict[int, list[int]] = {}
        alike: list[tuple[int, ...]] = []
        for group in (*role.groups.values(), *role.other_groups):
            others = any(member in found and member != own for member in group)
            if len(group) > 1 and not others and _shape(group) in shapes:
                for member in group:
                    of_member.setdefault(member, []).append(len(alike))
                alike.append(group)
        waiting, joined = [own], set[int]()
        while waiting:
            # Each group once: a world has as many ranks as its largest has members.
            for at in of_member.pop(waiting.pop(), ()):
                if at not in joined:
                    joined.add(at)
                    more = [member for member in alike[at] if member not in speaker]
                    speaker.update(dict.fromkeys(more, own))
                    waiting += more
    silent = next((own for own, role in found.items() if not role.exchanges), None)
    if silent is not None:
        speaker = dict.fromkeys(range(found[silent].world_size), silent) | speaker
    return speaker


def _shape(group: Sequence[int]) -> tuple[int, ...]:
    """Distances of a group's members, which are equal where it is a copy."""
    ordered = sorted(group)
    return tuple(member - ordered[0] for member in ordered)


def _speaker(found: dict[int, IssuedRole], rank: int) -> int | None:
    return _spoken_for(found).get(rank)


def _unspoken(found: dict[int, IssuedRole], world_size: int) -> int | None:
    """The first rank of which nothing is known, if groups of the world do not join it."""
    spoken = _spoken_for(found)
    return next((rank for rank in range(world_size) if rank not in spoken), None)


def _grouped(found: dict[int, IssuedRole], world_size: int, *, is_checked: bool) -> WorldRoles:
    spoken = _spoken_for(found)
    count = dict.fromkeys(found, 0)
    for rank in range(world_size):
        if rank in spoken:
            count[spoken[rank]] += 1
    return WorldRoles(dict(sorted(found.items())), count, is_checked)


@dataclass(frozen=True)
class _Started:
    """A rank's process."""

    process: subprocess.Popen[bytes]
    until: float
    said: Path


class _Processes:
    """Ranks' processes: those that are asked for, and those that these wait for."""

    def __init__(
        self, run: ScriptRun, folder: Path, progress: Callable[[int], None] | None
    ) -> None:
        self._run, self._folder, self._progress = run, folder, progress
        self._started: dict[int, _Started] = {}

    def role(self, rank: int) -> IssuedRole:
        """What a rank issued, once it has."""
        self.start(rank)
        while not self._has_ended(rank):
            for wanted in self._folder.glob("*.wanted"):
                self.start(int(wanted.stem))
                self._has_ended(int(wanted.stem))
            time.sleep(_POLL_SECONDS)
        role = read_role(role_path(self._folder, rank))
        self._check_steps(role)
        return role

    def _check_steps(self, role: IssuedRole) -> None:
        """Nobody else is run where one rank shows that the script makes too few steps.

        Raises:
            GraphError: if none is left behind those that prepare.
        """
        warmup, num_steps = self._run.warmup, role.whole_steps
        if num_steps > warmup:
            return
        said = self._said(role.rank)
        raise GraphError(
            f"the script ended after {num_steps} step(s), and {warmup} of them prepare: let it "
            f"make more optimizer steps, or state fewer that prepare; it said:\n{said}"
        )

    def _said(self, rank: int) -> str:
        said = self._started[rank].said.read_text("utf-8", "replace").strip()
        return said[-_LAST_CHARACTERS:] or "nothing"

    def close(self) -> None:
        """Nobody asks for more."""
        for one in self._started.values():
            if one.process.poll() is None:
                one.process.kill()
                one.process.wait()

    def start(self, rank: int) -> None:
        """Let a rank run, unless it does already."""
        if rank in self._started:
            return
        if self._progress is not None:
            self._progress(rank)
        run = self._run
        # On a GPU every rank has its host for itself, whose only GPU is the first.
        local = 0 if run.device == CUDA else rank % run.ranks_per_host
        environment = os.environ | {
            "RANK": str(rank), "WORLD_SIZE": str(run.world_size), "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(min(run.ranks_per_host, run.world_size)),
            "GROUP_RANK": str(rank // run.ranks_per_host), "MASTER_ADDR": "localhost",
            "MASTER_PORT": "29500", WORLD_VARIABLE: str(run.world_size),
        }  # fmt: skip
        command = [
            sys.executable, "-m", "foretrace.capture.world", str(self._folder), run.device,
            str(run.warmup), str(run.warmup + run.steps), run.gpu, str(run.gpu_bytes),
            str(run.script), *run.arguments,
        ]  # fmt: skip
        said = self._folder / f"{rank}.said"
        with said.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603  the user's own script
                command, env=environment, stdout=out, stderr=subprocess.STDOUT
            )
        until = time.monotonic() + run.timeout_seconds
        self._started[rank] = _Started(process, until, said)

    def _has_ended(self, rank: int) -> bool:
        """Whether a rank has written its role.

        Raises:
            ModelError: if it failed, or takes too long.
        """
        one, run = self._started[rank], self._run
        code = one.process.poll()
        if code is None:
            if time.monotonic() < one.until:
                return False
            raise ModelError(
                f"{run.script} as rank {rank} of {run.world_size:,} had not done {run.steps} steps "
                f"after {run.timeout_seconds:g} s: ask for fewer steps, or give it more time"
            )
        if code or not role_path(self._folder, rank).exists():
            raise ModelError(
                f"{run.script} failed as rank {rank} of {run.world_size:,}, exit code {code}; "
                f"it said:\n{self._said(rank)}"
            )
        return True


def _stated(ranks: Iterable[int], world_size: int) -> list[int]:
    stated = sorted(set(ranks))
    unknown = [rank for rank in stated if not 0 <= rank < world_size]
    if unknown or not stated:
        found = f"rank {unknown[0]}" if unknown else "no rank"
        raise WorkloadError(
            f"{found} was asked for, and the world has ranks 0 to {world_size - 1}: name some of "
            "these, or leave it to be found with auto"
        )
    return stated


def _check(run: ScriptRun) -> None:
    if run.world_size < 1:
        raise WorkloadError(f"a world of {run.world_size} ranks was asked for: give 1 or more")
    if run.steps < 1:
        raise WorkloadError(f"{run.steps} steps were asked for: give 1 or more")
    if run.device not in DEVICES:
        raise WorkloadError(
            f"device {run.device!r} is not known: choose one of {', '.join(DEVICES)}"
        )
    if run.device == CUDA:
        import torch  # on demand: an optional dependency

        if not torch.cuda.is_available():
            raise WorkloadError(
                "device 'cuda' runs each rank on a GPU, and PyTorch sees none here: run on a "
                f"machine with one, or choose {FAKE} or {CPU}"
            )
    if not run.script.is_file():
        raise WorkloadError(f"there is no script {str(run.script)!r}: give the path of one")
