"""Training speeds that TorchRec's DLRM example printed, out of blocks, layout and simulation.

All on one AWS p4d host (8 A100-40GB). facebookresearch/dlrm, torchrec_dlrm/README.MD at
090956ee23; products in full 32 bit, since its `--allow_tf32` is off unless given. A simulated step
knows the device and the launches, not how the host reads its batch: the rows of few FLOPs are
bound by that, and say so here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from foretrace.cost import FittedCosts, Inflation
from foretrace.estimate.step_time import simulated_step
from foretrace.machine import load_machine
from foretrace.workload import (
    Implementation,
    Interaction,
    Plan,
    Precision,
    Recommender,
    TableOptimizer,
    TableSharding,
    blocks_of_recommender,
    layout,
    load_model,
)

_MIB = 2**20


@dataclass(frozen=True)
class Run:
    """One row of the README."""

    interaction: Interaction
    optimizer: TableOptimizer
    batch: int  # of one rank
    samples_per_s: float
    num_ranks: int = 8

    @property
    def measured_ms(self) -> float:
        """Time of one step."""
        return self.num_ranks * self.batch / self.samples_per_s * 1e3

    def simulated_ms(self) -> float:
        """Time of one step, as blocks, layout and simulation have it."""
        known = load_model("dlrm-mlperf-v2")
        assert isinstance(known, Recommender)
        model = replace(known, pooling=(1,) * known.num_tables, interaction=self.interaction)
        full = "fp32"
        precision = Precision(
            products=full,
            activations=full,
            parameters=full,
            gradients=full,
            reduced=full,
        )
        plan = Plan(
            data=self.num_ranks,
            micro_batch=self.batch,
            global_batch=self.num_ranks * self.batch,
            precision=precision,
            implementation=Implementation(fuses_optimizer=False),
            bucket_bytes=25 * _MIB,  # DistributedDataParallel's
        )
        tables = TableSharding(optimizer=self.optimizer, assumed_pooling=1.0)
        graph = layout(blocks_of_recommender(model, plan, tables), plan).graph
        done = simulated_step(graph, FittedCosts(load_machine("aws-p4d")), Inflation())
        return int(done.timeline.end_ns.max()) / 1e6


SGD, ADAGRAD = TableOptimizer.SGD, TableOptimizer.ADAGRAD
ROWS = (
    Run(Interaction.DOT, SGD, 256, 204_800),
    Run(Interaction.DOT, ADAGRAD, 2048, 925_696),
    Run(Interaction.CROSS, ADAGRAD, 2048, 901_120),
    Run(Interaction.CROSS, ADAGRAD, 16_384, 1_190_128),
)


@pytest.mark.parametrize("row", ROWS[2:])
def test_rows_of_many_flops_come_out_within_a_fifth(row: Run) -> None:
    assert row.simulated_ms() == pytest.approx(row.measured_ms, rel=0.2)


@pytest.mark.parametrize("row", ROWS[:2])
def test_rows_of_few_flops_leave_the_device_idle(row: Run) -> None:
    """So nothing that a device does decides them: the host's input does."""
    assert row.simulated_ms() < row.measured_ms / 1.5


def test_with_the_hosts_input_all_four_stand_in_order() -> None:
    """Two rows give the input's time by batch, a start and a time a sample; it hides the rest."""
    first, second = ROWS[0], ROWS[1]
    per_sample_ms = (second.measured_ms - first.measured_ms) / (second.batch - first.batch)
    start_ms = first.measured_ms - per_sample_ms * first.batch

    found = [max(row.simulated_ms(), start_ms + per_sample_ms * row.batch) for row in ROWS]

    speed = {
        row.samples_per_s: row.num_ranks * row.batch / ms
        for row, ms in zip(ROWS, found, strict=True)
    }
    slower_to_faster = [speed[printed] for printed in sorted(speed)]
    assert slower_to_faster == sorted(slower_to_faster)
    for predicted, row in zip(found[2:], ROWS[2:], strict=True):
        assert predicted == pytest.approx(row.measured_ms, rel=0.2)
