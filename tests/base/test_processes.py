"""A sweep gives every answer once and in order, whatever becomes of its workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from foretrace.base import EngineError, MissingExtraError, SweepEngine, WorkloadError, mapped
from foretrace.base.processes import Answered, WorkChunk, swept


def squared(number: int) -> int:
    return number * number


def squared_after_a_kill(folder: Path, number: int) -> int:
    """Kills its worker at piece 7, the first time."""
    marker = folder / "killed"
    if number == 7 and not marker.exists():
        marker.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def killed(_: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def refused(number: int) -> int:
    if number == 3:
        raise WorkloadError("piece 3 cannot be")
    return number


@dataclass
class FakeWorkers:
    """Workers in this process, that take a stated time and lose some chunks."""

    count: int = 2
    piece_s: float = 0.1
    lost: set[int] = field(default_factory=set)  # turns at which a chunk has no answer
    chunks: list[WorkChunk] = field(default_factory=list)
    out: list[tuple[Callable[[Any], Any], WorkChunk]] = field(default_factory=list)

    def share(self, function: Callable[[Any], Any]) -> object:
        return function

    def start(self, shared: object, chunk: WorkChunk) -> None:
        assert callable(shared)
        self.chunks.append(chunk)
        self.out.append((shared, chunk))

    def answered(self) -> list[Answered]:
        function, chunk = self.out.pop()  # the last first: order is not the workers' to keep
        if len(self.chunks) in self.lost:
            return [Answered(chunk, None)]
        time_s = self.piece_s * len(chunk.asked)
        return [Answered(chunk, tuple(map(function, chunk.asked)), time_s)]

    def forget(self) -> None:
        self.out.clear()


def test_answers_come_in_order_and_once() -> None:
    with mapped(2) as over:
        assert list(over(squared, range(50))) == [number**2 for number in range(50)]
        assert list(over(squared, [])) == []
    with mapped(1) as over:
        assert list(over(squared, range(5))) == [0, 1, 4, 9, 16]


def test_a_killed_process_costs_no_answer(tmp_path: Path) -> None:
    with mapped(2) as over:
        found = list(over(partial(squared_after_a_kill, tmp_path), range(40)))

    assert found == [number**2 for number in range(40)]
    assert (tmp_path / "killed").exists()


def test_work_that_kills_its_workers_is_given_up() -> None:
    with mapped(2) as over, pytest.raises(EngineError, match="3 workers ended without an answer"):
        list(over(killed, range(2)))


def test_an_error_is_the_function_s() -> None:
    with mapped(2) as over:
        with pytest.raises(WorkloadError, match="piece 3 cannot be"):
            list(over(refused, range(6)))
        assert list(over(squared, range(6))) == [0, 1, 4, 9, 16, 25]


def test_chunks_grow_until_they_take_two_seconds() -> None:
    workers = FakeWorkers(piece_s=0.01)

    found = list(swept(workers, squared, range(3000)))

    assert found == [number**2 for number in range(3000)]
    sizes = [len(chunk.asked) for chunk in workers.chunks]
    assert sizes[0] == 1
    assert max(sizes) == 200
    assert sorted(chunk.first for chunk in workers.chunks) == [
        sum(len(one.asked) for one in sorted(workers.chunks, key=lambda one: one.first)[:at])
        for at in range(len(sizes))
    ]


@pytest.mark.parametrize("lost", [{3}, {4, 6, 9}, set(range(5, 30, 3))])
def test_what_was_lost_is_done_again(lost: set[int]) -> None:
    workers = FakeWorkers(lost=lost, piece_s=1.0)

    assert list(swept(workers, squared, range(30))) == [number**2 for number in range(30)]


def test_a_sweep_that_nobody_reads_to_its_end_leaves_nothing_out() -> None:
    workers = FakeWorkers(piece_s=5.0)
    found: Iterator[int] = swept(workers, squared, range(20))

    assert next(found) == 0
    with suppress(StopIteration):
        found.close()  # type: ignore[attr-defined]
    assert not workers.out


def test_a_ray_cluster_gives_the_same_when_a_worker_is_killed(tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed")
    with mapped(2, SweepEngine.RAY) as over:
        found = list(over(partial(squared_after_a_kill, tmp_path), range(40)))
        with pytest.raises(WorkloadError, match="piece 3 cannot be"):
            list(over(refused, range(6)))

    assert found == [number**2 for number in range(40)]
    assert (tmp_path / "killed").exists()


def test_without_ray_the_command_to_install_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)

    with (
        pytest.raises(MissingExtraError, match=r"pip install 'foretrace\[ray\]'"),
        mapped(2, SweepEngine.RAY),
    ):
        pass
