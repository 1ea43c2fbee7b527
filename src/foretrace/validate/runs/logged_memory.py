"""`LoggedMemory`: what the log of memory of a run's software counts, as its description says."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from foretrace.base import DescriptionKey, WorkloadError, read_keys
from foretrace.software import TrainingSoftware
from foretrace.workload import MEGATRON, PYTORCH, Loss, PlanDraft, Software, draft_of

_ACCOUNTS = {one.name: one for one in (MEGATRON, PYTORCH)}
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


def logged_memory(software: TrainingSoftware) -> LoggedMemory:
    """What software's log of peak memory counts.

    Raises:
        WorkloadError: if its description says what no log has.
    """
    place = f"[logged_memory] of software {software.name!r}"
    stated = read_keys(software.logged_memory, _LOGGED_KEYS, place, error=WorkloadError)
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
