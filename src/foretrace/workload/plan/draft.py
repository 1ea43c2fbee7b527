"""`PlanDraft`: what a user states of a plan, from a file, from flags, or both."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from foretrace.base import (
    Document,
    Shelf,
    WorkloadError,
    as_table,
    check_keys,
    document_names,
    read_document,
)
from foretrace.software import TrainingSoftware
from foretrace.workload.configurations.table import JobConfiguration
from foretrace.workload.plan.keys import (
    KEY_OF_FIELD,
    KEYS,
    LISTED,
    TABLES,
    Value,
    key_named,
    plan_value,
)
from foretrace.workload.plan.plan import Adapters, Plan
from foretrace.workload.sharding.tables import TableSharding

PLANS = Shelf(noun="plan", presets=Path(__file__).parent / "presets", error=WorkloadError)
_PARTS = ("overlap", "channels", "precision", "dispatch", "implementation", "tables", "adapters")
# Of parts that a plan may be without, one to begin with.
_OPTIONAL: Mapping[str, TableSharding | Adapters] = {
    "tables": TableSharding(),
    "adapters": Adapters(),
}


@dataclass(frozen=True)
class DraftSizes:
    """Sizes that other software states, from which keys follow once the ranks are known."""

    num_ranks: int | None = None  # of the job
    passes: int | None = None  # microbatches of one copy of the model in a step
    replicas: int | None = None  # copies of what is sharded


@dataclass(frozen=True)
class PlanDraft:
    """Statements about a plan; what is not among them is open."""

    stated: Mapping[str, Value] = field(default_factory=dict)  # by field of `Plan`
    name: str = ""
    title: str = ""
    path: Path | None = None  # `None`: it was not read from a file
    sizes: DraftSizes = field(default_factory=DraftSizes)
    notes: tuple[str, ...] = ()  # what was not understood of the configuration that it is from

    def states(self, field_name: str) -> bool:
        """Whether something is said about a field: "tensor", "overlap.gradients"."""
        return field_name in self.stated

    def with_fields(self, fields: Mapping[str, Value]) -> PlanDraft:
        """The draft with fields of `Plan` set beside, or instead of, what it states."""
        return replace(self, stated={**self.stated, **fields})

    def with_keys(self, keys: Mapping[str, object]) -> PlanDraft:
        """The draft with keys of plan files set beside, or instead of, what it states.

        Args:
            keys: values by path ("parallelism.tp"), or by name where one table alone has it
                ("tp"). `None` leaves things as they are.

        Raises:
            WorkloadError: for an unknown key, or a value that it cannot hold.
        """
        fields: dict[str, Value] = {}
        for name, written in keys.items():
            if written is not None:
                key = key_named(name)
                fields[key.field] = plan_value(key, written, "what was asked for")
        return self.with_fields(fields)

    def plan(self) -> Plan:
        """The plan with the defaults of `Plan` for what is open, without any check."""
        plan = Plan(name=self.name, path=self.path)
        return with_fields(plan, self.stated)


def with_fields(plan: Plan, fields: Mapping[str, Value]) -> Plan:
    """A plan with some fields changed; "overlap.tensor" is a field of its `overlap`."""
    own = {name: value for name, value in fields.items() if "." not in name}
    parts = {}
    for part in _PARTS:
        inside = {
            name.removeprefix(f"{part}."): value
            for name, value in fields.items()
            if name.startswith(f"{part}.")
        }
        if inside:
            parts[part] = replace(getattr(plan, part) or _OPTIONAL[part], **inside)
    # Values were read for their fields, which a type checker cannot see.
    return replace(plan, **own, **parts)  # type: ignore[arg-type]


def field_value(plan: Plan, field_name: str) -> Value | None:
    """What a plan has in a field; `None` where the plan says that it follows from others."""
    part, _, inside = field_name.partition(".")
    value: Value | None = getattr(plan, part)
    return getattr(value, inside) if inside and value is not None else value


def plan_table(plan: Plan) -> dict[str, dict[str, object]]:
    """A plan as the tables of a plan file: what `draft_of` reads back to the same plan."""
    found: dict[str, dict[str, object]] = {table: {} for table in TABLES}
    for key in KEYS:
        value = field_value(plan, key.field)
        if value is not None:
            found[key.table][key.name] = _plain(value)
    return {table: entries for table, entries in found.items() if entries}


def plan_changes(before: Plan, after: Plan) -> Iterator[tuple[str, str, object, object]]:
    """Table and key of each entry of a plan file that differs, its value before and after.

    `None` stands for a key that is not written.
    """
    old, new = plan_table(before), plan_table(after)
    for table in dict.fromkeys((*old, *new)):
        was, now = old.get(table, {}), new.get(table, {})
        for key in dict.fromkeys((*was, *now)):
            if was.get(key) != now.get(key):
                yield table, key, was.get(key), now.get(key)


def draft_of(tables: Mapping[str, object], *, name: str = "") -> PlanDraft:
    """A draft of the tables of a plan file.

    Raises:
        WorkloadError: for a table, a key or a value that no plan file has.
    """
    where = f"plan {name!r}" if name else "the plan"
    return _draft(tables, name, None, where)


def load_plan(name_or_path: str | Path, folders: Sequence[Path] = ()) -> PlanDraft:
    """The draft of that name, or in that file, with what it extends merged in.

    Args:
        name_or_path: "megatron", a TOML file, or a configuration of other software.
        folders: the user's own; looked through before the presets.

    Raises:
        WorkloadError: if there is none, or the file is wrong.
    """
    # Here: plans that are read off recordings need no readers of configurations.
    from foretrace.workload.configurations.formats import holds_configuration, read_configuration

    if holds_configuration(name_or_path):
        return draft_of_configuration(read_configuration(name_or_path))
    document: Document = read_document(name_or_path, PLANS, folders)
    return _draft(document.table, document.name, document.path, document.where)


def draft_of_configuration(found: JobConfiguration) -> PlanDraft:
    """The plan that a configuration of other software states.

    Raises:
        WorkloadError: for a value that a plan cannot hold.
    """
    base = load_plan(found.preset) if found.preset else PlanDraft()
    where = f"the {found.software} configuration"
    fields = {
        name: plan_value(KEY_OF_FIELD[name], _plain(value), where)
        for name, value in found.fields.items()
    }
    sizes = DraftSizes(found.num_ranks, found.passes, found.replicas)
    return PlanDraft({**base.stated, **fields}, sizes=sizes, notes=found.notes)


def software_draft(software: TrainingSoftware) -> PlanDraft:
    """What software does unless told otherwise: its plan's preset, with its own keys.

    Raises:
        WorkloadError: if the preset or a key is unknown, or a value cannot be held.
    """
    base = load_plan(software.plan_name) if software.plan_name else PlanDraft()
    own = draft_of(software.plan, name=software.name)
    return replace(base.with_fields(own.stated), name=software.name, path=None)


def plan_names(folders: Sequence[Path] = ()) -> tuple[str, ...]:
    """Names of all plans, sorted; a user's file hides the preset of its name."""
    return document_names(PLANS, folders)


