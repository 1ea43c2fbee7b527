"""Benchmarks of small recordings, made and run: the operators of the source, all of them."""

from __future__ import annotations

import ast
import runpy
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from foretrace.base import ScenarioError, TraceError
from foretrace.bench import Mode, Recipe, Running, check, generate, package, package_model
from tests.bench.conftest import ALONE, compared_here

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.slow

QUICK = Running(iterations=1, warmup=1, threads=1)


@pytest.mark.parametrize("name", ALONE)
def test_a_benchmark_runs_the_operators_of_its_source(
    recordings: dict[str, Path], name: str, tmp_path: Path
) -> None:
    trace = recordings[name] / "et_rank0.json"
    made = generate(trace, kineto=recordings[name] / "kineto_rank0.json")
    made.write(tmp_path / "bench.py")

    found = compared_here(tmp_path / "bench.py", trace, tmp_path)

    assert found.missing == {}
    assert found.extra == {}
    assert found.source.flops == found.bench.flops
    assert found.source.flops > 0
    assert found.is_same
    assert found.time_ratio is not None
    assert found.bench.busy_share is not None
    assert 0 < found.bench.busy_share <= 1
    assert (made.program.coverage.share, made.program.coverage.time_share) == (1, 1)


def test_two_ranks_communicate_as_their_source_did(
    recordings: dict[str, Path], tmp_path: Path
) -> None:
    folder = recordings["distributed"]
    made = generate(folder / "et_rank0.json")
    made.write(tmp_path / "bench.py")

    found = check(
        tmp_path / "bench.py",
        against=folder / "et_rank0.json",
        running=Running(iterations=1, warmup=1, threads=1, ranks=2),
    )

    names = [name for name, _ in found.bench.operators.elements()]
    assert found.is_same, (found.missing, found.extra)
    assert "c10d::allreduce_" in names
    assert made.program.world_size == 2


def test_modes_part_what_is_replayed(recordings: dict[str, Path]) -> None:
    trace = recordings["distributed"] / "et_rank0.json"

    names = {
        mode: [call.name for call in generate(trace, recipe=Recipe(mode=mode)).program.calls]
        for mode in Mode
    }

    assert set(names[Mode.COMMUNICATION]) == {"c10d::allreduce_"}
    assert "c10d::allreduce_" not in names[Mode.COMPUTE]
    assert sorted(names[Mode.FULL]) == sorted(names[Mode.COMPUTE] + names[Mode.COMMUNICATION])


def test_a_subgraph_is_what_ran_inside_of_its_label(recordings: dict[str, Path]) -> None:
    trace = recordings["perceptron"] / "et_rank0.json"

    made = generate(trace, recipe=Recipe(subgraph="Optimizer.step#SGD.step"))

    assert {call.name for call in made.program.calls} == {"aten::mul_", "aten::add_"}


def test_an_unknown_label_names_those_there_are(recordings: dict[str, Path]) -> None:
    trace = recordings["perceptron"] / "et_rank0.json"

    with pytest.raises(TraceError, match=r"nothing .* ran inside 'attention'.*AddmmBackward0"):
        generate(trace, recipe=Recipe(subgraph="attention"))


def test_repeated_layers_are_one_function(recordings: dict[str, Path], tmp_path: Path) -> None:
    trace = recordings["transformer"] / "et_rank0.json"

    folded = generate(trace)
    flat = generate(trace, recipe=Recipe(is_flat=True))

    names = {one.name for one in ast.parse(folded.text).body if isinstance(one, ast.FunctionDef)}
    assert "repeated_1" in names
    assert len(folded.text.splitlines()) < len(flat.text.splitlines())
    flat.write(tmp_path / "flat.py")
    assert compared_here(tmp_path / "flat.py", trace, tmp_path).is_same


def test_indices_stay_inside_their_tables(recordings: dict[str, Path], tmp_path: Path) -> None:
    made = generate(recordings["recommender"] / "et_rank0.json")
    made.write(tmp_path / "bench.py")

    inside = runpy.run_path(str(tmp_path / "bench.py"))
    drawn = {
        kind: inside["Maker"](torch.device("cpu"), kind).integers(1000, high=99)
        for kind in ("uniform", "zipf:1.2")
    }

    # 3 tables of 100 rows, 160 indices in 16 bags
    assert "make.integers(160, high=99)" in made.text
    assert "make.offsets(16, total=160)" in made.text
    for one in drawn.values():
        assert int(one.min()) >= 0
        assert int(one.max()) <= 99
    most = {kind: int(one.bincount().max()) for kind, one in drawn.items()}
    assert most["zipf:1.2"] > 4 * most["uniform"]


def test_a_package_runs_by_itself(recordings: dict[str, Path], tmp_path: Path) -> None:
    programs = [tmp_path / f"rank{rank}.py" for rank in range(2)]
    for rank, program in enumerate(programs):
        generate(recordings["distributed"] / f"et_rank{rank}.json").write(program)

    package(programs, tmp_path / "bench.pyz")

    command = [sys.executable, "-I", str(tmp_path / "bench.pyz"), "--iterations", "2", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert '"backend": "none"' in ran.stdout


def test_a_model_is_packed_with_its_own_modules(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_parts.py").write_text("WIDTH = 3\n", encoding="utf-8")
    (tmp_path / "own_model.py").write_text(
        "import torch\nfrom own_parts import WIDTH\n\n\n"
        "def build():\n    return lambda: torch.ones(WIDTH).sum()\n",
        encoding="utf-8",
    )
    monkeypatch.chdir(tmp_path)

    package_model("own_model:build", tmp_path / "model.pyz", own=["own_parts"])

    (tmp_path / "own_parts.py").unlink()
    command = [sys.executable, "-I", str(tmp_path / "model.pyz"), "--iterations", "1", "--json"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert "median_seconds" in ran.stdout


def test_an_entry_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="MODULE:FUNCTION is expected"):
        package_model("own_model", tmp_path / "model.pyz")


def test_delays_stand_for_ranks_that_are_not_there(
    recordings: dict[str, Path], tmp_path: Path
) -> None:
    generate(recordings["distributed"] / "et_rank0.json").write(tmp_path / "bench.py")
    inside = runpy.run_path(str(tmp_path / "bench.py"))
    tensor = torch.zeros(4)

    took = {}
    for delay in ("none", "recorded", "30000"):
        communication = inside["Communication"]("none", torch.device("cpu"), delay, {})
        begin = time.perf_counter()
        communication.all_reduce([tensor], group="0", took_us=10_000).wait()
        took[delay] = time.perf_counter() - begin

    assert took["recorded"] >= 0.01
    assert took["30000"] >= 0.03
    assert took["none"] < took["recorded"]


def test_a_benchmark_that_fails_is_one_sentence(
    recordings: dict[str, Path], tmp_path: Path
) -> None:
    trace = recordings["perceptron"] / "et_rank0.json"
    generate(trace).write(tmp_path / "bench.py")

    with pytest.raises(TraceError, match=r"ended with 1 and said .*no GPU"):
        check(tmp_path / "bench.py", against=trace, running=replace(QUICK, device="cuda"))


def test_a_file_that_is_no_benchmark_is_refused(recordings: dict[str, Path]) -> None:
    trace = recordings["perceptron"] / "et_rank0.json"

    with pytest.raises(TraceError, match="is no benchmark"):
        check(Path(__file__), against=trace)
