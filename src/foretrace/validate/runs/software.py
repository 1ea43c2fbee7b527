"""`TrainingSoftware`: what software does with a model where a run's table does not say.

A table of runs names sizes and parallelism; which operators are one kernel, what overlaps and how
gradients are kept is the software's. A description is a plan that states these, and four things
that no plan says: how slow its kernels are beside those measured, how many tokens it knows, whether
it shards by FSDP, and what its logs of memory count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from foretrace.base import (
    Count,
    DescriptionKey,
    Positive,
    Shelf,
    Table,
    WorkloadError,
    as_table,
    read_document,
    read_keys,
    read_sources,
)
from foretrace.workload import MEGATRON, PLANS, PYTORCH, Loss, PlanDraft, Software, draft_of

SOFTWARE = Shelf(
    noun="software",
    kinds=("software", "plan"),
    presets=PLANS.presets,
    folder="software",
    error=WorkloadError,
)
_OWN_TABLES = ("framework", "kernels", "logged_memory", "sources")
_ACCOUNTS = {one.name: one for one in (MEGATRON, PYTORCH)}
_FRAMEWORK_KEYS = (DescriptionKey("fsdp", bool), DescriptionKey("vocabulary", Count))
_FIGURE_KEYS = (
    DescriptionKey("value", Positive, is_required=True),
    DescriptionKey("source", str),
    DescriptionKey("assumed", str),
)
_LOGGED_KEYS = (
    DescriptionKey("like", str, expected=f"one of {', '.join(_ACCOUNTS)}"),
    DescriptionKey("loss", Loss),
    DescriptionKey("keeps_dummy_gradients", bool),
    DescriptionKey("first_rank", bool),
    DescriptionKey("parameters_as_products", bool),
    DescriptionKey("plan", dict[str, object], expected="a table"),
)


@dataclass(frozen=True, kw_only=True)
class LoggedMemory:
    """What a log of peak memory counts."""

    account: Software | None = None  # what is kept and copied; `None`: as the plan suggests
    is_of_first_rank: bool = False  # else of the fullest
    stores_products_format: bool = False  # parameters have the number format of products
    plan: PlanDraft = field(default_factory=PlanDraft)  # what only memory shows


@dataclass(frozen=True, kw_only=True)
class TrainingSoftware:
    """How software lays a model out."""

    name: str = "plan defaults"
    plan: PlanDraft = field(default_factory=PlanDraft)  # what it does unless told otherwise
    slower: Mapping[str, float] = field(default_factory=dict)  # by how a family of kernels begins
    vocabulary: int | None = None  # tokens, where tables do not print them
    # FSDP's SHARD_GRAD_OP gathers parameters too, once a microbatch, and keeps them until the
    # backward pass.
    is_fsdp: bool = False
    logged_memory: LoggedMemory = field(default_factory=LoggedMemory)


def load_software(name: str, folder: Path) -> TrainingSoftware:
    """The software described in `software/<name>.toml` of a folder, or a plan of that name.

    Raises:
        WorkloadError: if there is none, or the file is wrong.
    """
    document = read_document(name, SOFTWARE, (folder,))
    where = document.where
    own = {name: _table(document.table, name, where) for name in _OWN_TABLES}
    plan = {key: value for key, value in document.table.items() if key not in own}
    framework = read_keys(
        own["framework"], _FRAMEWORK_KEYS, f"[framework] of {where}", error=WorkloadError
    )
    return TrainingSoftware(
        name=document.name,
        plan=draft_of(plan, name=document.name, path=document.path),
        slower=_slower(own["kernels"], own["sources"], where),
        vocabulary=framework.get("vocabulary"),
        is_fsdp=framework.get("fsdp", False),
        logged_memory=_logged_memory(own["logged_memory"], f"[logged_memory] of {where}"),
    )


def _table(table: Table, name: str, where: str) -> Table:
    return as_table(table.get(name), f"[{name}] of {where}", error=WorkloadError)


def _slower(kernels: Table, sources: Table, where: str) -> dict[str, float]:
    """Factors on kernels' time, each with its source."""
    known = read_sources(sources, where, error=WorkloadError)
    found = {}
    for family in kernels:
        place = f"{family!r} of [kernels] of {where}"
        figure = read_keys(_table(kernels, family, where), _FIGURE_KEYS, place, error=WorkloadError)
        if figure.get("source") not in known and not figure.get("assumed"):
            raise WorkloadError(
                f"{place} names the source {figure.get('source')!r}, which [sources] does not "
                "hold: add its title and url there, or say why it is assumed"
            )
        found[family] = figure["value"]
    return found


def _logged_memory(table: Table, place: str) -> LoggedMemory:
    stated = read_keys(table, _LOGGED_KEYS, place, error=WorkloadError)
    account = None
    if "like" in stated:
        if stated["like"] not in _ACCOUNTS:
            raise WorkloadError(
                f"'like' of {place} is {stated['like']!r}: known are {', '.join(_ACCOUNTS)}"
            )
        changes = ("loss", "keeps_dummy_gradients")
        account = replace(
            _ACCOUNTS[stated["like"]], **{name: stated[name] for name in changes if name in stated}
        )
    return LoggedMemory(
        account=account,
        is_of_first_rank=stated.get("first_rank", False),
        stores_products_format=stated.get("parameters_as_products", False),
        plan=draft_of(stated.get("plan", {})),
    )
