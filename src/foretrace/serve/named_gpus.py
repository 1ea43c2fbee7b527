"""`chip_of`, `machine_of`: the GPU that settings, folders and drivers name, each in its own way."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

from foretrace.machine import (
    Chip,
    Machine,
    chip_names,
    host_names,
    load_chip,
    load_host,
    load_machine,
)
from foretrace.serve.profiles import plain_name

_LEAST_NAME = 4  # letters of a part of a GPU's name: fewer say too little


def named_beside(paths: Sequence[Path]) -> list[str]:
    """What folders and a description of the hardware beside the engine's file call the GPU."""
    found = []
    for path in paths:
        folder = path.resolve().parent
        for other in sorted(folder.glob("*config.json")):
            try:
                text = json.dumps(json.loads(other.read_text(encoding="utf-8")))
            except (OSError, ValueError, RecursionError):
                continue
            _, key, rest = text.partition('"hardware": "')
            if key:
                found.append(rest.partition('"')[0])
        found.append(folder.name)
    return found


def chip_of(names: Sequence[str], folders: Sequence[Path] = ()) -> Chip | None:
    """The chip that goes by one of these names, the first that is one's.

    Where a name is a part of several, a whole word of one counts more (an H200 is no GH200), then
    one with links. A number that goes on is another: an L40 is no L4.
    """
    chips = [load_chip(name, folders) for name in chip_names(folders)]
    for name in names:
        plain = plain_name(name)
        fitting = [
            (
                called == plain,
                name.casefold() in re.split(r"[^a-z0-9]", said),
                one.link_bytes_per_ns is not None,
                len(called),
                one,
            )
            for one in chips
            for said in map(str.casefold, (one.name, *one.device_names))
            for called in [plain_name(said)]
            if called == plain
            or (len(plain) >= _LEAST_NAME and plain in called)
            or re.search(rf"{called}(?![0-9])", plain)
        ]
        if fitting:
            return max(fitting, key=lambda found: found[:-1])[-1]
    return None


def machine_of(
    names: Sequence[str], folders: Sequence[Path] = (), *, num_gpus: int = 1
) -> Machine | None:
    """A host of the GPU of that name, if one is described: the first that has so many.

    Where none has, several make a machine elsewhere: the first that has the most.

    Args:
        names: of the GPU.
        folders: of files that names of hardware are looked up in, before the presets.
        num_gpus: that are to serve.
    """
    chip = chip_of(names, folders)
    if chip is None:
        return None
    hosts = [load_host(host, folders) for host in host_names(folders)]
    hosts = [host for host in hosts if host.chip.name == chip.name]
    if not hosts:
        return None
    enough = [host for host in hosts if host.num_chips >= num_gpus]
    chosen = enough[0] if enough else max(hosts, key=lambda host: host.num_chips)
    return load_machine(chosen.name, folders)
