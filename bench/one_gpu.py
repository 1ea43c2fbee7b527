"""Steps of one H200 (examples/h200), beside predictions of them from a recording and from a model.

python bench/one_gpu.py
"""

from __future__ import annotations

import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np

import foretrace as ft
from foretrace.cost import calibrated, read_tables, write_constants
from foretrace.graph import ExecutionGraph, operator_classes
from foretrace.machine import Machine, load_machine
from foretrace.trace import step_times_beside
from foretrace.whatif import Edit

FOLDER = Path(__file__).parents[1] / "examples" / "h200"
MACHINE = "dgx-h200"
WIDE = ft.Widths(hidden=4096, feed_forward=11_264, heads=32, key_value_heads=16)
NARROW = ft.Widths(hidden=2048, feed_forward=5632, heads=16, key_value_heads=8)
CHANGES: tuple[tuple[str, str, Edit], ...] = (
    ("base", "layers-4", ft.Layers(4)),
    ("base", "layers-16", ft.Layers(16)),
    ("layers-4", "base", ft.Layers(8)),
    ("layers-16", "base", ft.Layers(8)),
    ("base", "hidden-4096", WIDE),
    ("hidden-4096", "base", NARROW),
    ("base", "micro-batch-1", ft.Batch(micro_batch=1)),
    ("base", "micro-batch-4", ft.Batch(micro_batch=4)),
    ("micro-batch-1", "base", ft.Batch(micro_batch=2)),
    ("gpt", "gpt-micro-batch-4", ft.Batch(micro_batch=4)),
    ("base", "sequence-2048", ft.Batch(sequence=2048)),
    ("base", "sequence-8192", ft.Batch(sequence=8192)),
    ("base", "microbatches-4", ft.Batch(num_microbatches=4)),
    ("base", "recompute", ft.PlanKeys({"memory.recompute": "full"})),
    ("recompute", "base", ft.PlanKeys({"memory.recompute": "none"})),
    ("plain-attention", "base", ft.Attention(flash=True)),
    ("base", "graph", ft.CudaGraphs()),
    ("small", "small-graph", ft.CudaGraphs()),
)
# Variants whose launches take longer than their kernels: how long is the host's to say.
HOST_BOUND = ("small", "small-micro-batch-4", "small-microbatches-4", "small-compiled")
NOT_ESTIMATED = ("small-reads-loss", "experts-one-by-one", "plain-attention")


def measured_ns(variant: str) -> float:
    """The median step between the device's events without the profiler; the first warms up."""
    times = step_times_beside(FOLDER / "traces" / variant / "rank0.kineto.json.gz")
    if times is None:
        raise SystemExit(f"{FOLDER} has no step times of {variant}: record it with record.py")
    return median(times.unprofiled_device_step_ns[1:])


def show(name: str, found: Any, variant: str, ends: Any) -> float:
    """A line of a prediction, and its error in percent."""
    truth_ns = measured_ns(variant)
    off = 100 * (found.step_ns / truth_ns - 1)
    is_inside = ends.low_ns <= truth_ns <= ends.high_ns
    print(
        f"{name:34s} {found.step_ns / 1e6:8.2f} ms, measured {truth_ns / 1e6:8.2f}: {off:+6.1f} %"
        f"{'' if is_inside else '  outside its interval'}"
    )
    return off


def changes() -> None:
    """What edits of a recording predict of another."""
    jobs = {start: ft.load(FOLDER / "traces" / start) for start, _, _ in CHANGES}
    errors = []
    for start, variant, edit in CHANGES:
        found = ft.whatif(jobs[start].edit(edit))
        errors.append(show(f"{start} -> {variant}", found, variant, found))
    print(f"mean error {mean(map(abs, errors)):.1f} %, bias {mean(errors):+.1f} %\n")


def estimates(machine: Machine) -> None:
    """What a model and a plan alone predict on a machine, and how the base's time is divided."""
    sys.path.insert(0, str(FOLDER))
    import record  # the script that trained them

    errors = []
    with tempfile.TemporaryDirectory() as folder:
        for name, variant in record.VARIANTS.items():
            if name in NOT_ESTIMATED:
                continue
            path = Path(folder) / f"{name}.toml"
            path.write_text(model_text(variant))
            found = ft.estimate(
                path,
                plan_of(variant),
                machine,
                num_ranks=1,
                software="fsdp-compiled" if variant.is_compiled else "fsdp-eager",
            )
            off = show(name, found, name, found.interval)
            if name not in HOST_BOUND:
                errors.append(off)
            if name == "base":
                base = found
    mean_error = f"mean error {mean(map(abs, errors)):.1f} %, bias {mean(errors):+.1f} %"
    print(f"{mean_error} of the {len(errors)} that the GPU bounds\n")
    recorded = ft.load(FOLDER / "traces" / "base").graph
    ours = by_class(base.timeline.graph, base.timeline.duration_ns, step=None)
    real = by_class(recorded, recorded.measured_ns, step=1)
    for kind in sorted(ours.keys() | real.keys(), key=lambda one: -real[one]):
        print(f"base, {kind:20s} {ours[kind] / 1e6:8.2f} ms, recorded {real[kind] / 1e6:8.2f}")
    print()


