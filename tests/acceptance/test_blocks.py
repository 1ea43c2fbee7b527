"""Blocks of real traces: what is known of the models must be found without being told."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from foretrace.graph import (
    DEVICE_KINDS,
    NO_LAYER,
    ExecutionGraph,
    NodeKind,
    Part,
    Phase,
    Recording,
    build_recording,
)
from foretrace.trace import Trace, load_traces

WORK = (*DEVICE_KINDS, NodeKind.FINISH, NodeKind.OPERATOR)
NAMED = {  # file -> what its Python stacks call the layers, and how many there are
    "Falconsai_nsfw_image_detection__1016002.json.gz": ("ViTLayer", 12),
    "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": ("Qwen2DecoderLayer", 24),
    "gaunernst_bert-small-uncased__1016001.json.gz": ("BertLayer", 4),
}
PHASES_KNOWN = [
    "a100-dlrm-rank3-of-8",
    "a100-resnet-ddp2-rank0",
    "v100-ddp2-rank1",
    "v100-resnet50-dataloader/worker0.1623143089861.pt.trace.json.gz",
    "v100-single",
]
RESNET50 = [PHASES_KNOWN[1], *PHASES_KNOWN[3:]]
BOTTLENECKS = 16  # of ResNet-50: 3 + 4 + 6 + 3 (He et al., 2015, table 1)


def source(recording: Recording, about: str) -> str:
    return next(each.source for each in recording.block_evidence if each.about == about)


def share(graph: ExecutionGraph, is_right: np.ndarray) -> float:
    """Of all device time (and on the CPU operators' time), where this holds."""
    is_work = graph.is_of(*WORK)
    return float(graph.measured_ns[is_work & is_right].sum() / graph.measured_ns[is_work].sum())


def test_forty_layers_of_megatron_are_found_with_their_ends(data_dir: Path) -> None:
    recording = build_recording(load_traces([data_dir / "traces" / "megatron-tp8"]))
    graph = recording.graph

    assert source(recording, "layers") == "repetition"
    for rank in graph.ranks:
        kernels = (graph.rank == rank) & graph.is_of(*DEVICE_KINDS, NodeKind.FINISH)
        assert sorted(set(graph.layer[kernels].tolist())) == list(range(-1, 40))
        for layer in range(40):
            nodes = np.flatnonzero(kernels & (graph.layer == layer))
            called = [graph.names[graph.operator[node]] for node in nodes.tolist()]
            # Attention and MLP, each behind a normalisation and with an all-reduce at its end.
            assert called[0] == "FusedLayerNormAffineFunction"
            assert sum(name == "FusedLayerNormAffineFunction" for name in called) == 2
            assert sum(name == "record_param_comms" for name in called) == 2
            assert sum(name == "ScaledUpperTriangMaskedSoftmax" for name in called) == 1
            assert len(called) == 18
    assert share(graph, graph.part != Part.UNKNOWN) == 1.0


@pytest.mark.parametrize("machine", ["h100-inference", "mi300-inference"])
@pytest.mark.parametrize("file", sorted(NAMED))
def test_repetition_finds_what_the_modules_are_called(
    data_dir: Path, machine: str, file: str
) -> None:
    traces = load_traces([data_dir / "traces" / machine / file])
    hidden = [
        replace(
            trace, strings=tuple(text.replace("nn.Module: ", "module ") for text in trace.strings)
        )
        for trace in traces
    ]

    named, found = build_recording(traces), build_recording(hidden)

    kind, count = NAMED[file]
    notes = {each.about: each.note for each in named.block_evidence}
    assert notes["layers"] == f"{count} layers called {kind!r}"
    assert (source(named, "layers"), source(found, "layers")) == ("modules", "repetition")
    assert share(named.graph, named.graph.layer == found.graph.layer) >= 0.99
    assert share(named.graph, named.graph.part == found.graph.part) >= 0.99


@pytest.mark.parametrize("file", PHASES_KNOWN)
def test_every_phase_of_a_training_trace_is_told(data_dir: Path, file: str) -> None:
    graph = build_recording(load_traces([data_dir / "traces" / file])).graph

    assert share(graph, graph.phase != Phase.UNKNOWN) >= 0.99
    for phase in (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER):
        assert share(graph, graph.phase == phase) > 0


@pytest.mark.parametrize("file", RESNET50)
def test_the_bottlenecks_of_a_resnet_are_its_layers(data_dir: Path, file: str) -> None:
    graph = build_recording(load_traces([data_dir / "traces" / file])).graph

    assert sorted(set(graph.layer.tolist())) == list(range(-1, BOTTLENECKS))
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        in_phase = (graph.phase == phase) & (graph.part != Part.BUCKET)
        in_layers = share(graph, in_phase & (graph.layer != NO_LAYER))
        assert in_layers >= 0.8 * share(graph, in_phase)


def without_marks(trace: Trace) -> Trace:
    """The trace as a program without annotations would have left it."""
    hidden = re.compile(r"DistributedDataParallel\.forward|Optimizer\.|## ")
    return replace(trace, strings=tuple(hidden.sub("mark ", text) for text in trace.strings))


@pytest.mark.parametrize("file", ["a100-resnet-ddp2-rank0", "v100-single"])
def test_phases_are_those_that_the_program_s_marks_state(data_dir: Path, file: str) -> None:
    traces = load_traces([data_dir / "traces" / file])

    stated = build_recording(traces).graph
    found = build_recording([without_marks(trace) for trace in traces]).graph

    assert share(stated, stated.phase == found.phase) >= 0.98


def test_layers_of_our_example_hold_what_a_layer_does(repository: Path) -> None:
    folder = repository / "examples" / "cpu-llama-tp2-dp2" / "traces"
    graph = build_recording(load_traces([folder])).graph
    names = np.array(graph.names)

    assert sorted(set(graph.layer.tolist())) == [-1, 0, 1, 2]
    passes = len(graph.step_names)
    for rank in graph.ranks:
        for layer in range(3):
            own = (graph.rank == rank) & (graph.layer == layer) & (graph.part == Part.LAYER)
            for phase in (Phase.FORWARD, Phase.BACKWARD):
                nodes = own & (graph.phase == phase)
                # Tensor parallelism reduces twice each way.
                assert (nodes & (graph.kind == NodeKind.FINISH)).sum() == 2 * passes
                # Of an operator that lost its processor, what it calls stands for it.
                attends = np.char.find(names[graph.operator], "scaled_dot_product") >= 0
                attends &= nodes & (graph.operator >= 0)
                assert len(np.unique(graph.step[attends])) == passes
                is_operator = attends & (graph.kind == NodeKind.OPERATOR)
                assert passes - 1 <= is_operator.sum() <= passes
    assert share(graph, (graph.part != Part.UNKNOWN) & (graph.phase != Phase.UNKNOWN)) >= 0.99
