"""Everything that is described, whatever it is: by name, or by file."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from foretrace.base import MachineError
from foretrace.machine.chip import Chip, chip_names, load_chip
from foretrace.machine.files import Described
from foretrace.machine.host import Host, host_names, load_host
from foretrace.machine.machine import Machine, load_machine, machine_names

Description = Chip | Host | Machine


def described(name_or_path: str | Path, folders: Sequence[Path] = ()) -> Description:
    """The chip, host or machine of that name, or in that file.

    Args:
        name_or_path: "h100-sxm", "dgx-h100", "llama3-24k", or a TOML file.
        folders: the user's own; looked through before the presets.

    Raises:
        MachineError: if there is none, or a file is wrong.
    """
    text = str(name_or_path)
    if text in chip_names(folders):
        return load_chip(text, folders)
    if text in host_names(folders):
        return load_host(text, folders)
    if text in machine_names(folders):
        return load_machine(text, folders)
    path = Path(name_or_path)
    if not path.is_file():
        known = (*chip_names(folders), *host_names(folders), *machine_names(folders))
        near = get_close_matches(text, known, n=3)
        hint = f"did you mean {', '.join(near)}?" if near else "`foretrace machine list` names all"
        raise MachineError(f"no chip, host or machine is called {text!r}, nor any file: {hint}")
    kind = _kind(path)
    if kind is Described.CHIP:
        return load_chip(path, folders)
    return load_host(path, folders) if kind is Described.HOST else load_machine(path, folders)


def _kind(path: Path) -> Described:
    try:
        stated = tomllib.loads(path.read_text(encoding="utf-8")).get("kind")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise MachineError(f"{str(path)!r} is not a TOML file: {err}") from err
    kinds = [kind.value for kind in Described]
    if stated not in kinds:
        found = "no kind" if stated is None else f"the kind {stated!r}"
        raise MachineError(
            f'{str(path)!r} has {found}: begin it with kind = "..." and one of {", ".join(kinds)}'
        )
    return Described(stated)
