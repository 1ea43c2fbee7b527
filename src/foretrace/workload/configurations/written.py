"""A plan and a model written as the flags or the configuration of other training software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from foretrace.answer import Answer, Column, Json, Sentences, Table, Told, Unit, count_text
from foretrace.workload.configurations.formats import format_named
from foretrace.workload.configurations.model_keys import keys_of_model, tables_of
from foretrace.workload.configurations.table import (
    ConfigurationFormat,
    ConfigurationText,
    JobConfiguration,
    written_rows,
)
from foretrace.workload.models.transformer import Transformer
from foretrace.workload.plan.draft import draft_of_configuration, field_value, key_of
from foretrace.workload.plan.groups import expert_tensor_size
from foretrace.workload.plan.keys import KEYS
from foretrace.workload.plan.plan import Plan

# Follow from the rest, or are said by it: the number of ranks is in each format's text.
_DERIVED = {"data"}


@dataclass(frozen=True)
class WrittenSetting:
    """One setting of other software."""

    name: str
    value: Any


@dataclass(frozen=True, repr=False)
class WrittenPlan(Answer):
    """A plan in other software's words."""

    software: str  # of `CONFIG_FORMATS`
    title: str
    text: str = field(repr=False)
    settings: tuple[WrittenSetting, ...]
    lost: tuple[str, ...]  # keys of the plan that have no counterpart, with their values

    @property
    def headline(self) -> str:
        """How much is said, and how much is not."""
        said = count_text(len(self.settings), "setting")
        lost = f"; {count_text(len(self.lost), 'key')} without counterpart" if self.lost else ""
        return f"the plan as {self.title}: {said}{lost}"

    def parts(self) -> tuple[Told, ...]:
        """The settings, and what they cannot say."""
        lost = (Sentences.of("without counterpart", self.lost),) if self.lost else ()
        return (
            Table.of(
                "settings",
                self.settings,
                Column("name", unit=Unit.WORD),
                Column("value", value=lambda one: str(one.value)),
            ),
            *lost,
        )

    def as_json(self) -> Json:
        """The text, its settings, and what it cannot say."""
        return {
            "format": self.software,
            "text": self.text,
            "settings": {one.name: one.value for one in self.settings},
            "lost": list(self.lost),
        }


def write_configuration(plan: Plan, software: str, model: Transformer | None = None) -> WrittenPlan:
    """A plan, and where a format says shapes its model, as other software's configuration.

    Args:
        plan: complete.
        software: one of `CONFIG_FORMATS`.
        model: what it trains; left out where it is no transformer.

    Raises:
        WorkloadError: if there is no such format.
    """
    form = format_named(software)
    fields = {key.field: field_value(plan, key.field) for key in KEYS}
    unsaid = () if model is None else _lost_parts(model)
    shape = {} if model is None or unsaid else keys_of_model(model)
    settings = written_rows(form.rows, {**fields, **shape})
    text = form.text(settings, JobConfiguration(software, num_ranks=plan.num_ranks))
    return WrittenPlan(
        software=software,
        title=form.title,
        text=text,
        settings=tuple(WrittenSetting(name, value) for name, value in settings.items()),
        lost=(
            *_lost(form, text, plan, fields),
            *_lost_shape(form, text, shape),
            *unsaid,
        ),
    )


def _lost(
    form: ConfigurationFormat, text: str, plan: Plan, fields: Mapping[str, object]
) -> tuple[str, ...]:
    """Keys that read back as something else: what the format cannot say."""
    found = form.read(ConfigurationText(text, "what was written"))
    back = draft_of_configuration(found).plan()
    lost = []
    for name, value in fields.items():
        other = field_value(back, name)
        if name == "expert_tensor":
            value, other = expert_tensor_size(plan), expert_tensor_size(back)  # noqa: PLW2901
        if value != other and name not in _DERIVED and not _is_idle(name, plan):
            lost.append(f"{key_of(name)} = {value}")
    return tuple(lost)


def _is_idle(name: str, plan: Plan) -> bool:
    """Whether a field says nothing under this plan."""
    part, _, _ = name.partition(".")
    return (
        (part in {"dispatch", "token_shares"} and plan.expert == 1)
        or (name == "expert_tensor" and plan.expert == 1)
        or (name in {"context_exchange", "overlap.context"} and plan.context == 1)
        or (name in {"sequence_parallel", "overlap.tensor"} and plan.tensor == 1)
        or (name in {"schedule", "order", "overlap.pipeline"} and plan.pipeline == 1)
        or (name in {"reshard_after_forward", "prefetch"} and plan.sharding.value != "zero3")
        or (name == "overlap.expert" and plan.expert == 1)
        or (name == "bucket_bytes" and plan.data * plan.context == 1)
    )


def _lost_parts(model: Transformer) -> tuple[str, ...]:
    """Models that carry states or see patches are said by none of the formats: nothing of them."""
    states, patches = model.states, model.patches
    lost = "and with it the shape of the model"
    found = () if states is None else (f"states.heads = {states.num_heads}, {lost}",)
    return found if patches is None else (*found, f"patches.size = {patches.size}, {lost}")


def _lost_shape(
    form: ConfigurationFormat, text: str, shape: Mapping[str, object]
) -> tuple[str, ...]:
    """Keys of the model that the format cannot say; all of them are one where it names models."""
    if not shape:
        return ()
    found = form.read(ConfigurationText(text, "what was written"))
    if found.model is None:
        return ("the shape of the model: this software has models by name",)
    back = {
        f"{table}.{key}": one for table, keys in found.model.items() for key, one in keys.items()
    }
    said = tables_of(shape) or {}
    return tuple(
        f"{table}.{key} = {value}"
        for table, keys in said.items()
        for key, value in keys.items()
        if back.get(f"{table}.{key}", False) != value and value is not False
    )
