"""`Corrections`: what a user's TOML says about blocks, before any other evidence.

    layers_per_stage = [20, 20]

    [[rule]]
    annotation = "my_block_*"
    part = "layer"

Every rule has one pattern (shell wildcards, case matters) and says a part, a phase, or that each
match begins a layer. Rules are asked in order; the first that matches and says something wins.
"""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

from foretrace.base import Count, DescriptionKey, GraphError, Table, Text, parsed_toml, read_keys
from foretrace.graph.nodes import Part, Phase

SUBJECTS = ("operator", "annotation", "module", "kernel")
PARTS = {part.name.lower(): part for part in Part if part != Part.UNKNOWN}
PHASES = {phase.name.lower(): phase for phase in Phase if phase != Phase.UNKNOWN}
_RULE_KEYS = (
    *(
        DescriptionKey(subject, Text, expected="a pattern such as 'my_block_*'")
        for subject in SUBJECTS
    ),
    DescriptionKey("part", Literal[tuple(PARTS)]),
    DescriptionKey("phase", Literal[tuple(PHASES)]),
    DescriptionKey("begins_layer", bool),
)
_FILE_KEYS = (
    DescriptionKey(
        "layers_per_stage",
        tuple[Count, ...],
        expected="a list of numbers above 0, one per pipeline stage,",
    ),
    DescriptionKey("rule", tuple[dict[str, object], ...], expected="tables headed [[rule]]"),
)


@dataclass(frozen=True)
class Correction:
    """One correction: what it is about, and what it says."""

    subject: str  # one of `SUBJECTS`
    pattern: str  # shell wildcards
    part: Part = Part.UNKNOWN
    phase: Phase = Phase.UNKNOWN
    begins_layer: bool = False

    def matches(self, subject: str, name: str) -> bool:
        """Whether the rule is about something of this kind and name."""
        return subject == self.subject and fnmatchcase(name, self.pattern)


@dataclass(frozen=True)
class Corrections:
    """All that a file says; empty without a file."""

    rules: tuple[Correction, ...] = ()
    layers_per_stage: tuple[int, ...] = ()
    path: Path | None = None

    def phase(self, subject: str, name: str) -> Phase:
        """The phase of what has this name; UNKNOWN if no rule says one."""
        for rule in self.rules:
            if rule.phase and rule.matches(subject, name):
                return rule.phase
        return Phase.UNKNOWN

    def part(self, subject: str, name: str) -> Part:
        """The part of what has this name; UNKNOWN if no rule says one."""
        for rule in self.rules:
            if rule.part and rule.matches(subject, name):
                return rule.part
        return Part.UNKNOWN

    def is_layer(self, subject: str, name: str, *, begins: bool) -> bool:
        """Whether something of this name is a layer, or with `begins` begins one."""
        return any(
            (rule.begins_layer if begins else rule.part == Part.LAYER)
            and rule.matches(subject, name)
            for rule in self.rules
        )

    def has_subject(self, subject: str) -> bool:
        """Whether any rule is about things of this kind."""
        return any(rule.subject == subject for rule in self.rules)


def read_corrections(path: Path) -> Corrections:
    """The corrections that a file holds.

    Raises:
        GraphError: if the file is no TOML, or has a key or value that is not allowed.
        OSError: if the file cannot be read.
    """
    where = f"blocks file {str(path)!r}"
    stated = read_keys(parsed_toml(path, GraphError), _FILE_KEYS, where, error=GraphError)
    rules = enumerate(stated.get("rule", ()), start=1)
    return Corrections(
        rules=tuple(_rule(rule, f"rule {number} of {where}") for number, rule in rules),
        layers_per_stage=stated.get("layers_per_stage", ()),
        path=path,
    )


def _rule(table: Table, where: str) -> Correction:
    stated = read_keys(table, _RULE_KEYS, where, error=GraphError)
    subjects = [key for key in SUBJECTS if key in stated]
    if len(subjects) != 1:
        raise GraphError(
            f"{where}: found {', '.join(subjects) or 'no pattern'}; expected exactly one of "
            f"{', '.join(SUBJECTS)}."
        )
    subject, pattern = subjects[0], stated[subjects[0]]
    begins_layer = stated.get("begins_layer", False)
    if not begins_layer and "part" not in stated and "phase" not in stated:
        raise GraphError(
            f"{where} says nothing about {pattern!r}: give it a part, a phase or "
            "begins_layer = true."
        )
    if begins_layer and subject == "kernel":
        raise GraphError(
            f"'begins_layer' of {where}: a kernel cannot begin a layer, since it runs later than "
            "it is launched; name the operator that launches it."
        )
    return Correction(
        subject=subject,
        pattern=pattern,
        part=PARTS[stated["part"]] if "part" in stated else Part.UNKNOWN,
        phase=PHASES[stated["phase"]] if "phase" in stated else Phase.UNKNOWN,
        begins_layer=begins_layer,
    )
