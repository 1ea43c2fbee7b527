"""Which Chakra files are named: by themselves, behind globs, and in folders."""

from __future__ import annotations

import glob
from collections.abc import Iterable
from pathlib import Path

from foretrace.trace.chakra.json_forms import Form, form_of
from foretrace.trace.discover import kind_of

_ENDINGS = (".et", ".et.gz", ".et.tar.gz")
_JSON_ENDINGS = (".json", ".json.gz", ".tgz", ".tar.gz")


def chakra_paths(paths: Iterable[str | Path] | str | Path) -> tuple[Path, ...]:
    """The Chakra files that these files, globs and folders name; none if they name others too.

    In a folder with Kineto traces the Chakra files beside them are another form of the same run,
    and left alone; so is a lone list of process groups. JSON forms count where nothing else does.
    """
    found: dict[Path, None] = {}
    for named in (paths,) if isinstance(paths, str | Path) else paths:
        path = Path(named)
        if path.is_dir():
            own = _in_folder(path)
        else:
            matches = sorted(glob.glob(str(named), recursive=True))  # noqa: PTH207  absolute too
            own = [Path(match) for match in matches]
            if not all(form_of(one) for one in own):
                return ()
        if not own:
            return ()
        found |= dict.fromkeys(own)
    return tuple(found)


def _in_folder(folder: Path) -> list[Path]:
    files = sorted(path for path in folder.iterdir() if path.is_file())
    stated = [path for path in files if path.name.endswith(_ENDINGS)]
    others = [path for path in files if path.name.endswith(_JSON_ENDINGS)]
    if any(kind_of(path) == "Kineto trace" for path in others):
        return []
    if stated:
        return [path for path in stated if form_of(path) == Form.PROTOBUF]
    return [path for path in others if form_of(path) is not None]
