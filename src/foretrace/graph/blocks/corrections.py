"""`Corrections`: what a user's TOML says about blocks, before any other evidence.

    layers_per_stage = [20, 20]

    [[rule]]
    annotation = "my_block_*"
    part = "layer"

Every rule has one pattern (shell wildcards, case matters) and says a part, a phase, or that each
match begins a layer. Rules are asked in order; the first that matches and says something wins.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TypeVar

from foretrace.base import GraphError
from foretrace.graph.nodes import Part, Phase

SUBJECTS = ("operator", "annotation", "module", "kernel")
PARTS = {part.name.lower(): part for part in Part if part != Part.UNKNOWN}
PHASES = {phase.name.lower(): phase for phase in Phase if phase != Phase.UNKNOWN}
_RULE_KEYS = (*SUBJECTS, "part", "phase", "begins_layer")
_FILE_KEYS = ("layers_per_stage", "rule")
Value = TypeVar("Value", Part, Phase)


@dataclass(frozen=True)
class Rule:
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

    rules: tuple[Rule, ...] = ()
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
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise GraphError(f"{str(path)!r} is no TOML: {err}. See docs/blocks.md.") from err
    _check_keys(path, "the file", content, _FILE_KEYS)
    rules = content.get("rule", [])
    if not isinstance(rules, list):
        raise GraphError(
            f"key 'rule' in {str(path)!r}: found {rules!r}; expected tables headed [[rule]]."
        )
    return Corrections(
        rules=tuple(_rule(path, index + 1, rule) for index, rule in enumerate(rules)),
        layers_per_stage=_layers_per_stage(path, content.get("layers_per_stage", [])),
        path=path,
    )


def _check_keys(
    path: Path, where: str, table: Mapping[str, object], allowed: tuple[str, ...]
) -> None:
    for key in table:
        if key not in allowed:
            raise GraphError(
                f"unknown key {key!r} in {where} of {str(path)!r}: allowed are "
                f"{', '.join(allowed)}."
            )


def _layers_per_stage(path: Path, value: object) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(
        isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in value
    ):
        raise GraphError(
            f"key 'layers_per_stage' in {str(path)!r}: found {value!r}; expected a list of "
            "numbers above 0, one per pipeline stage."
        )
    return tuple(value)


def _rule(path: Path, number: int, table: object) -> Rule:
    where = f"rule {number}"
    if not isinstance(table, dict):
        raise GraphError(f"{where} of {str(path)!r}: found {table!r}; expected a [[rule]] table.")
    _check_keys(path, where, table, _RULE_KEYS)
    subjects = [key for key in SUBJECTS if key in table]
    if len(subjects) != 1:
        raise GraphError(
            f"{where} of {str(path)!r}: found {', '.join(subjects) or 'no pattern'}; expected "
            f"exactly one of {', '.join(SUBJECTS)}."
        )
    pattern = table[subjects[0]]
    if not isinstance(pattern, str) or not pattern:
        raise GraphError(
            f"key {subjects[0]!r} in {where} of {str(path)!r}: found {pattern!r}; expected a "
            "pattern such as 'my_block_*'."
        )
    begins_layer = table.get("begins_layer", False)
    if not isinstance(begins_layer, bool):
        raise GraphError(
            f"key 'begins_layer' in {where} of {str(path)!r}: found {begins_layer!r}; expected "
            "true or false."
        )
    if not begins_layer and "part" not in table and "phase" not in table:
        raise GraphError(
            f"{where} of {str(path)!r} says nothing about {pattern!r}: give it a part, a phase "
            "or begins_layer = true."
        )
    if begins_layer and subjects[0] == "kernel":
        raise GraphError(
            f"key 'begins_layer' in {where} of {str(path)!r}: a kernel cannot begin a layer, "
            "since it runs later than it is launched; name the operator that launches it."
        )
    return Rule(
        subject=subjects[0],
        pattern=pattern,
        part=_choice(path, where, "part", table, PARTS) or Part.UNKNOWN,
        phase=_choice(path, where, "phase", table, PHASES) or Phase.UNKNOWN,
        begins_layer=begins_layer,
    )


def _choice(
    path: Path, where: str, key: str, table: Mapping[str, object], allowed: Mapping[str, Value]
) -> Value | None:
    if key not in table:
        return None
    value = table[key]
    if not isinstance(value, str) or value not in allowed:
        raise GraphError(
            f"key {key!r} in {where} of {str(path)!r}: found {value!r}; allowed are "
            f"{', '.join(allowed)}."
        )
    return allowed[value]
