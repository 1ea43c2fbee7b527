"""What holds for a scope because it holds around it."""

from __future__ import annotations

import numpy as np

from foretrace.base import Int32s, Int64s
from foretrace.graph._compiled import inherit


def inherited(parent: Int32s, own: Int64s, nothing: int, *, is_inner: bool) -> Int64s:
    """Each scope's value: its own or one from around it, int64[scopes].

    Args:
        parent: scope around each; -1.
        own: value of each scope itself.
        nothing: the value that stands for none.
        is_inner: whether the innermost value wins; else the outermost.
    """
    found = np.empty(len(parent), np.int64)
    inherit(parent, own.astype(np.int64), nothing, is_inner, found)
    return found
