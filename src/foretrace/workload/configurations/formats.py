"""The formats that configurations of other software have; one line for each."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from foretrace.base import WorkloadError
from foretrace.workload.configurations.accelerate import ACCELERATE
from foretrace.workload.configurations.bridge import BRIDGE
from foretrace.workload.configurations.deepspeed import DEEPSPEED
from foretrace.workload.configurations.megatron import MEGATRON
from foretrace.workload.configurations.table import (
    ConfigurationFormat,
    ConfigurationText,
    JobConfiguration,
)
from foretrace.workload.configurations.torchtitan import TORCHTITAN

# Of a text that several recognise, the first counts.
FORMATS: tuple[ConfigurationFormat, ...] = (DEEPSPEED, TORCHTITAN, ACCELERATE, BRIDGE, MEGATRON)
CONFIG_FORMATS = tuple(one.name for one in FORMATS)
_FILE = re.compile(r"[^\n]+\.(?:sh|bash|txt|args|ya?ml|json|toml|py)(?::\w+)?")
_LONGEST = 1 << 22  # characters; a configuration has some thousand


def read_configuration(text_or_file: str | Path, software: str = "") -> JobConfiguration:
    """What a configuration of other training software says of a plan and a model.

    Args:
        text_or_file: Megatron-LM's arguments as they are typed, a launch script, a YAML, TOML or
            JSON file, or a Python file with, behind a colon, the function that makes it.
        software: one of `CONFIG_FORMATS`; told by the text, if left out.

    Raises:
        WorkloadError: if it cannot be read, is of no known format, or holds a wrong value.
    """
    source = _source(str(text_or_file))
    known = {one.name: one for one in FORMATS}
    if software and software not in known:
        raise WorkloadError(
            f"no configurations are called {software!r}: expected is one of {', '.join(known)}"
        )
    found = known.get(software) or _recognised(source.text)
    if found is None:
        titles = ", ".join(one.title for one in FORMATS)
        raise WorkloadError(f"{source.where} is no configuration that is known: known are {titles}")
    return found.read(source)


def together(found: Sequence[JobConfiguration]) -> JobConfiguration:
    """Several configurations of one run as one: what a later one states counts.

    Raises:
        ValueError: if there is none.
    """
    if not found:
        raise ValueError("found must hold a configuration, got none")
    first, *others = found
    for one in others:
        says_model = one.model is not None or one.model_name
        model = one if says_model else first
        first = JobConfiguration(
            software=f"{first.software} and {one.software}",
            fields={**first.fields, **one.fields},
            model=model.model,
            model_name=model.model_name,
            no_model=model.no_model,
            num_ranks=one.num_ranks or first.num_ranks,
            passes=one.passes or first.passes,
            replicas=one.replicas or first.replicas,
            preset=one.preset or first.preset,
            notes=(*first.notes, *one.notes),
        )
    return first


def holds_configuration(text_or_file: str | Path) -> bool:
    """Whether it is a configuration of other software, or a file of one."""
    text = str(text_or_file)
    if (
        not text.lstrip().startswith("--")
        and "\n" not in text
        and not _FILE.fullmatch(text.strip())
    ):
        return False
    try:
        return _recognised(_source(text).text) is not None
    except WorkloadError:
        return False


def format_named(name: str) -> ConfigurationFormat:
    """The format of that name.

    Raises:
        WorkloadError: if there is none.
    """
    for one in FORMATS:
        if one.name == name:
            return one
    raise WorkloadError(
        f"no configurations are called {name!r}: expected is one of {', '.join(CONFIG_FORMATS)}"
    )


def _recognised(text: str) -> ConfigurationFormat | None:
    return next((one for one in FORMATS if one.recognises(text)), None)


def _source(written: str) -> ConfigurationText:
    """The text itself, or what the file holds."""
    if "\n" in written or written.lstrip()[:1] in {"-", "{"}:
        return ConfigurationText(written[:_LONGEST], "the configuration")
    name, colon, part = written.strip().rpartition(":")
    if not colon or not name.endswith(".py"):
        name, part = written.strip(), ""
    path = Path(name)
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(_LONGEST)
    except (OSError, ValueError) as err:
        why = err.strerror if isinstance(err, OSError) else err
        raise WorkloadError(f"{name!r} cannot be read as a configuration: {why}") from err
    return ConfigurationText(text, f"file {name!r}", path, part)
