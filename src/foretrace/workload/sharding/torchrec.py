"""TorchRec's sharding plans as places of tables, and back.

As `ShardingPlan._serialize` writes them: modules by path, tables by name, each with its sharding
type, its compute kernel, its ranks and its shards. What that leaves out, `cache_params` by the name
of its field, is written besides where a cache holds a part of the rows; without it TorchRec's own
share counts.

Source:
    pytorch/torchrec at its release of October 2025, torchrec/distributed/types.py
    (`ShardingPlan`, `ParameterSharding`), embedding_types.py (`EmbeddingComputeKernel`) and
    planner/constants.py (`UVM_CACHING_RATIO`, `KV_CACHING_RATIO`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from foretrace.base import WorkloadError
from foretrace.workload.models.recommender import Recommender
from foretrace.workload.sharding.placed import PlacedTables
from foretrace.workload.sharding.tables import MemoryTier, TablePlace, TableScheme

# Where torchrec_dlrm of facebookresearch/dlrm has its tables, and how it calls them.
_MODULE, _NAME = "model.sparse_arch.embedding_bag_collection", "t_cat_{}"
_CACHED = 0.2
_SCHEMES = {
    "table_wise": TableScheme.TABLE,
    "row_wise": TableScheme.ROW,
    "column_wise": TableScheme.COLUMN,
    "table_row_wise": TableScheme.TABLE_ROW,
    "data_parallel": TableScheme.DATA,
    "table_column_wise": TableScheme.COLUMN,  # of which all pieces are on one host
}
_KERNELS = {
    **dict.fromkeys(("fused", "dense", "quant"), (MemoryTier.HBM, 1.0)),
    **dict.fromkeys(("fused_uvm", "quant_uvm"), (MemoryTier.HOST, 0.0)),
    **dict.fromkeys(("fused_uvm_caching", "quant_uvm_caching"), (MemoryTier.HOST, _CACHED)),
    **dict.fromkeys(("key_value", "ssd_virtual_table"), (MemoryTier.SSD, _CACHED)),
}
_WITHOUT_RANKS = (TableScheme.ROW, TableScheme.DATA)
_NUMBERED = re.compile(r"(\d+)(?:\.weight)?$")
_RANK = re.compile(r"rank:(\d+)")


def torchrec_plan(placed: PlacedTables) -> dict[str, object]:
    """A placement as TorchRec writes one down."""
    tables = {
        _NAME.format(table): _entry(placed, table) for table in range(placed.model.num_tables)
    }
    return {"plan": {_MODULE: tables}}


def write_torchrec_plan(path: Path, placed: PlacedTables) -> None:
    """Write a placement as JSON of TorchRec.

    Raises:
        WorkloadError: if the file cannot be written.
    """
    try:
        path.write_text(json.dumps(torchrec_plan(placed), indent=1) + "\n", encoding="utf-8")
    except OSError as err:
        raise WorkloadError(f"cannot write {path}: {err.strerror or err}") from err


def read_torchrec_plan(path: Path, model: Recommender) -> tuple[TablePlace, ...]:
    """Where TorchRec's plan has a model's tables.

    Args:
        path: JSON of a whole plan, or of one module's.
        model: tables are its own by the numbers that their names end with, else by their order.

    Raises:
        WorkloadError: if the file is none, or is of other tables.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except OSError as err:
        raise WorkloadError(f"cannot read {path}: {err.strerror or err}") from err
    except (ValueError, RecursionError) as err:
        raise WorkloadError(f"{path} is no JSON ({err}): expected a plan of TorchRec") from err
    entries = _entries(found, str(path))
    if len(entries) != model.num_tables:
        raise WorkloadError(
            f"{path} places {len(entries)} tables, and {model.name!r} has {model.num_tables}: name "
            "the model that the plan is of"
        )
    return tuple(
        _place(table, entry, model=model, where=f"table {name!r} of {path}")
        for table, (name, entry) in enumerate(entries)
    )


def _entry(placed: PlacedTables, table: int) -> dict[str, object]:
    shards = [one for one in placed.shards if one.table == table]
    first = shards[0]
    name = next(key for key, scheme in _SCHEMES.items() if scheme is first.scheme)
    found: dict[str, object] = {
        "sharding_type": name,
        "compute_kernel": _kernel(first.scheme, first.tier, first.cached),
        "ranks": None if first.scheme is TableScheme.DATA else [one.rank for one in shards],
    }
    if first.scheme is not TableScheme.DATA:
        along = int(first.scheme is TableScheme.COLUMN)
        sizes = [[one.num_rows, one.num_columns] for one in shards]
        found["shards"] = [
            {
                "shard_offsets": [0] * along
                + [sum(each[along] for each in sizes[:at])]
                + [0] * (1 - along),
                "shard_sizes": sizes[at],
                "placement": f"rank:{one.rank}/cuda:{one.rank % placed.ranks_per_host}",
            }
            for at, one in enumerate(shards)
        ]
    if first.tier is not MemoryTier.HBM and first.cached:
        found["cache_params"] = {"load_factor": first.cached}
    return found


