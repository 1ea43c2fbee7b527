"""Which ranks of a world a few that ran speak for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch")

from foretrace.capture import IssuedExchange, IssuedRole, StepBegin, WorldRoles
from foretrace.capture.world import launch
from foretrace.capture.world.launch import ScriptRun, roles_of
from foretrace.capture.world.role import RoleMemory


class Counted(tuple[int, ...]):
    """A group that counts how often it is gone through."""

    __slots__ = ()
    times = 0

    def __iter__(self) -> Iterator[int]:
        Counted.times += 1
        return super().__iter__()


def _role(
    rank: int, world_size: int, groups: dict[str, tuple[int, ...]], others: list[tuple[int, ...]]
) -> IssuedRole:
    exchanges = [
        IssuedExchange("allreduce", each, 1, 1, "float32", 1, "forward", -1) for each in groups
    ]
    return IssuedRole(
        rank=rank, world_size=world_size, device="fake", texts=[], memory=RoleMemory(),
        groups=groups, other_groups=others, entries=[StepBegin(0), *exchanges],
    )  # fmt: skip


def _found(monkeypatch: pytest.MonkeyPatch, roles: dict[int, IssuedRole]) -> WorldRoles:
    """What is said of a world, of whose ranks some ran."""

    class Ran:
        def __init__(self, *_given: object) -> None: ...
        def role(self, rank: int) -> IssuedRole:
            return roles[rank]

        def start(self, rank: int) -> None: ...
        def close(self) -> None: ...

    monkeypatch.setattr(launch, "_Processes", Ran)
    world_size = next(iter(roles.values())).world_size
    return roles_of(ScriptRun(Path(__file__), (), world_size))


def test_a_large_world_is_gone_through_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 10_000
    everybody = Counted(range(size))
    roles = {rank: _role(rank, size, {"0": everybody}, []) for rank in (0, size - 1)}

    found = _found(monkeypatch, roles)

    assert found.num_ranks == {0: size}
    assert found.is_checked
    assert Counted.times < 40


def test_rows_and_columns_join_all_ranks_of_a_mesh(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [tuple(range(at, at + 4)) for at in range(0, 12, 4)]
    columns = [tuple(range(at, 12, 4)) for at in range(4)]

    def role(rank: int) -> IssuedRole:
        row = next(one for one in rows if rank in one)
        column = next(one for one in columns if rank in one)
        others = [one for one in (*rows, *columns) if one not in {row, column}]
        return _role(rank, 12, {"row": row, "column": column}, others)

    found = _found(monkeypatch, {rank: role(rank) for rank in (0, 11)})

    assert found.num_ranks == {0: 12}
