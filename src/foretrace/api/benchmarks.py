"""The verb that makes a benchmark of an execution trace."""

from __future__ import annotations

from pathlib import Path

from foretrace.bench import Benchmark, Mode, Recipe, generate


def benchmark(
    trace: str | Path,
    *,
    kineto: str | Path | None = None,
    mode: Mode | str = Mode.FULL,
    step: str | int | None = None,
    subgraph: str | None = None,
) -> Benchmark:
    """A program that replays a step of an execution trace; `.write(path)` leaves it in a file.

    Args:
        trace: an execution trace of PyTorch.
        kineto: the Kineto trace of the same run: times and streams of operators.
        mode: "full", "compute" (no collectives) or "communication" (nothing else).
        step: name or number where steps are marked; the first, if left out.
        subgraph: only operators that ran inside nodes of this name.

    Raises:
        TraceError: if a file cannot be read, or holds nothing of what is asked for.
    """
    recipe = Recipe(mode=Mode(mode), step=None if step is None else str(step), subgraph=subgraph)
    return generate(Path(trace), kineto=None if kineto is None else Path(kineto), recipe=recipe)
