"""Which rank each file is of, and whether the files can be of one run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from foretrace.base import TraceError
from foretrace.trace.cache import with_note
from foretrace.trace.columns import Trace, TraceMeta

# "rank-34.Jul_15", "kineto_rank3.json", "worker0.1623143089861.pt.trace.json", "run_0.json.gz"
_NAMED = re.compile(r"(?:rank|worker|gpu)[-_ ]?(\d{1,6})(?!\d)", re.IGNORECASE)
_NUMBERED = re.compile(r"(?<![0-9A-Za-z])(\d{1,5})(?=(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$)")
_IN_HEAD = re.compile(rb'"distributedInfo"\s*:\s*\{[^{}]*?"rank"\s*:\s*(\d+)')


def rank_in_head(head: bytes) -> int | None:
    """The rank that a file's first text states; None if it stands elsewhere or nowhere."""
    match = _IN_HEAD.search(head)
    return int(match.group(1)) if match else None


def rank_in_name(path: Path) -> int | None:
    """The rank that a file's name states."""
    match = _NAMED.search(path.name) or _NUMBERED.search(path.name)
    return int(match.group(1)) if match else None


def ranked(traces: Sequence[Trace]) -> tuple[Trace, ...]:
    """The traces by rank, each with one: as the file states, else its name, else its place.

    Raises:
        TraceError: if two files are of one rank, or two cannot be of one run.
    """
    known = [
        trace.meta.rank if trace.meta.rank is not None else rank_in_name(trace.meta.path)
        for trace in traces
    ]
    taken = {rank for rank in known if rank is not None}
    free = (rank for rank in range(len(traces) + max(taken, default=0) + 1) if rank not in taken)
    complete = []
    for trace, rank in zip(traces, known, strict=True):
        if trace.meta.rank is not None:
            complete.append(trace)
        elif len(traces) == 1:  # of one rank nobody asks which
            complete.append(replace(trace, meta=replace(trace.meta, rank=rank or 0)))
        elif rank is not None:
            complete.append(_as_rank(trace, rank, "its name says"))
        else:
            complete.append(_as_rank(trace, next(free), "its place among the files says"))
    complete.sort(key=_rank)
    _check_ranks(complete)
    _check_run([trace.meta for trace in complete])
    return tuple(complete)


def _rank(trace: Trace) -> int:
    rank = trace.meta.rank
    assert rank is not None  # noqa: S101  `ranked` gave every trace one
    return rank


def _as_rank(trace: Trace, rank: int, reason: str) -> Trace:
    trace = replace(trace, meta=replace(trace.meta, rank=rank))
    return with_note(trace, f"the file does not state its rank; {reason} {rank}")


def _check_ranks(traces: Sequence[Trace]) -> None:
    for before, after in pairwise(traces):
        if _rank(before) == _rank(after):
            raise TraceError(
                f"two files are of rank {_rank(before)}: {before.meta.path} and "
                f"{after.meta.path}; name one file per rank (another run or another window of "
                "the same run is loaded by itself)"
            )
    for trace in traces:
        size = trace.meta.world_size
        if size is not None and _rank(trace) >= size:
            raise TraceError(
                f"cannot place {trace.meta.path}: it is of rank {_rank(trace)} of a run of "
                f"{size} ranks; correct its distributedInfo"
            )


def _check_run(metas: Sequence[TraceMeta]) -> None:
    """Refuse files whose own words exclude that they are of one run."""
    for what in ("world_size", "backend"):
        stated = [meta for meta in metas if getattr(meta, what) is not None]
        for meta in stated[1:]:
            _refuse_unless_equal(
                what, (stated[0], getattr(stated[0], what)), (meta, getattr(meta, what))
            )
    by_name: dict[str, dict[tuple[int, ...], dict[int, TraceMeta]]] = {}
    for meta in metas:
        for group in meta.process_groups:
            # Names may be given anew by every rank, so they are compared among members only.
            if meta.rank is not None and meta.rank in group.ranks:
                stated_by = by_name.setdefault(group.name, {}).setdefault(group.ranks, {})
                stated_by.setdefault(meta.rank, meta)
    for name, groups in by_name.items():
        _check_group(name, groups)


def _check_group(name: str, groups: Mapping[tuple[int, ...], Mapping[int, TraceMeta]]) -> None:
    """Refuse two groups of this name that each list a rank which states the other.

    Args:
        groups: by the ranks listed, the members that state it.
    """
    if len(groups) == 1:
        return
    of_member: dict[int, list[tuple[int, ...]]] = {}
    for ranks in groups:
        for rank in set(ranks):
            of_member.setdefault(rank, []).append(ranks)
    for ranks, stated_by in groups.items():
        for rank, meta in stated_by.items():
            for others in of_member[rank]:
                for other in () if others == ranks else groups[others].keys() & set(ranks):
                    _refuse_unless_equal(
                        f"ranks of process group {name!r}",
                        (meta, ranks),
                        (groups[others][other], others),
                    )


def _refuse_unless_equal(
    what: str, first: tuple[TraceMeta, object], other: tuple[TraceMeta, object]
) -> None:
    if first[1] != other[1]:
        raise TraceError(
            f"these files are of different runs: {first[0].path} states {what} {first[1]}, "
            f"{other[0].path} states {other[1]}; load each run by itself"
        )
