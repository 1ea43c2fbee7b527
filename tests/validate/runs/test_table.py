from __future__ import annotations

from pathlib import Path

import pytest

from foretrace.base import WorkloadError
from foretrace.validate import PublishedRun, read_runs, unread_columns, unread_rows
from foretrace.validate.runs.configuration import model_of
from foretrace.validate.runs.plans import plans_of
from foretrace.workload import ContextExchange, Recompute, RecomputeModule, Sharding
from tests.validate.runs.sample import DESCRIPTION, published, write_table


def with_columns(folder: Path, columns: dict[str, str], **changes: object) -> PublishedRun:
    """One run of a table that has further columns."""
    path = write_table(folder / "runs.csv", changes)
    header, row = path.read_text(encoding="utf-8").splitlines()
    names, cells = ",".join(columns), ",".join(columns.values())
    path.write_text(f"{header},{names}\n{row},{cells}\n", encoding="utf-8")
    (run,) = read_runs(path, DESCRIPTION)
    return run


def test_empty_cells_are_unknown(tmp_path: Path) -> None:
    run = published(tmp_path, recompute="", vp="", sequence_parallel="")

    assert (run.recompute, run.vp, run.sequence_parallel) == (None, None, None)
    assert run.family == "made-up"


def test_tokens_per_second_give_the_time_where_it_is_not_printed(tmp_path: Path) -> None:
    run = published(tmp_path, step_time_s="", tokens_per_s_per_gpu=4096)

    assert run.measured_s == pytest.approx(48 * 2048 / (4096 * 8))


def test_rows_that_cannot_be_read_are_left_out_by_name_and_the_others_stay(tmp_path: Path) -> None:
    no_batch: dict[str, object] = {"id": "second", "global_batch": ""}
    path = write_table(tmp_path / "runs.csv", {}, no_batch, {"id": "third", "layers": "many"})

    assert [run.id for run in read_runs(path, DESCRIPTION)] == ["made-up-1"]
    second, third = unread_rows(path, DESCRIPTION)
    assert "row 2 of" in second
    assert "'second' has no global_batch" in second
    assert "'third' has layers 'many'" in third


def test_a_table_without_a_needed_column_names_it(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    path.write_text("id,model\na,llama3-8b\n", encoding="utf-8")

    with pytest.raises(WorkloadError, match="lacks the columns gpu, num_gpus"):
        read_runs(path, DESCRIPTION)


@pytest.mark.parametrize("number", ["inf", "nan"])
def test_a_row_whose_number_has_no_end_is_left_out(tmp_path: Path, number: str) -> None:
    path = write_table(tmp_path / "runs.csv", {}, {"id": "second", "layers": number})

    assert [run.id for run in read_runs(path, DESCRIPTION)] == ["made-up-1"]
    assert f"layers '{number}', which is no number" in unread_rows(path, DESCRIPTION)[0]


def test_how_long_launches_take_is_a_column_and_in_the_plan(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    known = published(tmp_path)
    write_table(path, {})
    header, row = path.read_text(encoding="utf-8").splitlines()
    path.write_text(f"{header},launch_times\n{row},2.5\n", encoding="utf-8")

    (run,) = read_runs(path, DESCRIPTION)

    assert (known.launch_times, run.launch_times) == (None, 2.5)
    model = model_of(run)
    assert plans_of(run, model).plans[0].implementation.launch_times == 2.5
    assert plans_of(known, model).plans[0].implementation.launch_times is None


def test_columns_that_no_field_has_are_seen_by_rules_and_modules_are_recomputed(
    tmp_path: Path,
) -> None:
    columns = {"dispatcher": "hybridep", "recompute_modules": "layernorm core_attn"}
    run = with_columns(tmp_path, columns, recompute="")

    (plan,) = plans_of(run, model_of(run)).plans

    assert plan.dispatch.orders_tokens
    assert plan.recompute is Recompute.SELECTIVE
    assert plan.recompute_modules == (RecomputeModule.LAYER_NORM, RecomputeModule.CORE_ATTENTION)


def test_modules_that_nobody_knows_are_named(tmp_path: Path) -> None:
    run = with_columns(tmp_path, {"recompute_modules": "everything"})

    with pytest.raises(WorkloadError, match="modules called everything: known are core_attn"):
        plans_of(run, model_of(run))


def test_a_column_named_as_a_key_of_plans_states_it(tmp_path: Path) -> None:
    columns = {"overlap.gradients": "false", "parallelism.context_exchange": "all-to-all"}
    run = with_columns(tmp_path, columns, software="nemo-26.02")

    (plan,) = plans_of(run, model_of(run)).plans

    assert not plan.overlap.gradients
    assert plan.context_exchange is ContextExchange.ALL_TO_ALL
    with pytest.raises(WorkloadError, match=r"plans have no key .overlap\.gradient."):
        plans_of(with_columns(tmp_path, {"overlap.gradient": "false"}), model_of(run))


def test_as_many_layers_of_each_chunk_are_recomputed_as_a_column_says(tmp_path: Path) -> None:
    run = with_columns(tmp_path, {"recompute_layers": "3"}, recompute="full")

    (plan,) = plans_of(run, model_of(run)).plans

    assert plan.recompute_of_layer == ("full", "full", "full", "none") * 2


def test_replicas_follow_from_gpus_and_the_division_of_the_model(tmp_path: Path) -> None:
    run = published(tmp_path, dp="")

    (plan,) = plans_of(run, model_of(run)).plans

    assert plan.data == 2
    with pytest.raises(WorkloadError, match="does not say dp"):
        plans_of(published(tmp_path, dp="", num_gpus=6), model_of(run))


def test_states_that_a_host_divides_are_whole_on_each(tmp_path: Path) -> None:
    run = published(tmp_path, gpu="H100", num_gpus=16, tp=1, pp=1, dp=16, sharding="hsdp")

    (plan,) = plans_of(run, model_of(run)).plans

    assert (plan.sharding, plan.shard_ranks) == (Sharding.ZERO3, 8)


@pytest.mark.parametrize(
    ("called", "level"),
    [("FSDP2", Sharding.ZERO3), ("ddp", Sharding.NONE), ("ZeRO1", Sharding.ZERO1)],
)
def test_formats_and_shardings_are_read_in_any_case(
    tmp_path: Path, called: str, level: Sharding
) -> None:
    run = published(tmp_path, sharding=called, precision="BF16", pp=1, tp=1, dp=8)

    (plan,) = plans_of(run, model_of(run)).plans

    assert (plan.sharding, plan.precision.products) == (level, "bf16")


def test_columns_that_nothing_reads_are_named(tmp_path: Path) -> None:
    path = write_table(tmp_path / "runs.csv", {})
    header, row = path.read_text(encoding="utf-8").splitlines()
    path.write_text(
        f"{header},mood,dispatcher,recompute_layers,first_low_s\n{row},good,,,\n",
        encoding="utf-8",
    )

    (sentence,) = unread_columns(path, DESCRIPTION)

    assert sentence.startswith("nothing reads the columns mood of runs.csv")
    assert unread_columns(write_table(tmp_path / "runs.csv", {}), DESCRIPTION) == ()
