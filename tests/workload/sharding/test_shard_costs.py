"""Costs of shards against TorchRec's formulas, worked out by hand."""

from __future__ import annotations

import pytest

from foretrace.machine import load_machine
from foretrace.workload import LookupWork, PlannerRates, TableScheme, shard_cost

RATES = PlannerRates(memory_bytes_per_ns=1000, inside_bytes_per_ns=100, across_bytes_per_ns=10)
# 16 ranks in hosts of 4, 50 samples each: 800 samples, 10 lookups each.
WORK = LookupWork(batch=50, num_ranks=16, ranks_per_host=4, pooling=10.0, number_bytes=4.0)


@pytest.mark.parametrize(
    ("scheme", "input_ns", "lookup_ns", "output_ns"),
    [
        # 8,000 ids of 8 bytes; 8,000 rows of 64 x 4 bytes; 800 vectors of 64 x 4 bytes
        (TableScheme.TABLE, 6_400, 2_048, 20_480),
        (TableScheme.COLUMN, 6_400, 2_048, 20_480),
        # a sixteenth of the ids and rows
        (TableScheme.ROW, 400, 128, 20_480),
        # a quarter; vectors inside the host, then a quarter of them across
        (TableScheme.TABLE_ROW, 1_600, 512, 2_048 + 5_120),
        # 50 samples of its own; gradients of 500 rows
        (TableScheme.DATA, 0, 128, 12_800),
    ],
)
def test_a_shard_costs_what_the_closed_form_says(
    scheme: TableScheme, input_ns: float, lookup_ns: float, output_ns: float
) -> None:
    cost = shard_cost(scheme, WORK, num_rows=500, num_columns=64, rates=RATES)

    assert cost.input_ns == pytest.approx(input_ns)
    assert cost.lookup_ns == pytest.approx(lookup_ns)
    assert cost.output_ns == pytest.approx(output_ns)
    assert cost.total_ns == pytest.approx(input_ns + lookup_ns + output_ns)


def test_rates_are_those_of_torchrec_unless_a_machine_is_given() -> None:
    machine = load_machine("zionex-128")

    assert PlannerRates().memory_bytes_per_ns == pytest.approx(963.15, rel=1e-4)  # 897 GiB/s
    found = PlannerRates.of(machine)
    assert found.memory_bytes_per_ns == machine.chip.memory_bytes_per_ns
    assert found.inside_bytes_per_ns > found.across_bytes_per_ns