def on_known_host(machine: Machine) -> None:
    """What variants that the host bounds take once one of them says how long its launches take."""
    sys.path.insert(0, str(FOLDER))
    import record  # the script that trained them

    def estimated(name: str, on: Machine, folder: str) -> Any:
        variant = record.VARIANTS[name]
        path = Path(folder) / f"{name}.toml"
        path.write_text(model_text(variant))
        software = "fsdp-compiled" if variant.is_compiled else "fsdp-eager"
        return ft.estimate(path, plan_of(variant), on, num_ranks=1, software=software)

    known, *others = HOST_BOUND
    with tempfile.TemporaryDirectory() as folder:
        times = measured_ns(known) / estimated(known, machine, folder).step_ns
        host = replace(machine, host=replace(machine.host, launch_times=times))
        print(f"launches take {times:.2f} times the usual by {known}; with that:")
        for name in others:
            found = estimated(name, host, folder)
            show(name, found, name, found.interval)
    print()


def measured_machine(folder: Path) -> Machine:
    """The machine with constants that the tables of its kernels teach, no step among them.

    Args:
        folder: where the constants are written.
    """
    for one in calibrated(read_tables(FOLDER / "measured"), made="2026-11-27"):
        write_constants(one, folder / f"kernels-{one.chip}.toml")
    return load_machine(MACHINE, (folder,))


def by_class(graph: ExecutionGraph, duration_ns: Any, *, step: int | None) -> Mapping[str, float]:
    """Time of the device by class of operator, of one step."""
    nodes = np.flatnonzero(graph.is_device & (True if step is None else graph.step == step))
    label, names = operator_classes(graph, nodes)
    found: defaultdict[str, float] = defaultdict(float)
    for one, node in zip(label.tolist(), nodes.tolist(), strict=True):
        found[str(names[one])] += float(duration_ns[node])
    return found


def model_text(variant: Any) -> str:
    """A variant as a model file."""
    is_gpt = variant.family == "gpt"
    tables: dict[str, dict[str, object]] = {
        "shape": {
            "layers": variant.layers,
            "hidden": variant.hidden,
            "vocabulary": variant.vocabulary,
            "context": variant.sequence,
            "positions": "learned" if is_gpt else "rotary",
            "norm": "layer" if is_gpt else "rms",
        },
        "attention": {
            "heads": variant.heads,
            "kv_heads": variant.key_value_heads,
            "head_size": variant.hidden // variant.heads,
        },
        "feed_forward": {"width": variant.feed_forward, "gated": not is_gpt},
    }
    if variant.experts:
        numbers = {"count": variant.experts, "active": variant.chosen}
        tables["experts"] = {**numbers, "width": variant.feed_forward}
    return "\n".join(_lines(tables))


def _lines(tables: Mapping[str, Mapping[str, object]]) -> Iterator[str]:
    yield from ('kind = "transformer"', 'title = "A variant"', "[sources]")
    yield 'record = { title = "record.py" }'
    for table, keys in tables.items():
        yield f'[{table}]\nsource = "record"'
        for key, value in keys.items():
            text = f'"{value}"' if isinstance(value, str) else str(value).lower()
            yield f"{key} = {text}"


def plan_of(variant: Any) -> dict[str, object]:
    """A variant as a plan: all in 16 bits, and what eager PyTorch runs in kernels of its own."""
    is_compiled, eager = variant.is_compiled, "compiled" if variant.is_compiled else "eager"
    fused = dict.fromkeys(
        (f"implementation.fuses_{what}" for what in ("activations", "rotary", "residuals")),
        is_compiled,
    )
    return {
        **fused,
        "batch.micro_batch": variant.micro_batch,
        "batch.global_batch": variant.micro_batch * variant.microbatches,
        "batch.sequence": variant.sequence,
        "sharding.level": "none",
        "memory.recompute": "full" if variant.recomputes else "none",
        "precision.products": "bf16",
        "precision.gradients": "bf16",
        "precision.reduced": "bf16",
        "precision.optimizer_bytes": 4,
        "implementation.fuses_norms": True,
        "implementation.fuses_loss": False,
        "implementation.fuses_optimizer": variant.optimizer == "fused",
        "implementation.fuses_gradients": False,
        "implementation.launch": "graph" if variant.is_graph else eager,
    }


if __name__ == "__main__":
    changes()
    estimates(load_machine(MACHINE))
    on_known_host(load_machine(MACHINE))
    print("with what the tables of its kernels teach:")
    with tempfile.TemporaryDirectory() as constants:
        estimates(measured_machine(Path(constants)))
