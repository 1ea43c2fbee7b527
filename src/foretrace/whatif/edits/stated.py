"""What a command line or a scenario file may state, and the edits that it becomes.

Both say the same things by the same names: `--micro-batch 2` and `micro_batch = 2`. The names are
those of each edit's `KEYS`. Edits come in the order of their turns, whatever the order in which
they were written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from foretrace.base import ModelError, ScenarioError, check_keys, is_number
from foretrace.whatif import edits
from foretrace.whatif.edits.edit import Edit, Key, StatedValues
from foretrace.whatif.edits.model import Layers, Widths
from foretrace.whatif.resize.named import Sizes
from foretrace.workload import PlanDraft, parsed_keys


@cache
def edit_kinds() -> tuple[type[Edit], ...]:
    """Every class that `edits` lists, in the order in which they act; equal ones by name."""
    kinds = [getattr(edits, name) for name in dir(edits)]
    return tuple(sorted(kinds, key=lambda kind: (kind.TURNS[0], kind.__name__)))


@cache
def edit_keys() -> Mapping[str, Key]:
    """Every key by name."""
    return {key.name: key for kind in edit_kinds() for key in kind.KEYS}


def edits_of(
    values: Mapping[str, object], where: str, *, folders: Sequence[Path] = ()
) -> tuple[Edit, ...]:
    """The edits that are stated, in the order in which they act.

    Args:
        values: by the names of `edit_keys`; `None` states nothing.
        where: in words, for errors: "the command line".
        folders: the user's own, where names of machines are looked up before the presets.

    Raises:
        ScenarioError: for a key that does not exist, or a value that it cannot hold.
    """
    check_keys(
        values, tuple(edit_keys()), where, error=ScenarioError, listed="foretrace whatif --help"
    )
    given = {key: each for key, each in values.items() if each is not None}
    stated = StatedValues(given, where, folders)
    try:
        return tuple(edit for kind in edit_kinds() for edit in kind.stated(stated))
    except ModelError as err:
        if isinstance(err, ScenarioError) and where in str(err):
            raise
        raise ScenarioError(f"{where}: {err}") from err


def pairs_of(texts: Sequence[str], option: str) -> dict[str, object]:
    """A table of texts like `gemm=1.2`; numbers become numbers.

    Args:
        texts: as typed.
        option: their name, for errors: "--speed".

    Raises:
        ScenarioError: for a text without `=`, and for two about the same.
    """
    found: dict[str, object] = {}
    for text in texts:
        name, sign, value = (part.strip() for part in text.rpartition("="))
        if not sign or not name or not value:
            raise ScenarioError(f"{option} {text!r} has no value: write it as in {option} all=1.2")
        if name in found:
            raise ScenarioError(f"{option} states {name!r} twice: state it once")
        found[name] = float(value) if is_number(value) else value
    return found


def stated_of(texts: Sequence[str]) -> tuple[PlanDraft | None, Sizes | None]:
    """Keys of the recorded job's plan, and its sizes, of texts like `tp=2` or `hidden=4096`.

    Returns:
        The plan's keys and the sizes; `None` where nothing is said of them.

    Raises:
        ScenarioError: if a size is none.
        WorkloadError: if no plan has a key, or it cannot hold the value.
    """
    values = parsed_keys(texts)
    stated = StatedValues(values, "--stated")
    sizes = stated.counts(Widths.KEYS)
    for count in stated.counts(Layers.KEYS).values():
        sizes["layers"] = count
    of_sizes = {key.name for key in (*Layers.KEYS, *Widths.KEYS)}
    of_plan = {key: each for key, each in values.items() if key not in of_sizes}
    return (
        PlanDraft().with_keys(of_plan) if of_plan else None,
        Sizes(**sizes) if sizes else None,
    )
