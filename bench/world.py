"""Collectives of ranks that stand alone, held against real processes of gloo, one by one.

Every configuration runs twice: as so many processes that communicate, whose flight recorder says
what they did, and as each rank alone under `foretrace run`'s fake groups. Kind, members, numbers
in and out, and number format of every collective have to be equal, in order.

    python bench/world.py [--world 2 4 8] [--only ddp fsdp2] [--device fake]
"""

from __future__ import annotations

import argparse
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

from foretrace.base import number_format
from foretrace.capture import IssuedExchange, ScriptRun, roles_of
from foretrace.capture.gloo import NAMES, flight_entries
from foretrace.capture.job import job_facts

SCRIPTS = Path(__file__).parents[1] / "tests" / "capture" / "world" / "scripts"
CONFIGURATIONS = {
    "ddp": ("ddp.py", {}),
    "fsdp2": ("fsdp.py", {}),
    "hsdp": ("fsdp.py", {"REPLICAS": "2"}),
    "tp": ("fsdp.py", {"TP": "all"}),
    "tp x dp": ("fsdp.py", {"TP": "2"}),
    "gpipe": ("pipeline.py", {"SCHEDULE": "GPipe"}),
    "1f1b": ("pipeline.py", {"SCHEDULE": "1F1B"}),
    "interleaved": ("pipeline.py", {"SCHEDULE": "Interleaved1F1B"}),
    "experts": ("experts.py", {}),
    "1f1b x dp": ("pipeline.py", {"SCHEDULE": "1F1B", "STAGES": "half"}),
}
_STEPS = 3
Line = tuple[str, tuple[int, ...], int, int, str, int]
_FLIGHT_NAMES = {own: flight for flight, own in NAMES.values()}


def real_rank(script: str, out: str) -> None:
    """One process of a real run, which writes what its flight recorder saw."""
    import torch.distributed

    dist: Any = torch.distributed
    destroy = dist.destroy_process_group
    lines: list[tuple[int, tuple[object, ...]]] = []

    def noted(name: str) -> Callable[..., Any]:
        """A transfer, of which gloo's flight recorder knows nothing."""
        method = getattr(dist.ProcessGroup, name)

        def called(group: Any, tensors: list[Any], peer: int, tag: int) -> Any:
            ranks = dist.get_process_group_ranks(group)
            count, dtype = tensors[0].numel(), str(tensors[0].dtype).removeprefix("torch.")
            lines.append((time.time_ns(), (name, ranks, count, count, dtype, ranks[peer])))
            return method(group, tensors, peer, tag)

        return called

    for name in ("send", "recv"):
        setattr(dist.ProcessGroup, name, noted(name))

    def ended(*given: object) -> None:
        groups = {one.name: one.ranks for one in job_facts().process_groups}
        for one in flight_entries():
            numbers = (sum(map(prod, sizes)) for sizes in (one.input_sizes, one.output_sizes))
            dtype = next(iter((*one.input_dtypes, *one.output_dtypes)), "")
            row = (one.profiling_name, groups[one.process_group[0]], *numbers, dtype, -1)
            lines.append((one.time_created_ns, row))
        told = [row for _, row in sorted(lines, key=lambda line: line[0])]
        Path(out).write_text(json.dumps(told), encoding="utf-8")
        destroy(*given)

    dist.destroy_process_group = ended
    sys.argv = [script]
    runpy.run_path(script, run_name="__main__")


def real(
    script: Path, world: int, settings: dict[str, str], ranks: list[int]
) -> dict[int, list[Line]]:
    """What each of some ranks did in a real run."""
    with socket.socket() as free, tempfile.TemporaryDirectory() as folder:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
        free.close()
        started = [
            subprocess.Popen(
                [sys.executable, __file__, "--real", str(script), f"{folder}/{rank}.json"],
                env=os.environ | settings | {
                    "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(rank),
                    "MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1",
                },
            )
            for rank in range(world)
        ]  # fmt: skip
        codes = [one.wait() for one in started]
        if any(codes):
            raise SystemExit(f"{script} failed with {world} processes: exit codes {codes}")
        told = {rank: json.loads(Path(folder, f"{rank}.json").read_text("utf-8")) for rank in ranks}
        return {
            rank: [_line(*row[:4], dtype=row[4], peer=row[5]) for row in rows]
            for rank, rows in told.items()
        }


def _line(kind: str, members: list[int], *numbers: int, dtype: str, peer: int) -> Line:
    known = number_format(dtype)
    went_in, came_out = numbers
    return kind, tuple(members), went_in, came_out, dtype if known is None else known.name, peer


def alone(
    script: Path, world: int, settings: dict[str, str], ranks: list[int], *, device: str
) -> dict[int, list[Line]]:
    """What each of some ranks does alone."""
    os.environ.update(settings)
    run = ScriptRun(script, (), world, device=device, steps=2 * _STEPS, warmup=0)
    return {
        rank: [
            _line(
                _FLIGHT_NAMES.get(one.name, one.name), list(role.groups[one.group]),
                one.in_elements, _out_of_gloo(one), dtype=one.dtype, peer=one.peer,
            )
            for one in role.exchanges
        ]
        for rank, role in roles_of(run, ranks).by_rank.items()
    }  # fmt: skip


def _out_of_gloo(one: IssuedExchange) -> int:
    """Of gloo, which reduces everything and keeps a part, what it states: all that it reduced."""
    return one.in_elements if "reduce_scatter" in one.name else one.out_elements


def main() -> None:
    """Compare, and print a line for each configuration."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--real", nargs=2)
    parser.add_argument("--world", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--only", nargs="+", default=list(CONFIGURATIONS))
    parser.add_argument("--device", default="fake")
    given = parser.parse_args()
    if given.real:
        real_rank(*given.real)
        return
    for world in given.world:
        for name in given.only:
            file, settings = CONFIGURATIONS[name]
            stated = {"TP": "1", "REPLICAS": "1", "STAGES": "all", "STEPS": str(_STEPS)} | settings
            size = {"all": str(world), "half": str(world // 2)}
            stated = {key: size.get(value, value) for key, value in stated.items()}
            ranks = [0, world - 1]
            expected = real(SCRIPTS / file, world, stated, ranks)
            found = alone(SCRIPTS / file, world, stated, ranks, device=given.device)
            for rank in ranks:
                _say(name, world, rank, expected[rank], found[rank])


def _say(name: str, world: int, rank: int, expected: list[Line], found: list[Line]) -> None:
    first = next(
        (at for at, (one, other) in enumerate(zip(expected, found, strict=False)) if one != other),
        min(len(expected), len(found)),
    )
    said = "equal" if expected == found else (
        f"DIFFERENT at {first}: real {expected[first:first + 3]}, alone {found[first:first + 3]}"
    )  # fmt: skip
    sys.stdout.write(f"{name}, {world} ranks, rank {rank}: {len(expected)} collectives, {said}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
