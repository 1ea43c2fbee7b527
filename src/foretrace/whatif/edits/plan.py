"""Edits of a plan: degrees, batch, schedule, sharding, recompute, buckets and overlap."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from foretrace.base import ScenarioError, WorkloadError, key_text
from foretrace.whatif.edits.edit import (
    Edit,
    EditTurn,
    Holds,
    Key,
    StatedValues,
    count_key,
    hash_of_entries,
)
from foretrace.whatif.edits.machine import is_of_machine
from foretrace.workload import Plan, PlanDraft, plan_changes, require_schedule, with_fields

if TYPE_CHECKING:
    from foretrace.whatif.scenario import Scenario

# Tables of a plan file whose keys say enough alone.
_PLAIN_TABLES = ("parallelism", "batch", "pipeline")
_COUNTED = {
    "tp": "tensor",
    "cp": "context",
    "dp": "data",
    "pp": "pipeline",
    "ep": "expert",
}

_BATCH = ("micro_batch", "num_microbatches", "global_batch", "sequence")


class _PlanEdit(Edit, ABC):
    """An edit whose sentence is what it changes about the plan."""

    def sentence(self, before: Scenario) -> str:
        """Keys of a plan file, old and new: `pp 2 -> 4, sharding.level none -> zero1`."""
        return _difference(before.plan, self.applied(before).plan)


@dataclass(frozen=True, kw_only=True)
class Parallelism(_PlanEdit):
    """Other degrees; what is left out stays. The batch of each rank stays too.

    With other data-parallel ranks the global batch changes, unless `Batch` states it.
    """

    tp: int | None = None
    cp: int | None = None
    dp: int | None = None
    pp: int | None = None
    ep: int | None = None
    schedule: str | None = None
    chunks: int | None = None
    sequence_parallel: bool | None = None

    KEYS = (
        count_key("tp", "Ranks that divide each layer."),
        count_key("cp", "Ranks that divide each sequence."),
        count_key("pp", "Pipeline stages."),
        count_key("dp", "Copies of the model."),
        count_key("ep", "Ranks that divide the experts."),
        Key(
            "schedule",
            Holds.NAME,
            "Order of passes on each stage.",
            "the name of a schedule",
            "NAME",
        ),
        count_key("chunks", "Parts of the model on each stage."),
        Key(
            "sequence_parallel",
            Holds.FLAG,
            "Whether tensor ranks divide activations between products too.",
            "true or false",
        ),
    )
    TURNS = (EditTurn.DEGREES,)

    def __post_init__(self) -> None:
        """Refuse what is no degree."""
        for key in (*_COUNTED, "chunks"):
            each = getattr(self, key)
            if each is not None and (type(each) is not int or each < 1):
                raise ScenarioError(f"{key} must be a whole number from 1 on, got {each!r}")

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Parallelism]:
        """One of all degrees that are stated."""
        found = stated.fields(cls.KEYS)
        if found:
            yield cls(**found)  # type: ignore[arg-type]  # read for their fields

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with these degrees."""
        plan = scenario.plan
        stated: dict[str, object] = {
            name: each for key, name in _COUNTED.items() if (each := getattr(self, key)) is not None
        }
        if self.schedule is not None:
            try:
                require_schedule(self.schedule)  # a plan of one stage would not look at it
            except WorkloadError as err:
                raise ScenarioError(str(err)) from err
            stated["schedule"] = self.schedule
        if self.chunks is not None:
            stated["num_chunks"] = self.chunks
        if self.sequence_parallel is not None:
            stated["sequence_parallel"] = self.sequence_parallel
        if not stated:
            raise ScenarioError("no degree is stated: give one, as in Parallelism(dp=64)")
        new: Plan = replace(plan, **stated, path=None)  # type: ignore[arg-type]
        if "pipeline" in stated or "num_chunks" in stated:
            new = replace(new, layers_of_chunk=None)
        batch = plan.num_microbatches * plan.micro_batch * new.data
        return replace(scenario, plan=replace(new, global_batch=batch))


