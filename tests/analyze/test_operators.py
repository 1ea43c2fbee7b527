from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from time import perf_counter

import numpy as np
import pytest
from hypothesis import given

import foretrace as ft
from foretrace.analyze import WAITING, OperatorTable, is_compute, operators
from foretrace.analyze.calls import calls_of, step_of
from foretrace.base import GraphError, ModelError, ScenarioError
from foretrace.graph import Collectives, NodeKind, Timeline
from foretrace.simulate import simulate
from tests.analyze.strategies import timelines
from tests.graph.recorded import recording_of
from tests.graphs import GraphBuilder
from tests.truth import JobConfig, KernelFamily, make_job

PRODUCT = '{"dims":[[64,128],[128,32]],"types":["float","float"]}'
PRODUCT_FLOPS = 2 * 64 * 128 * 32
PRODUCT_BYTES = 4 * (64 * 128 + 128 * 32 + 64 * 32)
GEMM, SPLIT_K = "ampere_sgemm_32x32_nn", "void splitKreduce_kernel<32, 16>"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>>"


def _kernels(rows: list[tuple[str, str, str, int]]) -> Timeline:
    """Kernels one after the other on one stream: name, operator, shapes, duration."""
    build = GraphBuilder()
    before: list[int] = []
    for name, operator, shapes, takes_ns in rows:
        before = [
            build.add(
                NodeKind.KERNEL,
                lane="stream 7",
                name=name,
                operator=operator,
                shapes=shapes,
                takes_ns=takes_ns,
                after=before,
            )
        ]
    return simulate(build.graph())


def _row(table: OperatorTable, kind: str) -> tuple[int, int, int, int | None, int | None]:
    (row,) = [row for row in table.by("class") if row.kind == kind]
    return row.num_kernels, row.num_calls, row.time_ns, row.flops, row.num_bytes


def test_product_and_its_reduction_are_one_call_with_one_calls_work() -> None:
    pair = [(GEMM, "aten::mm", PRODUCT, 90), (SPLIT_K, "aten::mm", PRODUCT, 10)]

    table = operators(_kernels(pair * 3))

    assert _row(table, "gemm") == (6, 3, 300, 3 * PRODUCT_FLOPS, 3 * PRODUCT_BYTES)
    (row,) = table.by("operator")
    assert row.flops_per_ns == 3 * PRODUCT_FLOPS / 300


def test_kernels_that_follow_each_other_alike_are_calls_of_their_own() -> None:
    table = operators(_kernels([(GEMM, "aten::mm", PRODUCT, 90)] * 4))

    assert _row(table, "gemm")[:2] == (4, 4)


def test_products_of_two_kernels_with_equal_shapes_are_two_calls() -> None:
    """As in the backward of a square layer, whose two products differ in their transposes."""
    pair = [("volta_sgemm_128x64_nn", "aten::mm", PRODUCT, 9)]
    pair += [("volta_sgemm_128x64_nt", "aten::mm", PRODUCT, 9)]

    assert _row(operators(_kernels(pair * 2)), "gemm")[:2] == (4, 4)


def test_helpers_before_the_main_kernel_begin_no_call() -> None:
    shapes = (
        '{"dims":[[1,8,9,9],[8,8,3,3],[1,8,9,9]],"types":["float","float","float"],'
        '"inputs":["","","","","","","","","","","[True, True, False]"]}'
    )
    layout = "void cudnn::ops::nchwToNhwcKernel<float, float, float>"
    call = [(layout, "aten::convolution_backward", shapes, 5)] * 2
    call += [("cutlass_tensorop_s1688dgrad", "aten::convolution_backward", shapes, 50)]
    call += [("cutlass_tensorop_s1688wgrad", "aten::convolution_backward", shapes, 40)]

    table = operators(_kernels(call * 2))

    assert _row(table, "convolution")[:3] == (4, 2, 180)
    assert _row(table, "copy")[:3] == (4, 0, 20)
    (row,) = table.by("operator")[:1]
    assert row.worked_ns == 200  # the layout changes are part of the operator's time


def test_fp32_on_matrix_units_is_called_tf32() -> None:
    name = "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_64x64_32x6_tn_align4>"

    kinds = [operators(_kernels([(each, "aten::mm", PRODUCT, 9)])).rows[0] for each in (name, GEMM)]

    assert [row.dtype for row in kinds] == ["tf32", "fp32"]


