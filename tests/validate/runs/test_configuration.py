"""A row becomes a model, a machine and a plan."""

from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import MachineError, WorkloadError
from foretrace.validate import PublishedRun, RunPrediction, RunStatus, predict_runs
from foretrace.validate.runs.configuration import machine_of, model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.workload import AdaptedModule, Adapters, Norm, Positions, Recompute, Sharding
from tests.validate.runs.sample import published


def prediction_of(run: PublishedRun) -> RunPrediction:
    return predict_runs([run])[0]


def test_columns_beat_the_preset_of_that_name(tmp_path: Path) -> None:
    model = model_of(published(tmp_path, layers=3, ffn=1000))

    assert (model.num_layers, model.feed_forward.width, model.vocabulary) == (3, 1000, 128256)
    assert model.norm is Norm.RMS


def test_a_learned_table_of_positions_is_as_long_as_the_sequence(tmp_path: Path) -> None:
    model = model_of(published(tmp_path, model="mpt-1b", seq_len=65536))

    assert (model.positions, model.context) == (Positions.LEARNED, 65536)


def test_an_unknown_model_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="'hal-9000', which is no known transformer"):
        model_of(published(tmp_path, model="hal-9000"))


def test_domains_hold_even_shares_of_a_job(tmp_path: Path) -> None:
    run = published(tmp_path, gpu="GB200", num_gpus=512, gpus_per_node=4, nvlink_domain=72)

    machine = machine_of(run)

    assert [tier.num_ranks for tier in machine.tiers] == [64, 512]


def test_a_network_of_the_table_beats_the_usual_hosts(tmp_path: Path) -> None:
    usual = machine_of(published(tmp_path, gpu="H100", num_gpus=64))
    slower = machine_of(published(tmp_path, gpu="H100", num_gpus=64, network="200 Gb/s"))
    stated = machine_of(published(tmp_path, gpu="RTX-4090", num_gpus=64, network="400 Gb/s"))

    assert [one.tiers[1].bytes_per_ns for one in (usual, slower, stated)] == [50.0, 25.0, 50.0]
    with pytest.raises(MachineError, match="no bandwidth of its network"):
        machine_of(published(tmp_path, gpu="RTX-4090", num_gpus=64))


@pytest.mark.parametrize("called", ["h100-sxm", "NVIDIA H100 80GB HBM3"])
def test_a_gpu_is_also_called_as_its_chip_or_as_devices_call_themselves(
    tmp_path: Path, called: str
) -> None:
    machine = machine_of(published(tmp_path, gpu=called))

    assert machine.host.chip.name == "h100-sxm"
    assert machine.host.name == machine_of(published(tmp_path, gpu="H100")).host.name


def test_an_unknown_gpu_names_those_that_are_known(tmp_path: Path) -> None:
    with pytest.raises(MachineError, match=r"ran on .abacus.*known are A100"):
        machine_of(published(tmp_path, gpu="abacus"))


def test_what_is_not_printed_is_tried_one_by_one(tmp_path: Path) -> None:
    run = published(tmp_path, recompute="", micro_batch="")

    planned = plans_of(run, model_of(run))

    assert planned.assumed == ("recompute", "micro_batch")
    assert [(plan.micro_batch, plan.recompute) for plan in planned.plans] == [
        (1, Recompute.NONE),
        (2, Recompute.NONE),
        (4, Recompute.NONE),
        (1, Recompute.SELECTIVE),
        (1, Recompute.FULL),
    ]


def test_shard_grad_op_gathers_once_a_microbatch(tmp_path: Path) -> None:
    run = published(tmp_path, software="llm-foundry", sharding="zero2", tp=1, pp=1, dp=8)

    plan = plans_of(run, model_of(run)).plans[0]

    assert (plan.sharding, plan.reshard_after_forward) == (Sharding.ZERO3, False)


def test_a_run_of_low_rank_adapters_trains_these_alone(tmp_path: Path) -> None:
    run = published(tmp_path, id="llama2-70b-lora-1")

    adapters = plans_of(run, model_of(run)).plans[0].adapters

    assert adapters == Adapters(rank=32, modules=(AdaptedModule.QKV,))


def test_a_layout_that_does_not_fit_says_the_arithmetic(tmp_path: Path) -> None:
    found = prediction_of(published(tmp_path, micro_batch=5))

    assert found.status is RunStatus.REFUSED
    assert "48" in found.why


def test_a_run_has_time_interval_roofline_and_memory(tmp_path: Path) -> None:
    found = prediction_of(published(tmp_path, peak_memory_gib=40.0))

    assert found.status is RunStatus.PREDICTED
    assert found.low_s is not None
    assert found.predicted_s is not None
    assert found.high_s is not None
    assert found.low_s < found.predicted_s < found.high_s
    assert found.roofline_s is not None
    assert 0 < found.roofline_s < found.predicted_s
    assert found.predicted_memory_gib is not None
    assert found.predicted_memory_gib > 1


def test_an_open_recompute_widens_the_interval(tmp_path: Path) -> None:
    known = prediction_of(published(tmp_path))
    opened = prediction_of(published(tmp_path, recompute=""))

    assert opened.status is RunStatus.ASSUMED
    assert "recompute" in opened.why
    assert opened.predicted_s == known.predicted_s
    assert opened.high_s is not None
    assert known.high_s is not None
    assert opened.high_s > 1.1 * known.high_s