@dataclass(frozen=True, kw_only=True)
class Batch(_PlanEdit):
    """Another microbatch (sequences), number of microbatches, global batch, or sequence length.

    Of microbatches, microbatch and global batch two are enough; the third follows. With one of
    them, the number of microbatches stays for `micro_batch`, and the microbatch for the others.
    """

    micro_batch: int | None = None
    num_microbatches: int | None = None
    global_batch: int | None = None
    sequence: int | None = None

    KEYS = (
        count_key("sequence", "Tokens of a sequence."),
        count_key("micro_batch", "Sequences of one pass."),
        count_key("microbatches", "Passes of a step on each rank.", "num_microbatches"),
        count_key("global_batch", "Sequences of a step, over all ranks."),
    )
    TURNS = (EditTurn.BATCH,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[Batch]:
        """One of all that is stated."""
        found = stated.counts(cls.KEYS)
        if found:
            yield cls(**found)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with this batch."""
        plan = scenario.plan
        stated = {name: each for name in _BATCH if (each := getattr(self, name)) is not None}
        if not stated:
            raise ScenarioError("no batch is stated: give one, as in Batch(micro_batch=2)")
        for name, each in stated.items():
            if type(each) is not int or each < 1:
                raise ScenarioError(f"{name} must be a whole number from 1 on, got {each!r}")
        micro = self.micro_batch or plan.micro_batch
        whole = self.global_batch
        if self.global_batch is not None and self.num_microbatches is not None:
            per_rank = self.num_microbatches * plan.data
            if self.global_batch % per_rank:
                raise ScenarioError(
                    f"a global batch of {self.global_batch} is not whole in {self.num_microbatches}"
                    f" microbatches on {plan.data} data-parallel ranks ({per_rank} in all): take "
                    f"{max(self.global_batch // per_rank, 1) * per_rank}"
                )
            implied = self.global_batch // per_rank
            if self.micro_batch is not None and implied != self.micro_batch:
                raise ScenarioError(
                    f"global batch {self.global_batch} over {per_rank} microbatches leaves "
                    f"{implied} sequences in each, and micro_batch says {self.micro_batch}: "
                    "leave one of the three out"
                )
            micro = implied
        if whole is None:
            whole = (self.num_microbatches or plan.num_microbatches) * micro * plan.data
        together = micro * plan.data
        if whole % together:
            raise ScenarioError(
                f"a global batch of {whole} is not whole in microbatches of {micro} on {plan.data} "
                f"data-parallel ranks: take {max(whole // together, 1) * together}"
            )
        new = replace(
            plan,
            micro_batch=micro,
            global_batch=whole,
            sequence=self.sequence or plan.sequence,
            path=None,
        )
        return replace(scenario, plan=new)


@dataclass(frozen=True)
class PlanKeys(_PlanEdit):
    """Any key of a plan file: `PlanKeys({"sharding.level": "zero1"})`."""

    keys: Mapping[str, object] = field(default_factory=dict)

    SHARDING = Key(
        "sharding",
        Holds.NAME,
        "none, zero1, zero2 or zero3.",
        "none, zero1, zero2 or zero3",
        "LEVEL",
        "sharding.level",
    )
    RECOMPUTE = Key(
        "recompute",
        Holds.NAME,
        "none, selective or full.",
        "none, selective or full",
        "WHAT",
        "memory.recompute",
    )
    SET = Key(
        "set",
        Holds.TABLE,
        "Any key of a plan, or a machine's, as in network.pod.bandwidth=400Gb/s; may be given "
        "again.",
        "a table of keys of a plan or a machine, as in { 'overlap.gradients' = false }",
        "KEY=VALUE",
    )
    KEYS = (SHARDING, RECOMPUTE, SET)
    TURNS = (EditTurn.PLAN,)

    @classmethod
    def stated(cls, stated: StatedValues) -> Iterator[PlanKeys]:
        """One of all keys that are a plan's."""
        found: dict[str, object] = {**stated.fields((cls.SHARDING, cls.RECOMPUTE))}
        table = stated.table(cls.SET)
        found |= {name: each for name, each in table.items() if not is_of_machine(name)}
        if found:
            PlanDraft().with_keys(found)  # refuses here what no plan has, before anything is read
            yield cls(found)

    def applied(self, scenario: Scenario) -> Scenario:
        """The scenario with these keys; the batch of each rank stays unless it is among them."""
        draft = PlanDraft().with_keys(dict(self.keys))
        before = scenario.plan
        new = replace(with_fields(before, draft.stated), path=None)
        if not draft.states("global_batch"):
            new = replace(new, global_batch=before.num_microbatches * new.micro_batch * new.data)
        return replace(scenario, plan=new)

    def __hash__(self) -> int:
        """By its keys."""
        return hash_of_entries(self.keys)


def _difference(before: Plan, after: Plan) -> str:
    """Keys of a plan file that differ, old and new: `tp 2 -> 4`; and the number of microbatches."""
    found = []
    if before.num_microbatches != after.num_microbatches:
        found.append(f"microbatches {before.num_microbatches} -> {after.num_microbatches}")
    found += [
        f"{'' if table in _PLAIN_TABLES else f'{table}.'}{key} {_shown(was)} -> {_shown(now)}"
        for table, key, was, now in plan_changes(before, after)
    ]
    return ", ".join(found) or "the plan as it was"


def _shown(value: object) -> str:
    return "by rule" if value is None else key_text(value)
