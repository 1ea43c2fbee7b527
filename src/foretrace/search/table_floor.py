"""`table_floor`: what no placement of tables is below by its account, and the ways that say so.

A linear program. Ranks share all work as if it were sand, but the fullest has at least the most
that a table takes of any rank, and what a table makes use of has begun. Tables may be divided among
their ways, unless there is time to keep them whole: then the program is an integer one, and the
floor is what its search has proven by then.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, hstack, vstack

from foretrace.base import Float64s
from foretrace.search.table_account import BYTES, NUM_TIMED, TableAccount
from foretrace.workload import MemoryTier

_STDOUT = 1  # the descriptor
_US, _GB = 1e-3, 1e-9  # what times and bytes are counted in, so that all are of one size


@dataclass(frozen=True)
class TableFloor:
    """The program's answer."""

    least_ns: float  # no placement takes less
    ways: tuple[int, ...]  # by table, the option that it has most of


def table_floor(account: TableAccount, *, whole_s: float = 0.0) -> TableFloor | None:
    """The floor of an account; `None` if no placement has room.

    Args:
        account: costs and room.
        whole_s: seconds for the program of whole tables.
    """
    tables, room = len(account.options), account.room
    ways = [(table, one) for table, own in enumerate(account.options) for one in own]
    table_of = np.array([table for table, _ in ways])
    lines = (*account.exchange, account.copied)
    none = csr_array((len(MemoryTier), len(lines)))
    totals = np.stack([one.total for _, one in ways])
    sizes = np.stack([totals[:, BYTES[tier]] for tier in MemoryTier]) * _GB
    most = (room.hbm * room.num_ranks, room.host * room.num_hosts, room.ssd * room.num_hosts)
    at_most = vstack([hstack([sizes, none, none]), *_rows(account)], format="csr")
    upper = np.zeros(at_most.shape[0])
    upper[: len(most)] = np.array(most) * _GB
    of_table = csr_array((np.ones(len(ways)), (table_of, np.arange(len(ways)))))
    program = partial(
        linprog,
        # Shares of ways, how long the fullest rank has to do of each, whether that has begun.
        np.concatenate(
            [np.zeros(len(ways)), np.ones(len(lines)), [one.start_ns * _US for one in lines]]
        ),
        A_ub=at_most,
        b_ub=upper,
        A_eq=hstack([of_table, csr_array((tables, 2 * len(lines)))], format="csr"),
        b_eq=np.ones(tables),
        method="highs",
    )
    found = program()
    if not found.success:
        return None
    least, solved = found.fun, found.x
    if whole_s > 0:
        is_whole = np.repeat([1, 0, 1], [len(ways), len(lines), len(lines)])
        with _silenced():
            whole = program(integrality=is_whole, options={"time_limit": whole_s})
        # Without a bound where there was not even time for the first relaxation.
        least = max(least, whole.get("mip_dual_bound") or 0.0)
        solved = solved if whole.x is None else whole.x
    first = np.searchsorted(table_of, np.arange(tables + 1)).tolist()
    shares = [solved[begin:end] for begin, end in pairwise(first)]
    return TableFloor(float(least) / _US, tuple(int(own.argmax()) for own in shares))


@contextmanager
def _silenced() -> Iterator[None]:
    """Without the line that HiGHS (SciPy 1.17) prints whenever it solves a rounded program again.

    It is C's, beside all that Python can redirect, and would stand in the JSON of a command.
    """
    if os.name != "posix":
        yield
        return
    sys.stdout.flush()
    kept, nowhere = os.dup(_STDOUT), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, _STDOUT)
    try:
        yield
    finally:
        ctypes.CDLL(None).fflush(None)
        os.dup2(kept, _STDOUT)
        os.close(kept)
        os.close(nowhere)


def _rows(account: TableAccount) -> Iterator[csr_array]:
    """Rows of the program that are at most 0: of each resource, and of each of a table."""
    ways = [(table, one) for table, own in enumerate(account.options) for one in own]
    lines = (*account.exchange, account.copied)
    slopes_us = np.array([one.slope for one in lines]) * _US
    copied = np.array([[one.copied] for _, one in ways], np.float64)

    def taken(of_ranks: list[Float64s]) -> Float64s:
        found: Float64s = np.hstack([np.stack(of_ranks)[:, :NUM_TIMED], copied])
        return found

    shared = taken([one.total / account.room.num_ranks for _, one in ways])
    fullest = taken([one.rows.max(axis=0) for _, one in ways])
    none = csr_array((len(lines), len(lines)))
    yield hstack([(shared * slopes_us).T, -eye_array(len(lines)), none])
    table_of, column = np.array([table for table, _ in ways]), np.arange(len(ways))
    for at, slope_us in enumerate(slopes_us.tolist()):
        taker = np.zeros((len(account.options), len(lines)))
        taker[:, at] = -1.0
        own, no_other = fullest[:, at], csr_array(taker.shape)
        for values, parts in (
            (own * slope_us, (taker, no_other)),
            ((own > 0).astype(np.float64), (no_other, taker)),
        ):
            yield hstack([csr_array((values, (table_of, column))), *parts])
