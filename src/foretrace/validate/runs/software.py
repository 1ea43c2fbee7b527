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
    Shelf,
    Table,
    WorkloadError,
    as_table,
    check_keys,
    read_document,
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
    table, where = document.table, document.where
    plan = {key: value for key, value in table.items() if key not in _OWN_TABLES}
    framework = as_table(table.get("framework"), f"[framework] of {where}", error=WorkloadError)
    check_keys(framework, ("fsdp", "vocabulary"), f"[framework] of {where}", error=WorkloadError)
    vocabulary = framework.get("vocabulary")
    return TrainingSoftware(
        name=document.name,
        plan=draft_of(plan, name=document.name, path=document.path),
        slower=_slower(table, where),
        vocabulary=vocabulary if isinstance(vocabulary, int) else None,
        is_fsdp=_flag(framework, "fsdp", where),
        logged_memory=_logged_memory(table.get("logged_memory"), where),
    )


def _slower(table: Table, where: str) -> dict[str, float]:
    """Factors on kernels' time, each with its source."""
    sources = read_sources(table.get("sources"), where, error=WorkloadError)
    found = {}
    kernels = as_table(table.get("kernels"), f"[kernels] of {where}", error=WorkloadError)
    for family, entry in kernels.items():
        place = f"{family!r} of [kernels] of {where}"
        figure = as_table(entry, place, error=WorkloadError)
        check_keys(figure, ("value", "source", "assumed"), place, error=WorkloadError)
        value = figure.get("value")
        if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
            raise WorkloadError(f"{place} has the value {value!r}: it must be a number above 0")
        if figure.get("source") not in sources and not figure.get("assumed"):
            raise WorkloadError(
                f"{place} names the source {figure.get('source')!r}, which [sources] does not "
                "hold: add its title and url there, or say why it is assumed"
            )
        found[family] = float(value)
    return found


def _logged_memory(entry: object, where: str) -> LoggedMemory:
    place = f"[logged_memory] of {where}"
    table = as_table(entry, place, error=WorkloadError)
    allowed = (
        *("like", "loss", "keeps_dummy_gradients"),
        *("first_rank", "parameters_as_products", "plan"),
    )
    check_keys(table, allowed, place, error=WorkloadError)
    plan = as_table(table.get("plan"), f"[logged_memory.plan] of {where}", error=WorkloadError)
    return LoggedMemory(
        account=_account(table, place),
        is_of_first_rank=_flag(table, "first_rank", where),
        stores_products_format=_flag(table, "parameters_as_products", where),
        plan=draft_of(plan),
    )


def _account(table: Table, place: str) -> Software | None:
    if "like" not in table:
        return None
    like, loss = table["like"], table.get("loss")
    account = _ACCOUNTS.get(str(like))
    if account is None:
        raise WorkloadError(f"'like' of {place} is {like!r}: known are {', '.join(_ACCOUNTS)}")
    if loss is not None and loss not in list(Loss):
        raise WorkloadError(f"'loss' of {place} is {loss!r}: known are {', '.join(Loss)}")
    if "keeps_dummy_gradients" in table:
        keeps = _flag(table, "keeps_dummy_gradients", place)
        account = replace(account, keeps_dummy_gradients=keeps)
    return account if loss is None else replace(account, loss=Loss(str(loss)))


def _flag(table: Table, key: str, where: str) -> bool:
    found = table.get(key, False)
    if not isinstance(found, bool):
        raise WorkloadError(f"{key!r} of {where} is {found!r}, where true or false is expected")
    return found
