"""Whether a benchmark does what its source did: operators, FLOPs, time, busy share.

The benchmark runs in an interpreter of its own and records a step of itself, as its source was
recorded. The two recordings are then read the same way.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from foretrace.answer import Answer, Column, Json, Table, Told, Unit, duration_text
from foretrace.base import TraceError
from foretrace.bench.assembly import replayed_nodes
from foretrace.bench.collectives import is_collective
from foretrace.bench.recipe import recipe_in
from foretrace.bench.schema import recorded, tensors_in
from foretrace.bench.timing import NOTHING_MEASURED, OperatorTimes, measured_of
from foretrace.bench.tree import Tree, chosen, tree_of
from foretrace.operators import work_of
from foretrace.trace import ExecutionNode, read_execution_nodes

_CUT = "aten::as_strided"  # how a program cuts tensors that no operator of it returns

Key = tuple[str, str]  # operator, shapes of its inputs


@dataclass(frozen=True, kw_only=True)
class Running:
    """How to run a benchmark."""

    device: str | None = None
    ranks: int = 1
    iterations: int = 10
    warmup: int = 5
    threads: int | None = None
    timeout_seconds: float = 600.0


@dataclass(frozen=True)
class CheckedSide:
    """One of the two that are compared."""

    operators: Counter[Key]
    flops: int
    span_ns: int  # under the profiler; 0: no Kineto trace
    busy_share: float | None


@dataclass(frozen=True, repr=False)
class BenchCheck(Answer):
    """A benchmark beside its source."""

    source: CheckedSide
    bench: CheckedSide
    median_ns: int  # of a step without profiler, of the slowest rank
    device: str
    has_collectives: bool  # whether collectives of the source were really run

    @property
    def is_same(self) -> bool:
        """Whether both ran the same operators on the same shapes, so the same FLOPs."""
        return not self.missing and not self.extra and self.source.flops == self.bench.flops

    @property
    def missing(self) -> Counter[Key]:
        """Operators of the source that the benchmark did not run."""
        return self.source.operators - self.bench.operators

    @property
    def extra(self) -> Counter[Key]:
        """Operators of the benchmark that the source did not run."""
        return self.bench.operators - self.source.operators

    @property
    def time_ratio(self) -> float | None:
        """Time of the benchmark over the source's, both under the profiler."""
        return self.bench.span_ns / self.source.span_ns if self.source.span_ns else None

    def as_json(self) -> Json:
        """Everything, as plain values; times in ns."""
        return {
            "is_same": self.is_same,
            "device": self.device,
            "has_collectives": self.has_collectives,
            "median_ns": self.median_ns,
            "time_ratio": self.time_ratio,
            **{
                name: {
                    "operators": side.operators.total(),
                    "flops": side.flops,
                    "span_ns": side.span_ns or None,
                    "busy_share": side.busy_share,
                }
                for name, side in (("source", self.source), ("bench", self.bench))
            },
            "missing": _calls("missing", self.missing).as_json(),
            "extra": _calls("extra", self.extra).as_json(),
        }

    @property
    def headline(self) -> str:
        """Whether both run the same, and how long a step takes."""
        words = "the same operators" if self.is_same else "not the same operators"
        return f"{words} on {self.device}, {duration_text(self.median_ns)} a step"

    @property
    def note(self) -> str:
        """How the times compare, and what was left out."""
        notes = []
        if self.time_ratio is not None:
            notes.append(f"benchmark over source, both under the profiler: {self.time_ratio:.3f}")
        if not self.has_collectives:
            notes.append("collectives were left out on both sides: --ranks N runs them")
        return "; ".join(notes)

    def parts(self) -> tuple[Told, ...]:
        """Both sides, and operators of one alone."""
        return (
            self._sides(),
            _calls("missing", self.missing, "missing in the benchmark"),
            _calls("extra", self.extra, "in the benchmark alone"),
        )

    def tables(self) -> tuple[Table, ...]:
        """One row per operator and shapes, with the calls of both sides; then the sides."""
        operators = Table.of(
            "operators",
            sorted(self.source.operators | self.bench.operators),
            Column("operator", value=lambda key: key[0]),
            Column("shapes", value=lambda key: key[1]),
            Column("source_calls", unit=Unit.COUNT, value=lambda key: self.source.operators[key]),
            Column("bench_calls", unit=Unit.COUNT, value=lambda key: self.bench.operators[key]),
        )
        return operators, self._sides()

    def _sides(self) -> Table:
        return Table.of(
            "sides",
            (("source", self.source), ("benchmark", self.bench)),
            Column("side", value=lambda row: row[0]),
            Column("num_operators", value=lambda row: row[1].operators.total()),
            Column("flops", value=lambda row: row[1].flops),
            Column("span_ns", "ms, profiled", value=lambda row: row[1].span_ns or None),
            Column("busy_share", "busy", value=lambda row: row[1].busy_share),
        )


def _calls(key: str, operators: Counter[Key], title: str = "") -> Table:
    return Table.of(
        key,
        sorted(operators.items()),
        Column("operator", unit=Unit.NAME, value=lambda row: row[0][0]),
        Column("shapes", value=lambda row: row[0][1]),
        Column("calls", unit=Unit.COUNT, value=lambda row: row[1]),
        title=title,
    )


