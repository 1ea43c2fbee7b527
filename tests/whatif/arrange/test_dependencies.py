"""Waits between streams that were inferred, in an order in which they cannot be."""

from __future__ import annotations

import numpy as np

from foretrace.graph import EdgeKind, Edges
from foretrace.whatif.arrange.dependencies import without_guesses_back


def test_only_inferred_waits_for_what_is_issued_later_give_way() -> None:
    kinds = (EdgeKind.INTER_STREAM_INFERRED, EdgeKind.INTER_STREAM, EdgeKind.STREAM)
    forward = [Edges.of(kind, np.array([1]), np.array([2])) for kind in kinds]
    back = [Edges.of(kind, np.array([4]), np.array([3])) for kind in kinds]

    found = without_guesses_back(Edges.joined([*forward, *back]))

    assert list(zip(found.source.tolist(), found.kind.tolist(), strict=True)) == [
        (1, kinds[0]),
        (1, kinds[1]),
        (1, kinds[2]),
        (4, kinds[1]),
        (4, kinds[2]),
    ]
