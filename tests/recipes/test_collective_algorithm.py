"""CONTRIBUTING's recipe for a collective algorithm, followed in a copy of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.recipes.package import copied, printed

BEST = (
    "    best_ns: Float64s = np.minimum(np.minimum(with_flags_ns, with_few_ns), with_fences_ns)\n"
)
DOUBLING = """    # Recursive doubling: everything, as often as the number of ranks can be halved.
    rounds = np.ceil(np.log2(num_ranks))
    doubling_ns = rounds * (values["doubling_hop_ns"] + num_bytes / rate)
    if collective is CollectiveKind.ALL_REDUCE:
        best_ns = np.minimum(best_ns, doubling_ns)
"""
CONSTANT = (
    '    Constant("doubling_hop_ns", "ns", "one hop of recursive doubling", 50, 20_000, 1_000),\n'
)
COSTS = """
import sys
import numpy as np
from foretrace.cost import CollectiveRequests, collective_costs
from foretrace.machine import load_machine

sizes = np.array([1_024, 1 << 30], np.int64)
zeros = np.zeros(2, np.int32)
asked = CollectiveRequests(
    collective=zeros, num_bytes=sizes, dtype=zeros, group=zeros,
    collectives=(sys.argv[1],), dtypes=("bf16",), groups=(tuple(range(8)),),
)
print(*collective_costs(asked, load_machine("dgx-h100")).duration_ns.tolist())
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with the algorithm: a term and its constant in one file, its value in those fitted."""
    folder = tmp_path_factory.mktemp("package")
    cost = copied(folder) / "cost"
    domain = cost / "network" / "domain.py"
    text = domain.read_text(encoding="utf-8")
    assert BEST in text
    text = text.replace(BEST, BEST + DOUBLING).replace(
        "CONSTANTS = (\n", f"CONSTANTS = (\n{CONSTANT}"
    )
    domain.write_text(text, encoding="utf-8")
    for fitted in (cost / "constants").glob("collectives-*.toml"):
        written = fitted.read_text(encoding="utf-8")
        value = "values = { doubling_hop_ns = 100.0, start_ns"
        fitted.write_text(re.sub(r"values = \{ start_ns", value, written), encoding="utf-8")
    return folder


def durations(package: Path, collective: str) -> list[int]:
    """What 1 KiB and 1 GiB take."""
    return [round(float(one)) for one in printed(package, "-c", COSTS, collective).split()]


def test_the_algorithm_is_taken_where_it_is_the_shortest_and_nowhere_else(
    package: Path, repository: Path
) -> None:
    before = durations(repository / "src", "all_reduce")
    after = durations(package, "all_reduce")

    assert after[0] < before[0]
    assert after[1] == before[1]
    assert durations(package, "all_gather") == durations(repository / "src", "all_gather")
