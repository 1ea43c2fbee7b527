"""A room and a law of work that the tests of packers share."""

from __future__ import annotations

import pytest

from foretrace.balance import (
    AsItComes,
    AsItComesWhole,
    DocumentWork,
    Greedy,
    OutlierQueues,
    Packer,
    Room,
)

WINDOW = 4096


@pytest.fixture
def room() -> Room:
    return Room(WINDOW, 4, WINDOW * 3 // 2)


@pytest.fixture
def work() -> DocumentWork:
    return DocumentWork.of_share(WINDOW, 0.7)


def all_packers(room: Room, work: DocumentWork) -> list[Packer]:
    quarter = room.window // 4
    return [
        AsItComes(room),
        AsItComesWhole(room),
        *(Greedy(room, work, count) for count in (1, 2, 4, 8)),
        OutlierQueues(room, work, (2 * quarter,)),
        OutlierQueues(room, work, (quarter, 2 * quarter)),
    ]
