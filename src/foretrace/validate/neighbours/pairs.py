"""`neighbour_pairs`: runs of one table that differ in one thing of their configuration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations

from foretrace.validate.runs.table import PublishedRun

_DEGREES = frozenset({"tp", "pp", "dp"})
_MICROBATCHES = "microbatches"


@dataclass(frozen=True)
class Pair:
    """A run, and a neighbour that it is predicted from."""

    run: PublishedRun
    neighbour: PublishedRun
    dimension: str  # what they differ in; "tp for dp": two degrees, on as many GPUs


def neighbour_pairs(runs: Sequence[PublishedRun]) -> tuple[Pair, ...]:
    """Every two runs of one site that differ in one thing, both ways round.

    Widths (hidden, heads, feed-forward) count as one. Where a microbatch or a degree changes, so
    must the number of microbatches or the global batch; either may stay. Two degrees may change
    places on the same number of GPUs. Runs without a measured time, or without degrees, have no
    neighbours.
    """
    sites: dict[Hashable, list[PublishedRun]] = defaultdict(list)
    for run in runs:
        if run.measured_s and run.micro_batch and run.tp and run.pp and run.dp:
            sites[_site(run)].append(run)
    return tuple(pair for site in sites.values() for pair in _pairs(site))


def _site(run: PublishedRun) -> Hashable:
    """What neighbours have in common: where, with what software and in what formats they ran."""
    return (
        run.family,
        run.software,
        run.gpu,
        run.gpus_per_node,
        run.nvlink_domain,
        run.precision,
        run.sharding,
        run.schedule if run.schedule not in {"none", "1f1b"} else None,
        run.vp,
        run.ep,
        run.experts,
        run.top_k,
        run.moe_ffn,
        run.vocab,
        run.sequence_parallel,
        run.notes if "async" in run.notes or "all-to-all" in run.notes else None,
    )


def _pairs(runs: Sequence[PublishedRun]) -> Iterator[Pair]:
    things = {run.id: _things(run) for run in runs}
    for run, neighbour in permutations(runs, 2):
        dimension = _dimension(things[run.id], things[neighbour.id])
        if dimension is not None:
            yield Pair(run, neighbour, dimension)


def _things(run: PublishedRun) -> Mapping[str, Hashable]:
    return {
        "layers": run.layers,
        "hidden": (run.hidden, run.heads, run.kv_heads, run.head_dim, run.ffn),
        "tp": run.tp,
        "pp": run.pp,
        "dp": run.dp,
        "cp": run.cp,
        "microbatch": run.micro_batch,
        "sequence": run.seq_len,
        "recompute": run.recompute,
        "gpus": run.num_gpus,
        "batch": run.global_batch,
        _MICROBATCHES: run.global_batch / ((run.micro_batch or 1) * (run.dp or 1)),
    }


def _dimension(one: Mapping[str, Hashable], other: Mapping[str, Hashable]) -> str | None:
    """The one thing that two runs differ in; `None` if it is more, or nothing."""
    differing = {name for name, value in one.items() if value != other[name]}
    moved = differing - {"gpus", "batch", _MICROBATCHES}
    batch = differing & {"batch", _MICROBATCHES}
    if not moved:
        return _MICROBATCHES if len(batch) == 2 else None  # noqa: PLR2004
    if len(batch) == 2:  # noqa: PLR2004
        return None
    if len(moved) == 1:
        return next(iter(moved))
    if len(moved) == 2 and moved <= _DEGREES and "gpus" not in differing:  # noqa: PLR2004
        return " for ".join(sorted(moved, key=("tp", "pp", "dp").index))
    return None
