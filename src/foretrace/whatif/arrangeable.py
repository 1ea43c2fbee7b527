"""Keys of a plan that arranging recorded work heeds; a change of any other would be lost."""

from __future__ import annotations

from foretrace.base import NotShownError
from foretrace.workload import Plan, plan_table

# By table; `None`: all of its keys.
_ARRANGEABLE: dict[str, tuple[str, ...] | None] = {
    "parallelism": ("tp", "cp", "dp", "pp", "ep", "etp", "order", "sequence_parallel"),
    "batch": None,
    "pipeline": None,
    "sharding": ("level", "ranks", "bucket_bytes"),
    "memory": None,
    "overlap": ("gradients",),
}


# Of layers alone: those of a stated model can take the place of recorded ones.
_OF_LAYERS = (("precision", "products"),)


def check_arrangeable(before: Plan, after: Plan, *, has_layers: bool = False) -> None:
    """Refuse a change of the plan that no recorded work shows the effect of.

    Args:
        before: as recorded.
        after: as edited.
        has_layers: layers of a model are there, and costs of their operators.

    Raises:
        NotShownError: naming the keys, and what would answer.
    """
    old, new = plan_table(before), plan_table(after)
    lost = [
        f"{table}.{key} {_shown(old.get(table, {}).get(key))} -> "
        f"{_shown(new.get(table, {}).get(key))}"
        for table in dict.fromkeys((*old, *new))
        for key in dict.fromkeys((*old.get(table, {}), *new.get(table, {})))
        if old.get(table, {}).get(key) != new.get(table, {}).get(key)
        and not (_is_arrangeable(table, key) or (has_layers and (table, key) in _OF_LAYERS))
    ]
    if lost:
        raise NotShownError(
            f"{', '.join(lost)}: the recording does not show what that changes; say which work it "
            "makes faster (Speed, Fuse, CudaGraphs, Attention)"
        )


def _is_arrangeable(table: str, key: str) -> bool:
    keys = _ARRANGEABLE.get(table, ())
    return keys is None or key in keys


def _shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