def test_kernel_without_shapes_has_time_and_no_work() -> None:
    table = operators(_kernels([(ADD, "aten::add", "", 7), (ADD, "", "", 5)]))

    assert _row(table, "elementwise") == (2, 2, 12, None, None)
    assert table.unrecognised.time_ns == 0


def test_unrecognised_names_are_listed_with_the_longest_first() -> None:
    table = operators(
        _kernels(
            [("frob", "", "", 5), ("grob", "", "", 15), (ADD, "", "", 60), ("frob", "", "", 20)]
        )
    )

    assert table.unrecognised.names == (("frob", 25), ("grob", 15))
    assert table.unrecognised.share == 0.4


def test_transfer_and_waiting_are_told_apart_and_belong_to_ranks() -> None:
    build = GraphBuilder()
    work = {
        rank: [build.add(NodeKind.KERNEL, rank=rank, lane="stream 7", name=ADD, takes_ns=takes_ns)]
        for rank, takes_ns in ((0, 100), (1, 300))
    }
    build.collective(work, transfer_ns=40)

    table = operators(simulate(build.graph()))

    times = {row.kind: row.time_by_rank_ns for row in table.rows}
    assert times == {"elementwise": (100, 300), "allreduce": (40, 40), WAITING: (200, 0)}
    assert table.time_by_rank_ns == (340, 340)
    assert sum(row.share for row in table.rows) == pytest.approx(1.0)


def test_collectives_move_their_payload_in_their_transfers_time() -> None:
    build = GraphBuilder()
    for number in range(2):
        build.collective({rank: [] for rank in (0, 1)}, transfer_ns=40 + number)
    graph = build.graph()
    known, unknown = graph.collectives
    graph = replace(graph, collectives=Collectives.of((replace(known, num_bytes=1000), unknown)))

    (row,) = operators(simulate(graph)).rows

    assert (row.num_bytes, row.worked_ns, row.time_ns) == (2000, 80, 162)
    assert row.bytes_per_ns == 25


def test_operators_of_a_rank_without_device_count() -> None:
    build = GraphBuilder()
    build.add(NodeKind.OPERATOR, name="aten::mm", operator="aten::mm", shapes=PRODUCT, takes_ns=50)

    table = operators(simulate(build.graph()))

    assert _row(table, "gemm") == (1, 1, 50, PRODUCT_FLOPS, PRODUCT_BYTES)


def test_only_the_step_asked_for_counts() -> None:
    build = GraphBuilder()
    for step, takes_ns in (("ProfilerStep#1", 10), ("ProfilerStep#2", 30)):
        begin = build.add(NodeKind.STEP_BEGIN, step=step)
        build.add(
            NodeKind.KERNEL, lane="stream 7", name=ADD, takes_ns=takes_ns, step=step, after=[begin]
        )
    timeline = simulate(build.graph())

    table = operators(timeline, step="ProfilerStep#2")

    assert (table.step_name, table.time_ns) == ("ProfilerStep#2", 30)
    with pytest.raises(GraphError, match="no step 'x'"):
        operators(timeline, step="x")


def test_empty_graph_has_an_empty_table() -> None:
    build = GraphBuilder()
    build.add(NodeKind.RANK_START)

    table = operators(simulate(build.graph()))

    assert (table.rows, table.time_ns, table.unrecognised.share) == ((), 0, 0.0)
    assert table.to_polars().height == 0


def test_adding_up_by_what_is_unknown_is_refused() -> None:
    with pytest.raises(ValueError, match="'class', 'family' or 'operator'"):
        operators(_kernels([(ADD, "", "", 5)])).by("name")  # type: ignore[arg-type]


@given(timeline=timelines())
def test_rows_of_any_step_sum_to_its_device_time(timeline: Timeline) -> None:
    graph = timeline.graph
    table = operators(timeline)

    chosen = np.ones(graph.num_nodes, np.bool_)
    if table.step_name is not None:
        chosen = graph.step == graph.step_names.index(table.step_name)
    took_ns = timeline.end_ns - timeline.start_ns
    counts = is_compute(graph) | (graph.kind == NodeKind.FINISH)
    waited_ns = sum(row.time_ns for row in table.rows if row.kind == WAITING)
    assert table.time_ns == took_ns[chosen & counts].sum() + waited_ns
    for by in ("class", "family", "operator"):
        assert sum(row.time_ns for row in table.by(by)) == table.time_ns
    json.dumps(table.as_json())