def parsed_keys(texts: Sequence[str]) -> dict[str, object]:
    """Keys and values of texts like `tp=8` or `overlap.gradients=false`.

    A value is read as in a plan file; a word needs no quotes.

    Raises:
        WorkloadError: for a text without `=`.
    """
    found: dict[str, object] = {}
    for text in texts:
        name, sign, written = text.partition("=")
        if not sign or not name.strip():
            raise WorkloadError(f"{text!r} sets nothing: write a key and a value, as in tp=8")
        try:
            found[name.strip()] = tomllib.loads(f"value = {written}")["value"]
        except tomllib.TOMLDecodeError:
            found[name.strip()] = written.strip()
    return found


def _draft(tables: Mapping[str, object], name: str, path: Path | None, where: str) -> PlanDraft:
    check_keys(tables, ("kind", "title", *TABLES), where, error=WorkloadError, listed=LISTED)
    fields: dict[str, Value] = {}
    for table in TABLES:
        place = f"[{table}] of {where}"
        entries = as_table(tables.get(table), place, error=WorkloadError)
        keys = {key.name: key for key in KEYS if key.table == table}
        check_keys(entries, tuple(keys), place, error=WorkloadError, listed=LISTED)
        for entry, written in entries.items():
            fields[keys[entry].field] = plan_value(keys[entry], written, place)
    return PlanDraft(fields, name=name, title=str(tables.get("title", name)), path=path)


def _plain(value: object) -> object:
    """As TOML and JSON have it."""
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return str(value) if isinstance(value, str) else value


def key_of(field_name: str) -> str:
    """How a plan file calls a field: "parallelism.tp"."""
    return KEY_OF_FIELD[field_name].path