def check(
    program: Path, *, against: Path, kineto: Path | None = None, running: Running | None = None
) -> BenchCheck:
    """Run a benchmark and compare it with its source.

    Args:
        program: what `generate` wrote.
        against: the execution trace that it was made from; with several ranks, of rank 0.
        kineto: the Kineto trace of the same run, for times.
        running: how to run it.

    Raises:
        TraceError: if a file cannot be read, or the benchmark fails.
    """
    running = running or Running()
    recipe_in(program)
    with tempfile.TemporaryDirectory(prefix="foretrace-bench-") as folder:
        said = _ran(program, Path(folder), running)
        return compared(
            program,
            Path(folder),
            against=against,
            kineto=kineto,
            median_ns=max(round(1e9 * float(str(one["median_seconds"]))) for one in said),
            device=str(said[0]["device"]),
            has_collectives=running.ranks > 1,
        )


def compared(
    program: Path,
    folder: Path,
    *,
    against: Path,
    kineto: Path | None,
    median_ns: int,
    device: str,
    has_collectives: bool,
) -> BenchCheck:
    """A benchmark that ran with `--trace FOLDER`, beside its source.

    Args:
        program: what `generate` wrote.
        folder: where it left its traces.
        against: the execution trace that it was made from.
        kineto: the Kineto trace of the same run, for times.
        median_ns: what it measured of itself.
        device: what it ran on.
        has_collectives: whether it ran those of the source.
    """
    recipe = recipe_in(program)
    tree = tree_of(read_execution_nodes(against))
    nodes = replayed_nodes(tree, mode=recipe.mode, step=recipe.step, subgraph=recipe.subgraph)
    if not has_collectives:
        nodes = tuple(one for one in nodes if not is_collective(tree.nodes[one].name))
    own, own_kineto = folder / "et_rank0.json", folder / "kineto_rank0.json"
    ran = tree_of(read_execution_nodes(own))
    calls = chosen(ran, step=None, subgraph=None)
    measured = NOTHING_MEASURED
    if kineto is not None:
        measured = measured_of(tree, nodes, path=against, kineto=kineto)
    own_measured = measured_of(ran, calls, path=own, kineto=own_kineto)
    return BenchCheck(
        source=_side(tree, nodes, measured),
        bench=_side(ran, calls, own_measured, cuts=_num_cuts(tree, nodes)),
        median_ns=median_ns,
        device=device,
        has_collectives=has_collectives,
    )


def _side(
    tree: Tree, nodes: tuple[int, ...], measured: OperatorTimes, *, cuts: int | None = None
) -> CheckedSide:
    operators = Counter(_key(tree.nodes[node]) for node in nodes)
    if cuts is not None:  # cuts belong to the program, not to the step: leave out what is too many
        operators = _without_cuts(operators, cuts)
    return CheckedSide(
        operators=operators,
        flops=sum(_flops(tree.nodes[node]) for node in nodes),
        span_ns=measured.span_ns,
        busy_share=measured.busy_share,
    )


def _num_cuts(tree: Tree, nodes: tuple[int, ...]) -> int:
    return sum(tree.nodes[node].name == _CUT for node in nodes)


def _without_cuts(operators: Counter[Key], most: int) -> Counter[Key]:
    found = Counter(operators)
    surplus = sum(count for (name, _), count in found.items() if name == _CUT) - most
    for key in [key for key in found if key[0] == _CUT]:
        taken = min(found[key], max(surplus, 0))
        found[key] -= taken
        surplus -= taken
    return +found


def _key(node: ExecutionNode) -> Key:
    tensors = [one for argument in node.inputs for one in tensors_in(recorded(argument))]
    return node.name, " ".join(f"{one.dtype}{list(one.shape)}" for one in tensors)


def _flops(node: ExecutionNode) -> int:
    signature = {
        "dims": [one.shape if _is_tensor(one.type) else [] for one in node.inputs],
        "types": [_type(one.type) for one in node.inputs],
        "strides": [one.strides or [] for one in node.inputs],
        "inputs": ["" if _is_tensor(one.type) else json.dumps(one.value) for one in node.inputs],
    }
    work = work_of(node.name, json.dumps(signature))
    return work.flops if work is not None else 0


def _is_tensor(kind: str) -> bool:
    return "Tensor(" in kind


def _type(kind: str) -> str:
    return kind[len("Tensor(") : -1] if kind.startswith("Tensor(") else kind


def _ran(program: Path, folder: Path, running: Running) -> list[dict[str, object]]:
    """What each rank of a run printed."""
    command = [sys.executable, str(program), "--json", "--trace", str(folder)]
    command += ["--iterations", str(running.iterations), "--warmup", str(running.warmup)]
    if running.device is not None:
        command += ["--device", running.device]
    if running.threads is not None:
        command += ["--threads", str(running.threads)]
    if running.ranks > 1:
        command += ["--rendezvous", (folder / "rendezvous").resolve().as_uri()]
        command += ["--ranks", str(running.ranks)]
    started = [
        subprocess.Popen(  # noqa: S603  the user asked for this program to be run
            [*command, "--rank", str(rank)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(running.ranks)
    ]
    try:
        return [_said(one, program, running) for one in started]
    finally:
        for one in started:
            one.kill()
            one.wait()


def _said(process: subprocess.Popen[str], program: Path, running: Running) -> dict[str, object]:
    """The line of JSON that a rank printed last."""
    try:
        out, err = process.communicate(timeout=running.timeout_seconds)
    except subprocess.TimeoutExpired as late:
        raise TraceError(
            f"the benchmark {str(program)!r} did not end within {running.timeout_seconds:g} s: "
            "ask for fewer iterations, or allow more time"
        ) from late
    if process.returncode != 0:
        shown = "; ".join(err.strip().splitlines()[-1:]) or "nothing"
        raise TraceError(
            f"the benchmark {str(program)!r} ended with {process.returncode} and said {shown!r}: "
            "run it by itself to see more"
        )
    said: dict[str, object] = json.loads(out.strip().splitlines()[-1])
    return said