@given(timeline=timelines())
def test_calls_are_numbered_without_gaps_along_lanes(timeline: Timeline) -> None:
    calls = calls_of(timeline, step_of(timeline, None))

    assert set(calls.call.tolist()) == set(range(calls.num_calls))
    assert (np.diff(calls.call) >= 0).all()


# What the generator calls its kernels' families, in our words.
TRUE_CLASS = {"norm": "normalisation", "memset": "copy"}


@pytest.mark.slow
def test_classes_of_a_generated_job_take_the_time_that_its_kernels_did() -> None:
    config = JobConfig(tp=2, pp=2, num_microbatches=2, num_steps=1)
    for job in (make_job(config), make_job(config).after(KernelFamily("gemm", 0.5))):
        true_ns: dict[tuple[str, int], int] = {}
        for rank in range(job.num_ranks):
            for done in job.operations(rank):
                kind = TRUE_CLASS.get(done.family, done.family)
                took_ns = done.end_ns - done.start_ns
                true_ns[kind, rank] = true_ns.get((kind, rank), 0) + took_ns

        table = operators(recording_of(job).measured)

        found_ns: dict[tuple[str, int], int] = {}
        for row in table.by("class"):
            is_collective = row.kind in {"allreduce", "sendrecv", WAITING}
            kind = "communication" if is_collective else row.kind
            for rank, time_ns in zip(table.ranks, row.time_by_rank_ns, strict=True):
                if time_ns:
                    found_ns[kind, rank] = found_ns.get((kind, rank), 0) + time_ns
        assert found_ns.keys() == true_ns.keys()
        for key, time_ns in true_ns.items():  # clocks that drift by ppm make the difference
            assert found_ns[key] == pytest.approx(time_ns, rel=1e-4, abs=20), key
        assert table.unrecognised.share == 0


@pytest.mark.slow
def test_megatron_layers_do_the_arithmetic_that_their_sizes_say(data_dir: Path) -> None:
    """40 layers, hidden 4096, ffn 16384, 2048 tokens x 4, 8 ranks: products are 24 h^2 + 4 s h."""
    job = ft.load(data_dir / "traces" / "megatron-tp8")
    begin = perf_counter()

    table = operators(job.measured)

    took_s = perf_counter() - begin
    (row,) = [row for row in table.by("class") if row.kind == "gemm"]
    tokens, hidden, vocabulary = 4 * 2048, 4096, 51200
    per_token = 40 * (24 * hidden**2 + 4 * 2048 * hidden) + 2 * hidden * vocabulary
    assert row.flops == tokens * per_token
    assert row.flops_per_ns is not None
    assert 150_000 < row.flops_per_ns < 312_000  # below the A100's peak, as any reading must be
    assert took_s < 1
    assert table.unrecognised.share == 0
    assert json.loads(json.dumps(table.as_json()))["step"] == table.step_name


@pytest.mark.slow
def test_unrecognised_share_of_every_public_trace_is_below_five_percent(data_dir: Path) -> None:
    root = data_dir / "traces"
    shares: dict[str, float] = {}
    for path in [root / "megatron-tp8", *sorted(root.rglob("*.json.gz"))]:
        if path.name.startswith("et_") or "_et_" in path.name or "_et." in path.name:
            continue  # an execution trace: no kernels
        try:
            job = ft.load(path)
        except ModelError:  # not a profiler's file
            continue
        shares[str(path.relative_to(root))] = operators(job.measured).unrecognised.share

    # Its device rows are named for packets of a command processor, not for kernels.
    assert shares.pop("odd-files/mtia_inference_rank_0.json.gz") > 0.05
    assert len(shares) > 25
    assert max(shares.values()) < 0.05


def test_only_the_work_asked_for_counts_and_shares_are_of_it() -> None:
    timeline = _kernels([(GEMM, "aten::mm", PRODUCT, 30), (ADD, "aten::add_", "", 10)])

    found = operators(timeline, of="gemm ranks:0")

    assert [(row.kind, row.time_ns, row.share) for row in found.rows] == [("gemm", 30, 1.0)]
    with pytest.raises(ScenarioError, match="no family here is 'atention'"):
        operators(timeline, of="atention")
