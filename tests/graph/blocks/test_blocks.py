"""Blocks of generated jobs, whose truth is known, with the program's own marks hidden."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from foretrace.graph import (
    DEVICE_KINDS,
    NO_LAYER,
    Corrections,
    NodeKind,
    Part,
    Phase,
    blocks_of,
)
from foretrace.graph.blocks.corrections import Correction
from foretrace.graph.blocks.facts import phase_of_annotation, phase_of_operator
from tests.graph.block_truth import judged
from tests.graph.recorded import recording_of
from tests.truth import TRANSFORMER_LAYER, FileStyle, JobConfig, Work, make_job

HIDDEN = FileStyle(annotations=False)
PLAIN = JobConfig(
    num_layers=3, num_microbatches=2, num_steps=2, num_optimizer_kernels=2, style=HIDDEN
)
RIGHT = 0.99

DROPOUT = Work(
    op="aten::native_dropout",
    kernel="void at::native::fused_dropout_kernel_vec<c10::BFloat16, float>",
    family="elementwise",
    forward_ns=40_000,
    backward_op="NativeDropoutBackward0",
    backward_kernels=(("void at::native::masked_scale_kernel<c10::BFloat16>", 30_000),),
)
WITH_DROPOUT = (*TRANSFORMER_LAYER[:4], DROPOUT, *TRANSFORMER_LAYER[4:], DROPOUT)
EXPERTS = (
    *TRANSFORMER_LAYER[:5],
    Work(op="aten::topk", kernel="void gatherTopK", family="elementwise", forward_ns=60_000),
    Work(
        op="moe::grouped_gemm",
        kernel="void moe::grouped_gemm<cutlass::bfloat16_t>",
        family="gemm",
        forward_ns=600_000,
        backward_op="GroupedGemmBackward",
        backward_kernels=(("void moe::grouped_gemm_backward", 1_000_000),),
    ),
    Work(
        op="aten::index_add", kernel="void indexFuncLarge", family="elementwise", forward_ns=50_000
    ),
)
LARGE = tuple(
    replace(
        work,
        kernel=f"{work.kernel} // large",
        forward_ns=3 * work.forward_ns,
        backward_kernels=tuple((name, 3 * time_ns) for name, time_ns in work.backward_kernels),
    )
    for work in TRANSFORMER_LAYER
)

JOBS = {
    "two microbatches, buckets": replace(PLAIN, tp=2, dp=2),
    "interleaved pipeline": replace(PLAIN, pp=2, num_microbatches=4, dp=2),
    "all forward, all backward": replace(PLAIN, pp=2, num_microbatches=3, schedule="gpipe"),
    "checkpoint function": replace(PLAIN, tp=2, dp=2, recompute="reentrant"),
    "checkpoint hooks": replace(PLAIN, tp=2, dp=2, recompute="hooks"),
    "checkpoints in a pipeline": replace(PLAIN, pp=2, num_microbatches=4, recompute="reentrant"),
    "ring exchange": replace(PLAIN, tp=2, dp=2, ring_exchange=True),
    "layers of two sizes": replace(PLAIN, num_layers=4, layer_kinds=(TRANSFORMER_LAYER, LARGE)),
    "dropout": replace(PLAIN, layer_kinds=(WITH_DROPOUT,)),
    "no dropout in the middle": replace(
        PLAIN,
        num_layers=6,
        layer_kinds=(WITH_DROPOUT, *4 * (TRANSFORMER_LAYER,), WITH_DROPOUT),
    ),
    "dense and experts in turns": replace(
        PLAIN, num_layers=4, layer_kinds=(TRANSFORMER_LAYER, EXPERTS)
    ),
    "one dense layer first": replace(
        PLAIN, num_layers=6, layer_kinds=(TRANSFORMER_LAYER, *5 * (EXPERTS,))
    ),
    "two layers": replace(PLAIN, num_layers=2, dp=2),
    "several layers in a bucket": replace(PLAIN, num_layers=5, dp=2, layers_per_bucket=2),
    "one graph launch updates": replace(PLAIN, dp=2, cuda_graph=True),
    "whole microseconds": replace(PLAIN, tp=2, style=replace(HIDDEN, whole_microseconds=True)),
    "no collective metadata": replace(
        PLAIN, tp=2, dp=2, style=replace(HIDDEN, collective_arguments=False)
    ),
    "forward only": replace(
        PLAIN, num_layers=12, has_backward=False, num_optimizer_kernels=0, num_microbatches=1
    ),
    "arrows, no numbers": replace(PLAIN, tp=2, dp=2, style=replace(HIDDEN, autograd_numbers=False)),
    "neither arrows nor numbers": replace(
        PLAIN, tp=2, dp=2, style=replace(HIDDEN, autograd_numbers=False, flows=False)
    ),
    "neither, in a pipeline": replace(
        PLAIN, pp=2, num_microbatches=4, style=replace(HIDDEN, autograd_numbers=False, flows=False)
    ),
}


@pytest.mark.parametrize("job", list(JOBS))
def test_device_time_lands_in_the_right_block_without_marks(job: str) -> None:
    found = judged(JOBS[job])

    assert found.share("part", "phase", "layer") >= RIGHT
    assert found.share("microbatch") >= RIGHT
    assert found.source("layers") == "repetition"


@pytest.mark.parametrize("marks", ["annotations", "modules"])
@pytest.mark.parametrize("num_layers", [1, 3])
def test_layers_that_are_named_are_those(
    marks: Literal["annotations", "modules"], num_layers: int
) -> None:
    config = replace(PLAIN, num_layers=num_layers, layer_marks=marks, style=FileStyle())

    found = judged(config)

    assert found.source("layers") == marks
    assert found.share("part", "phase", "layer", "microbatch") >= RIGHT


def test_marks_around_a_checkpointed_layer_number_its_recompute_too() -> None:
    found = judged(replace(PLAIN, layer_marks="modules", recompute="hooks", style=FileStyle()))

    assert found.share("part", "phase", "layer", "microbatch") >= RIGHT


def test_forward_passes_that_follow_each_other_are_told_apart() -> None:
    config = replace(
        PLAIN, num_layers=4, has_backward=False, num_optimizer_kernels=0, num_microbatches=3
    )

    found = judged(config)

    assert found.share("part", "phase", "layer", "microbatch") >= RIGHT
    assert set(np.unique(found.recording.graph.layer).tolist()) == {-1, 0, 1, 2, 3}


def test_stages_count_layers_over_the_whole_pipeline() -> None:
    graph = judged(JOBS["interleaved pipeline"]).recording.graph
    layers = {
        rank: set(np.unique(graph.layer[(graph.rank == rank) & (graph.layer != NO_LAYER)]).tolist())
        for rank in graph.ranks
    }

    assert layers == {0: {0, 1, 2}, 1: {0, 1, 2}, 2: {3, 4, 5}, 3: {3, 4, 5}}


def test_what_joins_backward_to_forward_is_said() -> None:
    sources = [
        judged(JOBS[job]).source("backward layers")
        for job in ("dropout", "arrows, no numbers", "neither arrows nor numbers")
    ]

    assert sources == ["sequence numbers", "arrows", "order"]


def test_one_layer_is_not_made_into_several_and_its_phases_stand() -> None:
    found = judged(replace(PLAIN, num_layers=1, dp=2))

    assert not found.source("layers")
    assert (found.recording.graph.layer == NO_LAYER).all()
    assert found.share("phase") >= RIGHT
    assert any("no layers were found" in each.text for each in found.recording.findings)


def test_a_share_is_the_time_that_has_an_answer() -> None:
    recording = judged(JOBS["two microbatches, buckets"]).recording
    graph = recording.graph
    work = graph.is_of(*DEVICE_KINDS, NodeKind.FINISH)

    layers = next(each for each in recording.block_evidence if each.about == "layers")

    in_layers = graph.measured_ns[work & (graph.layer != NO_LAYER)].sum()
    assert layers.share == pytest.approx(in_layers / graph.measured_ns[work].sum())
    assert layers.is_inferred


def test_both_ends_and_the_meeting_of_a_communication_have_one_block() -> None:
    graph = judged(JOBS["two microbatches, buckets"]).recording.graph
    columns = (graph.part, graph.phase, graph.layer, graph.microbatch)

    for number in range(len(graph.collectives)):
        nodes = np.flatnonzero(graph.collective == number)
        assert {NodeKind(kind) for kind in graph.kind[nodes].tolist()} == {
            NodeKind.ARRIVE,
            NodeKind.HUB,
            NodeKind.FINISH,
        }
        for column in columns:
            assert len(set(column[nodes].tolist())) == 1


def test_a_launch_belongs_to_what_it_launches() -> None:
    graph = judged(JOBS["checkpoint hooks"]).recording.graph
    launches = graph.nodes_of(NodeKind.LAUNCH)
    successors: dict[int, int] = {}
    for node in np.flatnonzero(graph.is_device).tolist():
        for before in graph.predecessor[graph.first_edge[node] : graph.first_edge[node + 1]]:
            if graph.kind[before] == NodeKind.LAUNCH:
                successors[int(before)] = node

    assert len(successors) > len(launches) / 2
    for launch, node in successors.items():
        for column in (graph.part, graph.phase, graph.layer, graph.microbatch):
            assert column[launch] == column[node]


def test_loading_is_the_loader_s_host_time() -> None:
    graph = judged(replace(PLAIN, style=FileStyle(), data_loading_ns=30_000_000)).recording.graph

    longest = np.argsort(-graph.measured_ns * (graph.kind == NodeKind.HOST_SEGMENT))[:2]

    assert (graph.phase[longest] == Phase.DATA).all()
    assert (graph.part[longest] == Part.DATA).all()


def test_a_model_without_layers_has_none() -> None:
    graph = recording_of(make_job(JobConfig(layer=(), num_steps=1))).graph

    assert (graph.layer == NO_LAYER).all()


def test_a_loader_that_an_older_profiler_calls_an_operator_loads() -> None:
    name = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"

    assert phase_of_operator(name) is phase_of_annotation(name) is Phase.DATA


def test_the_table_holds_every_node_and_all_time_once() -> None:
    graph = judged(JOBS["two microbatches, buckets"]).recording.graph

    table = blocks_of(graph)

    assert table.num_nodes.sum() == (graph.rank >= 0).sum()
    work = graph.is_of(*DEVICE_KINDS, NodeKind.FINISH)
    assert table.work_ns.sum() == graph.measured_ns[work].sum()
    rows = list(
        zip(
            table.rank, table.step, table.part, table.phase, table.layer, table.microbatch,
            strict=True,
        )
    )  # fmt: skip
    assert len(set(rows)) == len(rows)
    assert table.to_polars().height == len(table)
    assert table.to_polars()["work_ns"].sum() == table.work_ns.sum()
    assert table.share_assigned > RIGHT
    first = {
        table.names[table.first_operator[row]]
        for row in np.flatnonzero((table.part == Part.LAYER) & (table.phase == Phase.FORWARD))
    }
    assert first == {"FusedLayerNormAffineFunction"}


def test_a_rule_s_layers_come_before_repetition() -> None:
    rules = (Correction("operator", "aten::linear", part=Part.LAYER),)
    config = replace(PLAIN, num_microbatches=1)

    found = judged(config, Corrections(rules))

    assert found.source("layers") == "rules"
    numbers = np.unique(found.recording.graph.layer)
    assert numbers.tolist() == list(range(-1, 4 * config.num_layers))


def test_a_rule_says_where_layers_begin() -> None:
    rules = (Correction("operator", "FusedLayerNormAffineFunction", begins_layer=True),)

    found = judged(replace(PLAIN, num_layers=1, dp=2), Corrections(rules))

    assert found.source("layers") == "rules"
    one_layer = found.share("part", "phase", "layer")
    three = judged(replace(PLAIN, dp=2), Corrections(rules)).share("part", "phase", "layer")
    assert three >= RIGHT
    assert one_layer >= 0.95  # where the last layer ends is not said: the loss counts to it


def test_rules_about_operators_and_kernels_name_parts_and_phases() -> None:
    rules = (
        Correction("operator", "aten::cross_entropy_loss", part=Part.HEAD),
        Correction("kernel", "*flash_fwd*", phase=Phase.DATA),
    )

    graph = judged(PLAIN, Corrections(rules)).recording.graph

    assert not (graph.part == Part.LOSS).any()
    assert (graph.part == Part.HEAD).any()
    flash = [index for index, name in enumerate(graph.names) if "flash_fwd" in name]
    assert (graph.phase[np.isin(graph.name, flash)] == Phase.DATA).all()


def test_rules_about_modules_and_annotations_name_parts() -> None:
    config = replace(PLAIN, layer_marks="modules", style=FileStyle())
    rules = (
        Correction("module", "TransformerLayer_1", part=Part.HEAD),
        Correction("annotation", "Optimizer.step*", part=Part.DATA),
    )

    graph = judged(config, Corrections(rules)).recording.graph

    assert set(np.unique(graph.layer[graph.part == Part.LAYER]).tolist()) == {0, 2}
    assert (graph.part == Part.HEAD).any()
    updates = [index for index, name in enumerate(graph.names) if "FusedAdam" in name]
    assert (graph.part[np.isin(graph.name, updates)] == Part.DATA).all()


def test_stated_layers_per_stage_number_the_stages() -> None:
    config = JOBS["interleaved pipeline"]

    graph = judged(config, Corrections(layers_per_stage=(10, 3))).recording.graph
    refused = judged(config, Corrections(layers_per_stage=(10, 3, 3))).recording

    assert set(np.unique(graph.layer[graph.rank == 2]).tolist()) == {-1, 10, 11, 12}
    assert any("layers_per_stage" in each.text for each in refused.findings)