def _kernel(scheme: TableScheme, tier: MemoryTier, cached: float) -> str:
    if scheme is TableScheme.DATA:
        return "dense"
    if tier is MemoryTier.SSD:
        return "key_value"
    if tier is MemoryTier.HBM:
        return "fused"
    return "fused_uvm_caching" if cached else "fused_uvm"


def _entries(found: object, where: str) -> list[tuple[str, Mapping[str, object]]]:
    """Every table's name and entry, in the order of the model's tables."""
    modules = found.get("plan", found) if isinstance(found, dict) else None
    if not isinstance(modules, dict):
        raise WorkloadError(f"{where} has no plan: expected modules by path, tables by name")
    tables: dict[str, Mapping[str, object]] = {}
    for name, held in modules.items():
        own = {name: held} if isinstance(held, dict) and "sharding_type" in held else held
        if not isinstance(own, dict) or not all(
            isinstance(one, dict) and isinstance(one.get("sharding_type"), str)
            for one in own.values()
        ):
            raise WorkloadError(
                f"{name!r} of {where} is no module of tables: expected a sharding_type for each "
                "table by its name"
            )
        tables |= own
    numbers = [match and int(match[1]) for match in map(_NUMBERED.search, tables)]
    if sorted(each for each in numbers if each is not None) != list(range(len(tables))):
        return list(tables.items())
    order = sorted(zip(numbers, tables.items(), strict=True), key=lambda pair: pair[0] or 0)
    return [entry for _, entry in order]


def _place(
    table: int, entry: Mapping[str, object], *, model: Recommender, where: str
) -> TablePlace:
    scheme = _SCHEMES.get(str(entry["sharding_type"]))
    if scheme is None:
        raise WorkloadError(
            f"{where} is sharded {entry['sharding_type']!r}, which no placement here is: there "
            f"are {', '.join(_SCHEMES)}"
        )
    kernel = str(entry.get("compute_kernel", "fused"))
    if kernel not in _KERNELS:
        raise WorkloadError(
            f"{where} has the compute kernel {kernel!r}: there are {', '.join(_KERNELS)}"
        )
    tier, cached = _KERNELS[kernel]
    params = entry.get("cache_params")
    if isinstance(params, dict) and params.get("load_factor") is not None and cached:
        cached = _number(params["load_factor"], where)
    ranks = _ranks(entry, scheme, model=model, table=table, where=where)
    return TablePlace(table, scheme, ranks, tier, cached)


def _ranks(
    entry: Mapping[str, object], scheme: TableScheme, *, model: Recommender, table: int, where: str
) -> tuple[int, ...]:
    """Ranks of a place, from the shards if there are any, else as the entry lists them."""
    shards = entry.get("shards")
    listed = entry.get("ranks") or []
    if not isinstance(listed, list) or not all(isinstance(one, int) for one in listed):
        raise WorkloadError(f"ranks of {where} are {listed!r}: expected a list of whole numbers")
    ranks: list[int] = list(listed)
    if isinstance(shards, list) and shards and scheme is not TableScheme.DATA:
        ranks = _of_shards(shards, scheme, (model.rows[table], model.size), where)
    if scheme in _WITHOUT_RANKS:
        return ()
    if not ranks:
        raise WorkloadError(f"{where} names no rank: expected ranks, or shards with a placement")
    return (min(ranks),) if scheme is TableScheme.TABLE_ROW else tuple(ranks)


def _of_shards(
    shards: Sequence[object], scheme: TableScheme, shape: tuple[int, int], where: str
) -> list[int]:
    """The rank of each shard, in the order of rows and columns."""
    found = []
    for one in shards:
        placement = one.get("placement") if isinstance(one, dict) else None
        match = _RANK.search(str(placement))
        sizes = one.get("shard_sizes") if isinstance(one, dict) else None
        offsets = one.get("shard_offsets", [0, 0]) if isinstance(one, dict) else None
        if not match or not _is_pair(sizes) or not _is_pair(offsets):
            raise WorkloadError(
                f"a shard of {where} is {one!r}: expected shard_offsets and shard_sizes of rows "
                "and columns, and a placement like rank:0/cuda:0"
            )
        found.append((tuple(offsets), tuple(sizes), int(match[1])))  # type: ignore[arg-type]
    numbers = sum(rows * columns for _, (rows, columns), _ in found)
    if numbers != shape[0] * shape[1]:
        raise WorkloadError(
            f"shards of {where} have {numbers:,} numbers together, and the model's table is "
            f"{shape[0]:,} rows x {shape[1]} columns: name the model that the plan is of"
        )
    if scheme is TableScheme.COLUMN and len({sizes for _, sizes, _ in found}) > 1:
        raise WorkloadError(f"pieces of {where} are not all as wide, which no placement here is")
    return [rank for _, _, rank in sorted(found)]


def _is_pair(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2  # noqa: PLR2004  rows and columns
        and all(isinstance(one, int) and one >= 0 for one in value)
    )


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise WorkloadError(f"load_factor of {where} is {value!r}: expected a share from 0 to 1")
    return float(value)
