"""Blocks of a model that PyTorch trains and records here and now, its own marks as the truth.

Each layer is marked forward by an annotation inside it and backward by gradient hooks; the marks'
names are then made meaningless before blocks are found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretrace.base import Int64s
from foretrace.graph import ExecutionGraph, NodeKind, Part, Phase, Recording, build_recording
from foretrace.trace import Category, Trace, load_traces

torch = pytest.importorskip("torch")

NUM_LAYERS = 3
LETTERS = "xyz"  # hidden names of the marks, without numbers
FORWARD, BACKWARD = "true forward ", "true backward "
RIGHT = 0.99


def model(checkpointed: Callable[..., Any]) -> Any:
    """A transformer of the usual parts; `checkpointed(layer, inputs)` runs a layer."""
    nn = torch.nn

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number
            self.first, self.second = nn.LayerNorm(64), nn.LayerNorm(64)
            self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
            self.feed = nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64))
            self.drop = nn.Dropout(0.1)

        def forward(self, inputs: Any) -> Any:
            with torch.profiler.record_function(f"{FORWARD}{self.number}"):
                hidden = self.first(inputs)
                mixed = self.attention(hidden, hidden, hidden, need_weights=False)[0]
                inputs = inputs + self.drop(mixed)
                return inputs + self.drop(self.feed(self.second(inputs)))

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(512, 64)
            self.layers = nn.ModuleList(Layer(number) for number in range(NUM_LAYERS))
            self.norm, self.head = nn.LayerNorm(64), nn.Linear(64, 512)

        def forward(self, tokens: Any) -> Any:
            hidden = self.embedding(tokens)
            for layer in self.layers:
                hidden = checkpointed(layer, hidden)
            logits = self.head(self.norm(hidden))
            return nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    return Model()


def mark_backward(layer: Any) -> None:
    """A mark from the layer's first gradient to its last."""
    open_marks: list[Any] = []

    def before(*_: object) -> None:
        open_marks.append(torch.profiler.record_function(f"{BACKWARD}{layer.number}"))
        open_marks[-1].__enter__()

    def after(*_: object) -> None:
        open_marks.pop().__exit__(None, None, None)

    layer.register_full_backward_pre_hook(before)
    layer.register_full_backward_hook(after)


def recorded(folder: Path, recompute: str) -> Trace:
    """Two steps of two accumulated microbatches, as a trace."""
    checkpoint = torch.utils.checkpoint.checkpoint

    def checkpointed(layer: Any, inputs: Any) -> Any:
        if not recompute:
            return layer(inputs)
        return checkpoint(layer, inputs, use_reentrant=recompute == "reentrant")

    trained = model(checkpointed)
    for layer in trained.layers:
        mark_backward(layer)
    optimizer = torch.optim.AdamW(trained.parameters(), foreach=True)
    path = folder / "rank0.json"
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        schedule=torch.profiler.schedule(wait=1, warmup=1, active=2, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        record_shapes=True,
    ) as profiler:
        for _ in range(4):
            for _ in range(2):
                loss = trained(torch.randint(512, (8, 64))) / 2
                loss.backward()
            torch.nn.utils.clip_grad_norm_(trained.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            profiler.step()
    return load_traces([path])[0]


def hidden(trace: Trace) -> Trace:
    """The same, its marks named so that they say nothing."""

    def renamed(text: str) -> str:
        for mark in (FORWARD, BACKWARD):
            if text.startswith(mark):
                return f"mark {LETTERS[int(text.removeprefix(mark))]}"
        return text

    return replace(trace, strings=tuple(map(renamed, trace.strings)))


@dataclass(frozen=True)
class Truth:
    """Spans of the marks, in ns on the trace's clock."""

    start_ns: int
    end_ns: int
    phase: Phase
    layer: int


def truths(trace: Trace) -> Iterator[Truth]:
    """Every mark: backward, forward, or forward inside one of autograd's evaluations."""
    ends_ns = trace.start_ns + trace.duration_ns
    engine = np.array([text.startswith("autograd::engine::evaluate") for text in trace.strings])
    evaluations = np.flatnonzero(engine[trace.name])
    for row in np.flatnonzero(trace.category == Category.ANNOTATION).tolist():
        text, start_ns = trace.strings[trace.name[row]], int(trace.start_ns[row])
        if text.startswith(BACKWARD):
            layer = int(text.removeprefix(BACKWARD))
            yield Truth(start_ns, int(ends_ns[row]), Phase.BACKWARD, layer)
        if text.startswith(FORWARD):
            inside = trace.start_ns[evaluations] <= start_ns
            inside &= ends_ns[evaluations] > start_ns
            phase = Phase.RECOMPUTE if inside.any() else Phase.FORWARD
            yield Truth(start_ns, int(ends_ns[row]), phase, int(text.removeprefix(FORWARD)))


def typical_ns(graph: ExecutionGraph, nodes: Int64s) -> list[float]:
    """Median duration of the operators of the same name and shapes as each node."""
    like = np.stack([graph.name[nodes], graph.signature[nodes]])
    _, kind = np.unique(like, axis=1, return_inverse=True)
    kind = kind.reshape(-1)
    durations_ns = graph.measured_ns[nodes]
    medians = [np.median(durations_ns[kind == one]) for one in range(int(kind.max()) + 1)]
    return [float(medians[one]) for one in kind.tolist()]


def share_right(recording: Recording, trace: Trace) -> float:
    """Of the time in operators, the share whose layer and phase are those of the marks.

    An operator counts with the median time of its like: one that the machine interrupted would
    else weigh as much as a layer.
    """
    graph = recording.graph
    nodes = graph.nodes_of(NodeKind.OPERATOR)
    # Zero is the earliest item of the only rank, which a step mark may be.
    steps = [text.startswith("ProfilerStep#") for text in trace.strings]
    first = np.flatnonzero(np.array(steps)[trace.name])[0]
    begin = graph.nodes_of(NodeKind.STEP_BEGIN)[0]
    offset_ns = int(trace.start_ns[first]) - int(recording.measured.end_ns[begin])
    spans = sorted(truths(trace), key=lambda span: span.start_ns)
    total = right = 0.0
    for node, took_ns in zip(nodes.tolist(), typical_ns(graph, nodes), strict=True):
        at_ns = int(recording.measured.start_ns[node]) + offset_ns
        # The innermost: recompute lies inside the backward mark of its layer.
        around = [span for span in spans if span.start_ns <= at_ns < span.end_ns]
        is_layer = graph.part[node] == Part.LAYER
        found = (Phase(int(graph.phase[node])), int(graph.layer[node])) if is_layer else None
        total += took_ns
        if found == ((around[-1].phase, around[-1].layer) if around else None):
            right += took_ns
    return right / total


@pytest.mark.slow
@pytest.mark.parametrize("recompute", ["", "reentrant", "hooks"])
def test_layers_and_phases_of_a_model_trained_here_are_found_without_marks(
    tmp_path: Path, recompute: str
) -> None:
    trace = recorded(tmp_path, recompute)

    recording = build_recording([hidden(trace)])

    graph = recording.graph
    assert share_right(recording, trace) >= RIGHT
    assert (graph.phase == Phase.RECOMPUTE).any() == bool(recompute)
    for phase in (Phase.FORWARD, Phase.BACKWARD):
        layers = (graph.phase == phase) & (graph.part == Part.LAYER)
        assert set(np.unique(graph.microbatch[layers]).tolist()) == {0, 1}
