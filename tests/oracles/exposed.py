"""Exposed transfers, moment by moment."""

from __future__ import annotations

from collections import Counter

from foretrace.analyze import StepTable, activity_by_rank, participations
from foretrace.graph import Timeline
from tests.oracles.intervals import moments

Key = tuple[str, int, str, str]


def exposed(timeline: Timeline, table: StepTable) -> dict[Key, int]:
    """Time by step, rank, group and collective."""
    found: Counter[Key] = Counter()
    pairs = participations(timeline.graph)
    for row in range(len(table)):
        rank = int(table.rank[row])
        step = table.step_names[int(table.step[row])]
        compute = activity_by_rank(timeline)[rank].compute
        busy = moments(zip(compute.start_ns.tolist(), compute.end_ns.tolist(), strict=True))
        transfers = [
            (
                max(int(timeline.start_ns[finish]), int(timeline.start_ns[arrive])),
                int(timeline.end_ns[finish]),
                number,
                timeline.graph.collectives[collective],
            )
            for number, (collective, of, arrive, finish) in enumerate(
                zip(
                    pairs.collective.tolist(),
                    pairs.rank.tolist(),
                    pairs.arrive.tolist(),
                    pairs.finish.tolist(),
                    strict=True,
                )
            )
            if of == rank
        ]
        for moment in range(int(table.begin_ns[row]), int(table.end_ns[row])):
            running = [one for one in transfers if one[0] <= moment < one[1]]
            if moment in busy or not running:
                continue
            goes_on = min((each for each in busy if each > moment), default=None)

            def strength(
                one: tuple[int, int, int, object], goes_on: int | None = goes_on
            ) -> tuple[bool, int, int]:
                return (goes_on is None or one[1] <= goes_on, one[1], one[2])

            owner = max(running, key=strength)[3]
            found[step, rank, owner.group, owner.name] += 1
    return dict(found)
