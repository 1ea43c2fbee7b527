"""What operators without a cost model take with other shapes."""

from __future__ import annotations

import json

import numpy as np
import pytest

from foretrace.whatif.resize.resized import by_elements

VIEW, FILL, LONE = range(3)
TEXTS = tuple(
    json.dumps({"dims": [[size, 8]], "types": ["float"], "inputs": [""]})
    for size in (64, 256, 1024)
)
SMALL, MEDIUM, LARGE = range(3)


def ratios(*rows: tuple[int, int, int, float], shortest_ns: float = 1_000.0) -> list[float]:
    """Of operators from one shape to another, that took so long: new over old."""
    changes = np.array([(operator, old, new, -1) for operator, old, new, _ in rows], np.int32)
    took_ns = np.array([row[3] for row in rows])
    found = by_elements(changes, TEXTS, took_ns, shortest_ns)
    assert (found.low_ns <= found.duration_ns).all()
    assert (found.duration_ns <= found.high_ns).all()
    return [float(one) / 1e9 for one in found.duration_ns]


def test_what_takes_the_same_at_every_size_goes_on_to() -> None:
    assert ratios((VIEW, SMALL, MEDIUM, 3_000.0), (VIEW, MEDIUM, LARGE, 3_000.0)) == [1.0, 1.0]


def test_what_grows_with_its_size_grows_by_what_an_element_took() -> None:
    took = [(FILL, old, old + 1, 2_000.0 + 10.0 * 8 * 64 * 4**old) for old in (SMALL, MEDIUM)]

    found = ratios(*took)

    assert found[0] == pytest.approx(took[1][3] / took[0][3])
    assert found[1] == pytest.approx((2_000 + 10 * 8 * 1024) / took[1][3])


def test_of_one_size_the_start_is_that_of_the_shortest_operators() -> None:
    assert ratios((LONE, SMALL, MEDIUM, 900.0)) == [1.0]
    assert ratios((LONE, SMALL, MEDIUM, 9_000.0)) == pytest.approx([(1_000 + 4 * 8_000) / 9_000])
